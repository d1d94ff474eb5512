"""The line that says what a start does: its words, its bar, and what a terminal shows of it from the first phase to the last."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from tests.cli.cli_process import LIMIT_S, cli
from tests.kafka.group.acting_member import ActingMember
from tests.waiting import until
from tidemill.cli.start_line import StartLine, StartView, followed, start_line, summary_line
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.runtime.observe.start_phases import PhaseTimes, StartPhase, StartPhases
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.progress import CopyProgress, RestoreProgress

TASKS = (TaskId(0, 0), TaskId(0, 1))
OVER = ((StartPhase.TOPICS, 0.31), (StartPhase.SPARK, 64.2))


def view(phase: StartPhase | None, since_s: float = 10.0, **others: object) -> StartView:
    return replace(StartView(times=PhaseTimes(now=phase, since_s=since_s), now_s=13.9), **others)  # type: ignore[arg-type]


def restored(left: int | None, per_s: float | None = 500.0) -> RestoreProgress:
    return RestoreProgress(tasks=TASKS, offsets_left=left, offsets_per_s=per_s)


def lacking(task: TaskId) -> ActiveTask:
    """A task with a store that is restored."""
    changelogs = {"s": TopicPartition("log", task.partition)}
    return ActiveTask(task=task, directory="/state", epoch="e", inputs=(), changelogs=changelogs, phase=Phase.RESTORING)


def test_each_phase_has_its_name_and_its_time() -> None:
    lines = [start_line(view(phase)) for phase in StartPhase]
    assert lines == [
        "importing Spark and Kafka's clients, 3 s",
        "claiming the state directory, 3 s",
        "checking topics, 3 s",
        "starting Spark, 3 s",
        "building the plan, 3 s",
        "joining the group, 3 s",
        "opening tasks, 3 s",
    ]
    assert start_line(view(None)) == "starting"


def test_what_is_over_follows_with_its_times() -> None:
    times = PhaseTimes(over=OVER, now=StartPhase.PLAN, since_s=1.0)
    assert start_line(StartView(times=times, now_s=2.0)) == "building the plan, 1 s (topics 0.3 s, Spark 1 min 4 s)"
    assert summary_line(PhaseTimes(over=OVER)) == "running after 1 min 4 s (topics 0.3 s, Spark 1 min 4 s)"


def test_a_rebalance_that_waits_for_others_is_said() -> None:
    assert start_line(view(StartPhase.JOIN, group_wait_s=12.4)) == "waiting for the group's rebalance, 12 s"
    assert start_line(view(StartPhase.JOIN, group_wait_s=0.4)) == "joining the group, 3 s"
    assert start_line(view(StartPhase.PLAN, group_wait_s=12.4)) == "building the plan, 3 s", "it is not what holds it up"


def test_a_restore_has_a_bar_and_the_time_left() -> None:
    line = start_line(view(StartPhase.RESTORE, restoring=restored(2_500), most_left=10_000))
    assert line == "restoring 2 tasks █████████░░░ 75 %, 2,500 offsets left, 5 s left"
    full = start_line(view(StartPhase.RESTORE, restoring=restored(0), most_left=10_000))
    assert full == "restoring 2 tasks ████████████ 100 %, 0 offsets left, 1 s left"
    hours = start_line(view(StartPhase.RESTORE, restoring=restored(10_000, 1.0), most_left=10_000))
    assert hours == "restoring 2 tasks ░░░░░░░░░░░░ 0 %, 10,000 offsets left, 2 h 46 min left"


def test_a_restore_without_known_ends_or_speed_has_no_figures() -> None:
    assert start_line(view(StartPhase.RESTORE, restoring=restored(None, None))) == "restoring 2 tasks, time left unknown"
    stands = start_line(view(StartPhase.RESTORE, restoring=restored(5_000, None), most_left=10_000))
    assert stands == "restoring 2 tasks ██████░░░░░░ 50 %, 5,000 offsets left, time left unknown"


def test_a_bar_counts_from_the_most_that_was_left() -> None:
    before = StartView()
    lefts = []
    for left in (None, 1_000, 4_000, 3_000, 0):
        before = followed(before, view(StartPhase.RESTORE, restoring=restored(left)))
        lefts.append(before.most_left)
    assert lefts == [0, 1_000, 4_000, 4_000, 4_000]
    another = followed(before, view(StartPhase.RESTORE, since_s=11.0, restoring=restored(10)))
    assert another.most_left == 10, "another restore has a bar of its own"


def test_before_there_is_an_instance_the_line_has_its_phase() -> None:
    clock = iter([0.0, 2.5])
    phases = StartPhases(lambda: next(clock))
    phases.begin(StartPhase.IMPORTS)
    assert StartLine(phases, lambda: next(clock))() == "importing Spark and Kafka's clients, 2 s"


def test_the_line_is_of_what_the_threads_wait_for() -> None:
    """The thread that has waited longest for the group; then what is left to restore, of all of them."""
    phases = StartPhases(lambda: 0.0)
    line = StartLine(phases, lambda: 20.0)
    waits = [SimpleNamespace(joining_since_s=since_s, tasks={}, copies=()) for since_s in (12.0, None, 8.0)]
    line.streams = SimpleNamespace(threads=waits)  # type: ignore[assignment]
    phases.begin(StartPhase.JOIN)
    assert line() == "waiting for the group's rebalance, 12 s"
    phases.begin(StartPhase.RESTORE)
    for left, bar in ((8_000, "░░░░░░░░░░░░ 0 %"), (2_000, "█████████░░░ 75 %")):
        copies = tuple(CopyProgress(task=task, is_active=True, lag=left // 2, offsets_per_s=250.0) for task in TASKS)
        tasks = {task: lacking(task) for task in TASKS}
        line.streams = SimpleNamespace(  # type: ignore[assignment]
            threads=[SimpleNamespace(joining_since_s=None, tasks=tasks, copies=copies)]
        )
        assert line().startswith(f"restoring 2 tasks {bar}, {left:,} offsets left, {left // 500} s left (group 0.0 s)")


class Screen:
    """The terminal of a command: its other end, and all that was written to it. It is read all the time, since a command that
    writes to a full one waits."""

    def __init__(self) -> None:
        self._other, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._read, self._closed = b"", threading.Event()
        self._reader = threading.Thread(target=self._read_all, daemon=True)
        self._reader.start()

    def _read_all(self) -> None:
        while not self._closed.is_set():
            if select.select([self._other], [], [], 0.1)[0]:
                self._read += os.read(self._other, 65_536)

    def text(self) -> str:
        """Without the sequences that move the cursor and choose colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._read.decode(errors="replace"))

    def close(self) -> None:
        self._closed.set()
        self._reader.join()
        for end in (self._other, self.end):
            os.close(end)


