"""Group members when processes die or freeze, brokers go away, or were never there."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.group import group_application
from tests.kafka.group.group_application import Application, create_topic, joined
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import CommitRefusedError, ConfigError, EnvironmentProblem
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.member_config import GroupMemberConfig
from tidemill.kafka.group.metadata import OffsetAndMetadata
from tidemill.membership.member_state import Assigned, MembershipLost


@pytest.fixture(scope="module")
def mortal() -> Iterator[EmbeddedBroker]:
    """A broker of this file's own: whoever kills it starts it again."""
    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as broker:
        yield broker


class MemberProcess:
    """One member in a process of its own, and the lines that it prints."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str, name: str) -> None:
        command = [sys.executable, str(Path(group_application.__file__)), bootstrap_servers, topic, group, name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def shares_with(self, application: Application) -> bool:
        """Each owns two partitions, and both have heard of the same generation: nothing more is on its way."""
        assert application.member is not None
        line = f"Assigned {application.member.membership.generation} 2"
        return len(application.owned) == 2 and self.lines[-1:] == [line + "\n"]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@pytest.fixture
def names(unique_name: Callable[[str], str]) -> tuple[str, str]:
    return unique_name("input"), unique_name("group")


@pytest.fixture
def other(bootstrap_servers: str, names: tuple[str, str]) -> Iterator[MemberProcess]:
    create_topic(bootstrap_servers, names[0], 4)
    process = MemberProcess(bootstrap_servers, *names, "other")
    yield process
    process.signal(signal.SIGKILL)
    process.process.wait(240)


@pytest.fixture
def application(names: tuple[str, str]) -> Iterator[Application]:
    application = Application(topics=[names[0]])
    yield application
    application.closed = True
    if application.member is not None:
        application.member.close()


@pytest.mark.broker
@pytest.mark.fault
def test_a_killed_member_is_replaced_within_its_session_timeout(
    other: MemberProcess, application: Application, bootstrap_servers: str, names: tuple[str, str]
) -> None:
    joined(bootstrap_servers, application, names[1], "survivor")
    assert until(lambda: other.shares_with(application))
    other.signal(signal.SIGKILL)
    assert until(lambda: len(application.owned) == 4)
    assert application.of_kind(MembershipLost) == []


@pytest.mark.broker
@pytest.mark.fault
def test_a_member_frozen_past_its_session_learns_that_it_lost_everything(
    other: MemberProcess, application: Application, bootstrap_servers: str, names: tuple[str, str]
) -> None:
    joined(bootstrap_servers, application, names[1], "survivor")
    assert until(lambda: other.shares_with(application))
    other.signal(signal.SIGSTOP)
    assert until(lambda: len(application.owned) == 4)
    seen = len(other.lines)
    other.signal(signal.SIGCONT)
    assert until(lambda: len(other.lines) > seen)
    assert other.lines[seen].startswith("MembershipLost")
    assert until(lambda: other.shares_with(application))
    claims = [m.owned_partitions for s in application.seen_subscriptions for m in s.values() if m.generation == -1]
    assert claims
    assert not any(claims)  # what it had owned it did not claim when it came back


@pytest.mark.broker
@pytest.mark.fault
def test_a_broker_that_is_away_for_longer_than_the_session_costs_no_membership(
    mortal: EmbeddedBroker, names: tuple[str, str], application: Application
) -> None:
    partitions = create_topic(mortal.bootstrap_servers, names[0], 4)
    session_s = 15.0  # long enough for a machine that stands still when the broker is back
    options = {"session_timeout_ms": int(session_s * 1e3), "report_unreachable_after_ms": 3_000}
    member = joined(mortal.bootstrap_servers, application, names[1], "patient", **options)
    assert until(lambda: len(application.owned) == 4)
    member.commit({partitions[0]: OffsetAndMetadata(1)})
    mortal.kill()
    processor_time = time.process_time()
    time.sleep(session_s)
    assert time.process_time() - processor_time < session_s / 2  # it waits between its attempts
    mortal.start()
    member.commit({partitions[0]: OffsetAndMetadata(2)}, timeout_ms=120_000)
    assert member.committed(partitions) == {partitions[0]: OffsetAndMetadata(2)}
    member.request_rejoin("test")
    assert until(lambda: len(application.assigned) >= 2)
    assert application.of_kind(MembershipLost) == []
    failure, *later = application.failed  # a broker that is slow to come back may count as away once more
    assert not any(each.fatal for each in (failure, *later))
    assert isinstance(failure.error, EnvironmentProblem)
    assert mortal.bootstrap_servers in str(failure.error)


@pytest.mark.broker
@pytest.mark.fault
def test_a_broker_that_goes_during_a_join_only_delays_it(
    mortal: EmbeddedBroker, names: tuple[str, str], application: Application
) -> None:
    create_topic(mortal.bootstrap_servers, names[0], 2)
    other = Application(topics=application.topics)
    first = joined(mortal.bootstrap_servers, application, names[1], "a", session_timeout_ms=8_000)
    second = joined(mortal.bootstrap_servers, other, names[1], "b", session_timeout_ms=8_000)
    try:
        assert until(lambda: len(application.owned) == len(other.owned) == 1)
        generation = first.membership.generation
        other.may_join.clear()
        first.request_rejoin("test")  # is held until b joins too
        assert until(lambda: not first.membership.is_stable)
        mortal.kill()
        other.may_join.set()
        mortal.start()
        assert until(lambda: first.membership.generation > generation and first.membership.is_stable)
        assert until(lambda: second.membership.generation == first.membership.generation)
        assert until(lambda: len(application.owned) == len(other.owned) == 1)
    finally:
        other.closed = True
        second.close()


def test_a_wrong_address_is_reported_and_tried_further() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refuses, and no one else can take it
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        application = Application(topics=["input"])
        member = joined(address, application, "group", "lost", report_unreachable_after_ms=500)
        assert until(lambda: bool(application.failed))
        time.sleep(1)
        application.closed = True
        member.close()
    [failure] = application.failed
    assert not failure.fatal
    assert isinstance(failure.error, EnvironmentProblem)
    assert f"{address}: [Errno 111] Connection refused" in str(failure.error)
    assert "Check bootstrap.servers" in str(failure.error)


def test_a_port_where_something_else_answers_is_reported_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer_nonsense, args=(server,), daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        application = Application(topics=["input"])
        member = joined(address, application, "group", "lost", report_unreachable_after_ms=500)
        try:
            assert until(lambda: bool(application.failed))
        finally:
            application.closed = True
            member.close()
    assert not application.of_kind(Assigned)
    assert f"{address}: something listens" in str(application.failed[0].error)


def _answer_nonsense(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):  # who called may have gone
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_commit_without_a_membership_is_refused_on_this_side() -> None:
    """A broker would take it for the commit of a consumer without a group, if the group is empty."""
    settings = {"bootstrap_servers": "127.0.0.1:1"}
    member = GroupMember(
        GroupMemberConfig(client_settings=settings, group_id="g", client_id="c"), Application(topics=["input"])
    )
    with pytest.raises(CommitRefusedError):
        member.commit({})
    member.close()


@pytest.mark.parametrize(
    ("settings", "options", "complaint"),
    [
        ({"bootstrap.servers": "localhost:1"}, {}, "bootstrap.servers"),
        ({"bootstrap_servers": "localhost:x"}, {}, "localhost:x"),
        ({"bootstrap_servers": "localhost:1"}, {"heartbeat_interval_ms": 45_000}, "heartbeat.interval.ms=45000"),
        ({"bootstrap_servers": "localhost:1"}, {"max_poll_interval_ms": 0}, "max.poll.interval.ms=0"),
        ({"bootstrap_servers": "localhost:1"}, {"instance_id": ""}, "group.instance.id"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(
    settings: dict[str, str], options: dict[str, int | str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        GroupMember(
            GroupMemberConfig(client_settings=settings, group_id="g", client_id="c", **options),  # type: ignore[arg-type]
            Application(topics=["input"]),
        ).start()


def test_a_password_is_not_shown_in_an_error() -> None:
    settings = {"bootstrap_servers": "localhost:x", "sasl_plain_password": "hunter2"}
    with pytest.raises(ConfigError) as caught:
        GroupMember(
            GroupMemberConfig(client_settings=settings, group_id="g", client_id="c"), Application(topics=["input"])
        ).start()
    assert "hunter2" not in str(caught.value)
