"""`tidemill reset`: said first, done when asked for, never under a running application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.cli.cli_process import LIMIT_S
from tests.waiting import until
from tidemill.cli.main import main
from tidemill.cli.reset import datetime_ms, duration_ms
from tidemill.errors import ConfigError
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.admin.groups import set_committed_offsets
from tidemill.state.directory import StateDirectory

PROGRAM = """
from tidemill import Serdes, StreamsBuilder
builder = StreamsBuilder()
lines = builder.stream("{name}-in", key=Serdes.string(), value=Serdes.string())
rates = builder.global_table("{name}-rates", key=Serdes.string(), value=Serdes.string())
words = lines.left_join(rates, lambda word, rate: word, selector=lambda key, word: word)
words.group_by(lambda k, v: v).count(store="counts").to_stream().to("{name}-out-changelog")
config = {{"application.id": "{name}", "bootstrap.servers": "{servers}", "state.dir": "{state}"}}
"""
FIRST_MS = 1_700_000_000_000
MINUTE_MS = 60_000


@dataclass
class Stopped:
    """An application that has read 6 of 10 records of each of two partitions, one a minute, and has ended."""

    name: str
    admin: Admin
    servers: str
    file: Path
    state: Path

    def reset(self, *options: str) -> int:
        try:
            main(["reset", str(self.file), *options])
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    @property
    def inputs(self) -> list[TopicPartition]:
        return [TopicPartition(f"{self.name}-in", partition) for partition in range(2)]

    @property
    def committed(self) -> list[int | None]:
        found = self.admin.committed_offsets(self.name)
        return [found.get(tp) for tp in self.inputs]

    @property
    def own_topics(self) -> set[str]:
        return {topic.removeprefix(self.name) for topic in self.admin.topics() if topic.startswith(self.name)}


@pytest.fixture
def stopped(bootstrap_servers: str, tmp_path: Path, unique_name: Callable[[str], str]) -> Stopped:
    name = unique_name("reset")
    admin = Admin({"bootstrap.servers": bootstrap_servers})
    ends = ("-in", "-out-changelog", "-rates", "-counts-repartition", "-counts-changelog", "-v1-counts-changelog")
    admin.create_topics([TopicSpec(name=name + end, partitions=2) for end in ends])
    made = Stopped(name, admin, bootstrap_servers, tmp_path / "app.py", tmp_path / "state")
    made.file.write_text(PROGRAM.format(name=name, servers=bootstrap_servers, state=made.state))
    # One batch at a time: of a new topic the first one may be refused while a second one is taken.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "max.in.flight.requests.per.connection": 1})
    for tp in made.inputs:
        for number in range(10):
            producer.produce(tp.topic, b"v", partition=tp.partition, timestamp=FIRST_MS + number * MINUTE_MS)
    assert producer.flush(LIMIT_S) == 0
    admin.delete_records({made.inputs[0]: 2})
    set_committed_offsets({"bootstrap_servers": bootstrap_servers}, name, dict.fromkeys(made.inputs, 6), limit_s=LIMIT_S)
    directory = StateDirectory(made.state, name)
    directory.task_path(TaskId(1, 0)).mkdir(parents=True)
    return made


@pytest.mark.broker
def test_without_execute_it_is_only_said(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    before = stopped.own_topics
    assert stopped.reset("--local-state") == 0
    said = capsys.readouterr().out
    assert f"{stopped.name}-in-0: offset 6 -> 2" in said
    assert f"{stopped.name}-in-1: offset 6 -> 0" in said
    assert f"delete topic {stopped.name}-counts-changelog" in said
    assert f"delete topic {stopped.name}-counts-repartition" in said
    assert f"left alone, since this topology has no such topics: {stopped.name}-v1-counts-changelog" in said
    assert "tasks 1_0" in said
    assert "nothing was done" in said
    assert stopped.committed == [6, 6]
    assert stopped.own_topics == before
    assert (stopped.state / stopped.name / "1_0").exists()


@pytest.mark.broker
def test_executed_inputs_begin_anew_internal_topics_go_and_nothing_else(stopped: Stopped) -> None:
    assert stopped.reset("--execute") == 0
    assert stopped.committed == [2, 0]
    theirs = {"-in", "-out-changelog", "-rates"}
    assert until(lambda: stopped.own_topics == {*theirs, "-v1-counts-changelog"})  # a broker hears of it a moment later
    assert (stopped.state / stopped.name / "1_0").exists(), "only where --local-state is given"
    assert stopped.reset("--execute", "--local-state", "--earlier-topics") == 0, "a second time"
    assert until(lambda: stopped.own_topics == theirs)
    assert not (stopped.state / stopped.name / "1_0").exists()


@pytest.mark.broker
def test_brokers_and_state_are_those_that_run_was_given(stopped: Stopped, tmp_path: Path) -> None:
    stopped.file.write_text(PROGRAM.format(name=stopped.name, servers="127.0.0.1:1", state=stopped.state))
    other = StateDirectory(tmp_path / "other", stopped.name).task_path(TaskId(1, 0))
    other.mkdir(parents=True)
    given = ("--bootstrap-server", stopped.servers, "--state-dir", str(tmp_path / "other"))
    assert stopped.reset("--execute", *given) == 0
    assert not other.exists()
    assert (stopped.state / stopped.name / "1_0").exists(), "the setting's"


@pytest.mark.broker
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-latest"], [10, 10]),
        (["--to-offset", "1"], [2, 1]),
        (["--to-offset", "99"], [10, 10]),
        (["--shift-by", "-3"], [3, 3]),
        (["--shift-by", "2"], [8, 8]),
        (["--to-datetime", "2023-11-14T22:16:19.500Z"], [3, 3]),
        (["--by-duration", "PT1H"], [10, 10]),
        (["--by-duration", "P20000D"], [2, 0]),
    ],
    ids=lambda value: " ".join(map(str, value)) or None,
)
def test_inputs_begin_where_the_operator_says_within_what_is_there(
    stopped: Stopped, options: list[str], expected: list[int]
) -> None:
    assert stopped.reset("--execute", *options) == 0
    assert stopped.committed == expected


@pytest.mark.broker
def test_a_topic_that_the_program_also_writes_is_skipped_to_its_end_or_read_again_as_the_operator_says(
    stopped: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read again without a decision, it would have each record twice, as the program writes them again."""
    between = f"{stopped.name}-between"
    stopped.admin.create_topics([TopicSpec(name=between, partitions=1)])
    producer = Producer({"bootstrap.servers": stopped.servers})
    for _ in range(3):
        producer.produce(between, b"v", partition=0)
    assert producer.flush(LIMIT_S) == 0
    program = stopped.file.read_text().replace("words.group_by", f'lines.to("{between}")\nbuilder.stream("{between}").group_by')
    stopped.file.write_text(program)
    there = TopicPartition(between, 0)

    def position() -> int | None:
        return stopped.admin.committed_offsets(stopped.name).get(there)

    assert stopped.reset("--execute") == 2
    assert f"reads and writes {between}: add --intermediate-topics {between} to begin at the end" in capsys.readouterr().err
    assert (stopped.committed, position()) == ([6, 6], None)
    assert stopped.reset("--execute", "--intermediate-topics", between) == 0
    assert (stopped.committed, position()) == ([2, 0], 3)
    assert stopped.reset("--execute", "--input-topics", f"{between},{stopped.name}-in", "--shift-by", "-1") == 0
    assert (stopped.committed, position()) == ([2, 0], 2)
    assert stopped.reset("--execute", "--input-topics", between, "--intermediate-topics", between) == 2
    assert "named in --input-topics and in --intermediate-topics" in capsys.readouterr().err