class HoldsUp(ActingMember):
    """Stays away from the next rebalance from ``hold`` on, until it is closed; its session lasts."""

    _may_join: threading.Event | None = None
    _is_closed = False

    def hold(self) -> None:
        self._may_join = threading.Event()

    def wait_until_taken_up(self) -> None:
        if self._may_join is not None:
            self._may_join.wait()
        super().wait_until_taken_up()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            super().close()
            if self._may_join is not None:
                self._may_join.set()


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_terminal_shows_the_phases_of_a_start_in_their_order(
    tmp_path: Path, bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """Another member holds the group's rebalance up, then leaves; the store's rows are in the changelog only."""
    application, topic = unique_name("start-line"), unique_name("lines")
    changelog = f"{application}-counts-changelog"
    Admin({"bootstrap.servers": bootstrap_servers}).create_topics(
        [TopicSpec(name=topic, partitions=1), TopicSpec(name=changelog, partitions=1, configs={"cleanup.policy": "compact"})]
    )
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(5_000):
        producer.produce(changelog, struct.pack(">q", number), f"k{number}")
    assert producer.flush(LIMIT_S) == 0
    app = tmp_path / "app.py"
    app.write_text(
        "from tidemill import Serdes, StreamsBuilder\nbuilder = StreamsBuilder()\n"
        f"config = {{'application.id': {application!r}, 'bootstrap.servers': {bootstrap_servers!r}}}\n"
        f"builder.stream({topic!r}, key=Serdes.string(), value=Serdes.string()).group_by_key().count(store='counts')\n"
    )
    other = HoldsUp(bootstrap_servers, application, topic, 1, session__timeout__ms=240_000)
    other.start()
    screen = Screen()
    try:
        assert until(lambda: bool(other.told))
        other.hold()
        with cli("run", app, "--state-dir", tmp_path, terminal=screen.end) as run:
            assert until(lambda: re.search(r"waiting for the group's rebalance, \d+ s", screen.text()) is not None), screen.text()
            other.close()
            assert until(lambda: "running after" in screen.text()), screen.text()
            run.interrupt()
            assert run.end() == 130
    finally:
        other.close()
        text = " ".join(screen.text().split())  # a terminal breaks long lines
        screen.close()
    seconds = r"(?:\d+\.\d s|\d+ min \d+ s)"
    names = ("imports", "state directory", "topics", "Spark", "plan", "group", "restore")
    assert re.search(rf"running after {seconds} \({', '.join(f'{name} {seconds}' for name in names)}\)", text), text
    assert re.search(r"starting Spark, \d+ s \(imports", text), text
    assert re.search(r"building the plan, \d+ s \(imports", text), text
