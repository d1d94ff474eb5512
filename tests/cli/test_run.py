"""`tidemill run`: whose settings win, what is shown, and how it ends."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.cli.cli_process import LIMIT_S, CliProcess, cli, ran_here
from tests.waiting import until
from tidemill.cli.demo_text import words
from tidemill.cli.instance_view import InstanceView, from_line, to_line, to_text
from tidemill.ids import TaskId
from tidemill.kafka.admin.client import Admin, TopicSpec

WORDCOUNT = Path(__file__).parents[2] / "examples" / "wordcount.py"
VIEW = InstanceView(
    state="RUNNING",
    tasks=(TaskId(0, 1), TaskId(1, 10)),
    restoring=1,
    records_in=12_000,
    records_restored=3,
    records_out=5,
    skipped=6,
    lost=7,
    behind=8,
)


def test_what_an_instance_prints_can_be_read_back() -> None:
    assert from_line(to_line(VIEW)) == VIEW
    assert from_line(to_line(InstanceView(state="REBALANCING")) + "\n") == InstanceView(state="REBALANCING")
    assert from_line("CREATED -> REBALANCING\n") is None
    assert from_line(to_line(VIEW) + " and more") is None


def test_people_are_told_only_what_there_is_to_tell() -> None:
    assert to_text(InstanceView(state="REBALANCING")) == "REBALANCING"
    assert to_text(InstanceView(state="RUNNING", tasks=(TaskId(0, 1),))) == "RUNNING · tasks 0_1 · 0 in · 0 out"
    assert to_text(VIEW) == (
        "RUNNING · tasks 0_1 1_10 · 1 restoring · 3 restored · 12,000 in · 5 out · 8 behind · 6 skipped · 7 batches run again"
    )
    assert to_text(replace(VIEW, seconds_left=12.4)).endswith(" · 12 s left to restore")


def test_only_an_instance_with_tasks_past_restoring_is_at_work() -> None:
    assert not VIEW.is_at_work
    assert InstanceView(state="RUNNING", tasks=(TaskId(0, 1),)).is_at_work
    assert not InstanceView(state="RUNNING").is_at_work
    assert not InstanceView(state="REBALANCING", tasks=(TaskId(0, 1),)).is_at_work


@pytest.mark.parametrize(("level", "heard"), [("info", False), ("debug", True)])
def test_each_attempt_of_kafka_python_is_heard_at_debug_only(level: str, heard: bool) -> None:
    program = (
        "import logging, sys\nfrom tidemill.cli.run import _log_to\nfrom tidemill.cli.live_text import LiveText\n"
        f"_log_to(LiveText(None), {level!r}, as_json=False)\n"
        "logging.getLogger('kafka.net.manager').error('ECONNREFUSED')\nlogging.getLogger('tidemill.thread').warning('told')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert ("ECONNREFUSED" in done.stderr, "told" in done.stderr) == (heard, True)


def test_a_setting_that_does_not_exist_ends_the_command_before_anything_starts() -> None:
    done = ran_here("run", WORDCOUNT, "--set", "num.stream.thread=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tidemill: unknown setting 'num.stream.thread'; did you mean 'num.stream.threads'? "
        "(what is for Kafka's clients begins with kafka., for Spark with spark.)\n"
    )


@pytest.fixture(scope="module")
def calling_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, CliProcess]]:
    """A run with a bootstrap address where nothing listens, begun before the other tests: it takes its time to give up."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refuses, and no one else can take it
        folder, port = tmp_path_factory.mktemp("nobody"), nobody.getsockname()[1]
        arguments = ("run", WORDCOUNT, "--state-dir", folder, "--set", f"bootstrap.servers=127.0.0.1:{port}")
        with cli(*arguments) as run:
            yield port, run


@pytest.mark.broker
@pytest.mark.usefixtures("calling_nobody")
def test_a_missing_topic_is_one_sentence(tmp_path: Path, bootstrap_servers: str) -> None:
    with cli("run", WORDCOUNT, "--bootstrap-server", bootstrap_servers, "--state-dir", tmp_path) as run:
        assert run.end() == 2
        assert run.lines[-1].startswith(
            f"tidemill: the topic streams-plaintext-input does not exist on {bootstrap_servers}: create it and start again"
        )
        assert "Traceback" not in run.text
        run.leaves_nothing()


