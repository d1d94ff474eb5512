"""What the drain of an instance does with its threads, and how it ends; threads and the group are stand-ins."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.waiting import until
from tidemill.config.slices import ClientsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import DrainRefusedError, EnvironmentProblem, RetriableError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.admin.groups import LiveGroup
from tidemill.membership.drain_progress import DrainPhase
from tidemill.membership.member_state import Drain, HeldTask, MemberConfig, MemberState, Role, new_member
from tidemill.query.group_documents import CALLED_OFF, CLOSING, DRAINING
from tidemill.runtime.instance import draining as module
from tidemill.runtime.instance.draining import Draining

OWN = ProcessId(1, 0)
RUNS = {TaskId(0, 0): HeldTask(role=Role.ACTIVE, partitions=(TopicPartition("in", 0),))}
LIMIT_S = 60


@dataclass
class StandInThread:
    """``becomes``: the member's state once it was asked to drain."""

    becomes: MemberState
    asked: list[bool] = field(default_factory=list)

    def drain(self, wanted: bool = True) -> None:
        self.asked.append(wanted)

    def is_alive(self) -> bool:
        return True

    @property
    def member(self) -> MemberState:
        return self.becomes if self.asked else new_member(MemberConfig(process_id=OWN))


@dataclass
class Scene:
    draining: Draining
    thread: StandInThread
    closed: threading.Event
    is_open: list[bool]


def member(drain: Drain, **held: Any) -> MemberState:
    return replace(new_member(MemberConfig(process_id=OWN)), drain=drain, **held)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Callable[[MemberState], Scene]:
    def make(becomes: MemberState) -> Scene:
        monkeypatch.setattr(module, "live_group", lambda *_args, **_limits: LiveGroup(members={}, partition_counts={}))
        monkeypatch.setattr(module, "why_no_drain", lambda *_said: "")
        monkeypatch.setattr(module, "_SHOWN_S", 0.0)
        thread, closed, is_open = StandInThread(becomes), threading.Event(), [True]
        clients = StreamsConfig.read_slice(ClientsConfig, {"bootstrap.servers": "none:1"})
        threads = cast("list[Any]", [thread])
        draining = Draining("app", clients, threads, process_id=lambda: OWN, is_open=lambda: is_open[0], close=closed.set)
        return Scene(draining, thread, closed, is_open)

    return make


def test_an_instance_that_holds_nothing_more_is_closed(scene: Callable[[MemberState], Scene]) -> None:
    at = scene(member(Drain.UNDER_WAY))
    assert at.draining.to_json() is None
    at.draining.begin(LIMIT_S)
    assert at.draining.wait()
    assert at.closed.is_set()
    told = at.draining.to_json()
    assert told is not None
    assert (told["phase"], told["message"]) == (CLOSING, "every task has been handed over")


