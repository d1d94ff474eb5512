"""`tidemill group describe`: the table of kafka-consumer-groups."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.cli.cli_process import LIMIT_S
from tests.waiting import until
from tidemill.cli.group import COLUMNS, aligned, app, group_rows
from tidemill.errors import ConfigError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.admin.groups import GroupMemberState, GroupState


def _member(name: str, *owned: TopicPartition) -> GroupMemberState:
    return GroupMemberState(
        member_id=f"{name}-id", client_id=name, host="/127.0.0.1", instance_id=None, assignment=owned
    )


def test_rows_join_offsets_ends_and_owners_and_unknowns_are_dashes() -> None:
    a0, a1, b0, gone = (TopicPartition(*at) for at in (("a", 0), ("a", 1), ("b", 0), ("gone", 3)))
    state = GroupState(group="g", state="Stable", protocol="stream", members=(_member("m", a0, a1), _member("idle")))
    committed = {a0: 7, b0: 5, gone: 1}
    ends = {a0: 10, a1: 4, b0: 3}
    assert group_rows("g", state, committed, ends) == [
        ("g", "a", "0", "7", "10", "3", "m-id", "/127.0.0.1", "m"),
        ("g", "a", "1", "-", "4", "-", "m-id", "/127.0.0.1", "m"),
        ("g", "b", "0", "5", "3", "0", "-", "-", "-"),
        ("g", "gone", "3", "1", "-", "-", "-", "-", "-"),
        ("g", "-", "-", "-", "-", "-", "idle-id", "/127.0.0.1", "idle"),
    ]
    assert group_rows("g", None, {b0: 5}, {b0: 5}) == [("g", "b", "0", "5", "5", "0", "-", "-", "-")]


def test_columns_stand_under_each_other() -> None:
    assert aligned([("A", "B"), ("long", "x"), ("y", "zz")]) == ["A    B", "long x", "y    zz"]


def test_a_name_that_a_member_chose_does_nothing_to_the_terminal() -> None:
    assert aligned([("A", "B"), ("a\x1b[2J", "b\nc")]) == ["A        B", "a\\x1b[2J b\\nc"]


def _describe(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tidemill")), "group", "describe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.broker
def test_a_real_group_is_shown(bootstrap_servers: str, unique_name: Callable[[str], str]) -> None:
    name = unique_name("described")
    Admin({"bootstrap.servers": bootstrap_servers}).create_topics([TopicSpec(name=name, partitions=2)])
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for _ in range(5):
        producer.produce(name, b"value", partition=1)
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": name, "client.id": "me"})
    consumer.subscribe([name])

    def has_both() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    assert until(has_both)
    consumer.commit(offsets=[ClientPartition(name, 1, 3)], asynchronous=False)
    member = consumer.memberid()
    done = _describe("--bootstrap-server", bootstrap_servers, "--group", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert [tuple(line.split()) for line in done.stdout.splitlines()] == [
        COLUMNS,
        (name, name, "0", "-", "0", "-", member, "/127.0.0.1", "me"),
        (name, name, "1", "3", "5", "2", member, "/127.0.0.1", "me"),
    ]
    consumer.close()
    done = _describe("--bootstrap-server", bootstrap_servers, "--group", name)
    assert done.stderr == f"consumer group '{name}' has no active members\n"
    assert done.stdout.splitlines()[1].split() == [name, name, "1", "3", "5", "2", "-", "-", "-"]


@pytest.mark.broker
def test_a_group_that_is_not_there_is_one_sentence(bootstrap_servers: str) -> None:
    done = _describe("--bootstrap-server", bootstrap_servers, "--group", "no-such-group")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tidemill: consumer group 'no-such-group' does not exist at {bootstrap_servers}\n"


@pytest.mark.parametrize("command", ["describe", "members"])
def test_the_applications_settings_are_taken_from_a_file_and_from_the_command_line(tmp_path: Path, command: str) -> None:
    """Else a group on brokers with a login could not be looked at."""
    file = tmp_path / "settings.toml"
    file.write_text('kafka.security.protocol = "SASL_SSL"\nkafka.sasl.mechanism = "PLAIN"\n')
    given = ["--bootstrap-server", "127.0.0.1:9", "--group", "any group" if command == "describe" else "any-group"]
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.jaas\.config"):
        main_of(command, *given, "--config", str(file))
    with pytest.raises(ConfigError, match=r"kafka\.security\.protocol is 'NONSENSE'"):
        main_of(command, *given, "--config", str(file), "--set", "kafka.security.protocol=NONSENSE")


def main_of(*arguments: str) -> None:
    app(list(arguments), standalone_mode=False)