@pytest.mark.broker
@pytest.mark.spark
def test_an_instance_that_can_not_go_on_ends_with_code_1_and_its_reason(
    tmp_path: Path, bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """A long of three bytes, and no permission to skip it."""
    topic, application = unique_name("numbers"), unique_name("run-error")
    _create(bootstrap_servers, topic)
    _write(bootstrap_servers, topic, [b"abc"])
    app = tmp_path / "app.py"
    app.write_text(
        "from tidemill import Serdes, StreamsBuilder\nbuilder = StreamsBuilder()\n"
        f"config = {{'application.id': {application!r}, 'bootstrap.servers': {bootstrap_servers!r}}}\n"
        f"builder.stream({topic!r}, key=Serdes.string(), value=Serdes.long()).to({topic!r})\n"
    )
    with cli("run", app, "--state-dir", tmp_path) as run:
        assert run.end() == 1
        assert run.lines[-1].startswith("tidemill: ")
        assert f"{topic}-0 at offset 0: " in run.lines[-1]
        assert "PENDING_ERROR -> ERROR" in run.lines
        assert "Traceback" not in run.text
        run.leaves_nothing()


@pytest.mark.broker
@pytest.mark.spark
def test_a_stop_commits_all_and_the_next_start_goes_on_there(
    tmp_path: Path, bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    lines, output, application = unique_name("lines"), unique_name("counts"), unique_name("run-again")
    app = tmp_path / "app.py"
    text = WORDCOUNT.read_text().replace("streams-plaintext-input", lines).replace("streams-wordcount-output", output)
    app.write_text(text)
    _create(bootstrap_servers, lines, output)
    settings = (f"application.id={application}", f"bootstrap.servers={bootstrap_servers}", "heartbeat.interval.ms=500")
    arguments = ("run", app, "--state-dir", tmp_path, *(word for setting in settings for word in ("--set", setting)))
    halves = [["to be or not to be", "that is the question"] * 40, ["to sleep", "perchance to dream", "to be"] * 40]
    for number, (half, stop, code) in enumerate(
        zip(halves, (CliProcess.terminate, CliProcess.interrupt), (0, 130), strict=True)
    ):
        _write(bootstrap_servers, lines, [line.encode() for line in half])
        expected = Counter(word for half in halves[: number + 1] for line in half for word in words(line))
        trace = tmp_path / f"start-{number}.json"
        with cli(*arguments, "--trace-start", trace) as run:
            assert until(lambda wanted=expected: _counts(bootstrap_servers, output) == wanted or run.process.poll() is not None)
            assert until(lambda written=trace: _told(written)[-1:] == ["first output committed"])  # now, not at the end
            assert until(lambda shown=run: any(view.is_at_work for view in _views(shown))), run.text
            stop(run)
            assert run.end() == code, run.text
            assert run.lines[-2:] == ["RUNNING -> PENDING_SHUTDOWN", "PENDING_SHUTDOWN -> NOT_RUNNING"]
            last = _views(run)[-1]
            assert (last.records_restored, last.tasks) == (0, (TaskId(0, 0), TaskId(1, 0)))
            run.leaves_nothing()
        assert _counts(bootstrap_servers, output) == expected
        story = _story(trace)
        assert story[:3] == ["Python, command line", "application file", "imports of the launch"]
        assert {"until its gateway answers", "topology compiled, types inferred", "plan built", "assigned"} <= set(story)
        assert story.count("forked, imports done") == 2  # a worker each for the source and the step


def test_a_timeline_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    with cli("run", WORDCOUNT, "--state-dir", tmp_path, "--trace-start", tmp_path / "gone" / "t.json") as run:
        assert run.end() == 2
        assert run.lines == [
            f"tidemill: --trace-start: {tmp_path}/gone/t.json can't be written (No such file or directory): "
            "name a file in a folder that exists"
        ]


@pytest.mark.broker
def test_brokers_that_do_not_answer_are_one_sentence(calling_nobody: tuple[int, CliProcess]) -> None:
    port, run = calling_nobody
    assert run.end() == 1
    assert run.lines[-1].startswith("tidemill: ")
    assert f"check that the brokers at 127.0.0.1:{port} run and can be reached" in run.lines[-1]
    assert "Traceback" not in run.text
    run.leaves_nothing()


def _views(run: CliProcess) -> list[InstanceView]:
    """What it has shown of itself; its main thread does now and then."""
    return [view for line in list(run.lines) if (view := from_line(line)) is not None]


def _told(trace: Path) -> list[str]:
    """The story as far as it is written by the instance that runs."""
    try:
        return _story(trace)
    except json.JSONDecodeError:  # it is being written
        return []


def _story(trace: Path) -> list[str]:
    """What a start has spent its time on, in the order in which it began."""
    events = [event for event in json.loads(trace.read_text()) if event["ph"] != "M"]
    return [event["name"] for event in sorted(events, key=lambda event: event["ts"])]


def _create(servers: str, *topics: str) -> None:
    Admin({"bootstrap.servers": servers}).create_topics(TopicSpec(name=topic, partitions=1) for topic in topics)


def _write(servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(LIMIT_S) == 0


def _counts(servers: str, topic: str) -> dict[str, int]:
    """The latest count of each word, read_committed."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "isolation.level": "read_committed"})
    partition = ClientPartition(topic, 0)
    try:
        consumer.assign([ClientPartition(topic, 0, 0)])
        _, end = consumer.get_watermark_offsets(partition, timeout=LIMIT_S)
        counts: dict[str, int] = {}
        while consumer.position([partition])[0].offset < end:
            for message in consumer.consume(1_000, 0.1):
                assert message.error() is None
                counts[message.key().decode()] = struct.unpack(">q", message.value())[0]
        return counts
    finally:
        consumer.close()