def test_a_drain_that_somebody_looks_at_ends_when_its_end_was_read(
    scene: Callable[[MemberState], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the next look takes."""
    at = scene(member(Drain.UNDER_WAY, held=RUNS))
    monkeypatch.setattr(module, "_UNREAD_LIMIT_S", LIMIT_S)
    at.draining.begin(LIMIT_S)
    assert at.draining.to_json() is not None
    at.thread.becomes = member(Drain.UNDER_WAY)
    assert not at.closed.wait(0.5)
    while (told := at.draining.to_json()) is not None and told["phase"] != CLOSING:
        time.sleep(0.01)
    assert at.draining.wait()
    assert at.closed.is_set()


def test_a_drain_that_ends_while_it_is_looked_at_for_the_first_time_waits_for_the_next_look(
    scene: Callable[[MemberState], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = scene(member(Drain.UNDER_WAY, held=RUNS))
    monkeypatch.setattr(module, "_UNREAD_LIMIT_S", LIMIT_S)
    at.draining.begin(LIMIT_S)
    reported, waits = at.draining._reported, threading.Event()
    assert reported is not None

    class EndsMeanwhile(dict[str, object]):
        """What the first look has read, when the drain ends."""

        def __getitem__(self, name: str) -> object:
            if not at.closed.is_set() and not waits.is_set():
                at.thread.becomes = member(Drain.UNDER_WAY)
                assert until(lambda: waits.is_set() or at.closed.is_set(), LIMIT_S)
            return super().__getitem__(name)

    class Read(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout)

    at.draining._end_was_read = Read()
    at.draining._reported = EndsMeanwhile(reported)
    told = at.draining.to_json()
    assert told is not None
    assert told["phase"] == DrainPhase.DRAINING.value
    assert not at.closed.is_set(), "who polls has not read the end"
    told = at.draining.to_json()
    assert told is not None
    assert told["phase"] == CLOSING
    assert at.draining.wait()


def test_under_a_leader_that_knows_no_drains_it_is_closed_and_says_so(scene: Callable[[MemberState], Scene]) -> None:
    at = scene(member(Drain.IGNORED, held=RUNS))
    at.draining.begin(LIMIT_S)
    assert at.draining.wait()
    assert at.closed.is_set()
    told = at.draining.to_json()
    assert told is not None
    assert "knows of no drains" in told["message"]


def test_after_its_limit_a_drain_is_called_off_and_the_instance_goes_on(scene: Callable[[MemberState], Scene]) -> None:
    at = scene(member(Drain.UNDER_WAY, held=RUNS))
    at.draining.begin(0.001)
    assert not at.draining.wait()
    assert not at.closed.is_set()
    assert at.thread.asked[-1] is False
    told = at.draining.to_json()
    assert told is not None
    assert (told["phase"], told["active"], told["standby"]) == (CALLED_OFF, 1, 0)
    assert "1 active tasks" in told["message"]


def test_a_drain_may_have_no_limit(scene: Callable[[MemberState], Scene]) -> None:
    at = scene(member(Drain.UNDER_WAY))
    at.draining.begin(math.inf)
    assert at.draining.wait()
    told = at.draining.to_json()
    assert told is not None
    assert isinstance(told["until_ms"], int)


def test_it_can_be_drained_again(scene: Callable[[MemberState], Scene]) -> None:
    at = scene(member(Drain.UNDER_WAY, held=RUNS))
    at.draining.begin(0.001)
    assert not at.draining.wait()
    at.thread.becomes = member(Drain.UNDER_WAY)
    at.draining.begin(LIMIT_S)
    assert at.draining.wait()


def test_an_instance_that_ends_meanwhile_drains_no_more(scene: Callable[[MemberState], Scene]) -> None:
    at = scene(member(Drain.UNDER_WAY, held=RUNS))
    at.draining.begin(LIMIT_S)
    at.is_open[0] = False
    assert not at.draining.wait()
    assert not at.closed.is_set()
    with pytest.raises(DrainRefusedError, match="does not run"):
        at.draining.begin(LIMIT_S)


def test_what_speaks_against_it_is_raised_and_nothing_is_asked(
    scene: Callable[[MemberState], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = scene(member(Drain.UNDER_WAY))
    monkeypatch.setattr(module, "why_no_drain", lambda *_said: "there is no other instance")
    with pytest.raises(DrainRefusedError, match="no other instance"):
        at.draining.begin(LIMIT_S)

    def away(*_args: object, **_limits: object) -> LiveGroup:
        raise EnvironmentProblem("not found stable")

    monkeypatch.setattr(module, "live_group", away)
    with pytest.raises(RetriableError, match="not found stable"):
        at.draining.begin(LIMIT_S)
    assert at.thread.asked == []


def test_a_status_that_is_read_while_a_drain_begins_finds_all_of_it(scene: Callable[[MemberState], Scene]) -> None:
    at = scene(member(Drain.UNDER_WAY))
    read: list[Any] = []

    class ReadAtOnce(Draining):
        """Read as soon as anything is reported, as an HTTP thread may."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "_reported" and value is not None:
                read.append(self.to_json())

    at.draining.__class__ = ReadAtOnce
    at.draining.begin(LIMIT_S)
    assert at.draining.wait()
    assert [(shown["phase"], shown["until_ms"] - shown["since_ms"]) for shown in read] == [
        (DRAINING, LIMIT_S * 1000),
        (CLOSING, LIMIT_S * 1000),
    ]
