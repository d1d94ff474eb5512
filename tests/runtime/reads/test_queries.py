"""Which of the hosts that a leader lists are asked: those that are addresses."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemill.config.slices import ReadsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.endpoint import HostInfo
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member import step
from tidemill.membership.member_state import Assigned, HeldTask, MemberConfig, MemberState, Role, new_member
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.query.http_listening import listen
from tidemill.query.http_tls import HttpAccess
from tidemill.runtime.reads.queries import InstanceReads
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.state.directory import StateDirectory

STRANGE = (HostInfo("pod-0..default", 8080), HostInfo("h\x1b[2J", 1), HostInfo("h", -1), HostInfo("h", 70_000))
PARTITION = TopicPartition("in", 0)


class StateOfThread:
    """A thread's membership, of which only the member's state is looked at."""

    def __init__(self, state: MemberState) -> None:
        self.state = state


def test_hosts_that_are_no_addresses_are_left_out_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hosts = dict.fromkeys((*STRANGE, HostInfo("good", 1)), (PARTITION,))
    info = AssignmentInfo(partitions_by_host=hosts, standby_partitions_by_host=hosts)
    event = Assigned(generation=1, member_id="m", incarnation=0, user_data=encode_assignment(info))
    state, _ = step(new_member(MemberConfig(process_id=ProcessId(1, 1))), event, 0)
    config = StreamsConfig.read_slice(ReadsConfig, {"application.id": "app"})
    reads = InstanceReads(config, HttpAccess(), StateDirectory(tmp_path, "app"), lambda: None)
    reads._memberships["thread"] = cast("ThreadMembership", StateOfThread(state))
    with caplog.at_level(logging.WARNING, "tidemill"):
        found = reads._hosts()
        assert reads._hosts() is found
    assert (set(found.active), set(found.standby)) == ({HostInfo("good", 1)}, {HostInfo("good", 1)})
    (line,) = caplog.messages
    assert line.isprintable()
    assert all(text in line for text in ("event=hosts-left-out", "pod-0..default:8080", "h:70000"))


def test_the_address_of_an_instance_that_never_began_to_answer_is_free_again(tmp_path: Path) -> None:
    config = StreamsConfig.read_slice(ReadsConfig, {"application.id": "app", "tidemill.http.listen": "localhost:0"})
    reads = InstanceReads(config, HttpAccess(), StateDirectory(tmp_path, "app"), lambda: None)
    reads.close()
    again = listen(reads.application_server)
    again.close()


def test_hosts_are_looked_up_while_a_thread_is_added(tmp_path: Path) -> None:
    config = StreamsConfig.read_slice(ReadsConfig, {"application.id": "app"})
    reads = InstanceReads(config, HttpAccess(), StateDirectory(tmp_path, "app"), lambda: None)
    state = new_member(MemberConfig(process_id=ProcessId(1, 1)))

    class AddedTo(StateOfThread):
        @property
        def state(self) -> MemberState:
            reads.has_member("added", cast("ThreadMembership", StateOfThread(state)))
            return state

        @state.setter
        def state(self, given: MemberState) -> None: ...

    reads.has_member("thread", cast("ThreadMembership", AddedTo(state)))
    assert not reads._hosts().active
    assert set(reads._memberships) == {"thread", "added"}


@pytest.mark.parametrize(("silent_s", "is_confirmed"), [(0.0, True), (5.9, True), (6.1, False), (float("inf"), False)])
def test_copies_are_confirmed_as_long_as_nobody_else_can_have_been_given_them(
    tmp_path: Path, silent_s: float, is_confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when a heartbeat was sent that was answered, the broker waits for session.timeout.ms."""
    config = StreamsConfig.read_slice(ReadsConfig, {"application.id": "app", "session.timeout.ms": 6_000})
    reads = InstanceReads(config, HttpAccess(), StateDirectory(tmp_path, "app"), lambda: None)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    thread: Any = SimpleNamespace(name="thread", applied=None)
    tasks = SimpleNamespace(member=SimpleNamespace(held={TaskId(1, 0): HeldTask(role=Role.STANDBY, partitions=())}), active={})
    reads._memberships["thread"] = cast("ThreadMembership", SimpleNamespace(tasks=tasks, confirmed_s=now - silent_s))
    reads._threads = [thread]
    assert [copy.is_confirmed for copy in reads._held(lambda _: True)] == [is_confirmed]


def test_whether_a_thread_commits_is_asked_before_its_tasks(tmp_path: Path) -> None:
    """A batch that is lost between the two questions: its task no longer runs when the commit is over."""
    config = StreamsConfig.read_slice(ReadsConfig, {"application.id": "app"})
    reads = InstanceReads(config, HttpAccess(), StateDirectory(tmp_path, "app"), lambda: None)
    asked: list[str] = []
    commit = threading.Event()

    class Thread:
        name = "thread"

        @property
        def applied(self) -> threading.Event:
            asked.append("commits")
            return commit

    class Held:
        confirmed_s = 0.0

        @property
        def tasks(self) -> Any:
            asked.append("tasks")
            held = {TaskId(1, 0): HeldTask(role=Role.ACTIVE, partitions=())}
            return SimpleNamespace(member=SimpleNamespace(held=held), active={})

    reads._memberships["thread"] = cast("ThreadMembership", Held())
    reads._threads = [cast("StreamThread", Thread())]
    assert [copy.applied for copy in reads._held(lambda _: True)] == [commit]
    assert asked == ["commits", "tasks"]