@pytest.mark.broker
def test_a_group_with_members_is_refused_and_nothing_done(stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"bootstrap.servers": stopped.servers, "group.id": stopped.name, "enable.auto.commit": False}
    member = Consumer({**settings, "client.id": "still-here"})
    member.subscribe([f"{stopped.name}-in"])

    def has_joined() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    try:
        assert until(has_joined)
        assert stopped.reset("--execute") == 1
    finally:
        member.close()
    said = capsys.readouterr().err
    assert "1 active members (still-here): stop all instances" in said
    assert stopped.committed == [6, 6]
    assert "-counts-changelog" in stopped.own_topics


@pytest.mark.broker
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--to-latest", "--shift-by", "1"], "--to-latest and --shift-by contradict each other"),
        (["--input-topics", "other"], "other: no input of this topology; its inputs are"),
        (["--set", "application.id=reset-unknown", "--shift-by", "1"], "has no committed offset to shift"),
        (["--by-duration", "1h"], "--by-duration is '1h', expected such as"),
    ],
    ids=["contradiction", "foreign input", "nothing to shift", "duration"],
)
def test_what_cannot_be_meant_is_refused(
    stopped: Stopped, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stopped.reset("--execute", *options) == 2
    assert says in capsys.readouterr().err
    assert stopped.committed == [6, 6]


@pytest.mark.broker
def test_a_partition_that_is_not_asked_for_keeps_its_offset(stopped: Stopped) -> None:
    other = TopicPartition(f"{stopped.name}-out-changelog", 0)
    set_committed_offsets({"bootstrap_servers": stopped.servers}, stopped.name, {other: 5}, limit_s=LIMIT_S)
    assert stopped.reset("--execute", "--input-topics", f"{stopped.name}-in") == 0
    assert stopped.admin.committed_offsets(stopped.name)[other] == 5


def test_durations_and_times_are_iso_8601s() -> None:
    assert duration_ms("P1DT2H3M4.5S") == ((24 + 2) * 60 + 3) * 60_000 + 4_500
    assert duration_ms("P7D") == 7 * 24 * 3_600_000
    for wrong in ("P", "PT", "P1DT", "1D", "PT1D"):
        with pytest.raises(ConfigError):
            duration_ms(wrong)
    assert datetime_ms("2023-11-14T22:13:20") == FIRST_MS
    assert datetime_ms("2023-11-15T00:13:20+02:00") == FIRST_MS
    with pytest.raises(ConfigError):
        datetime_ms("yesterday")
