"""Plain consumers in a group: how long a newcomer waits for its first record, and which commit style processes records twice.

    make experiment-duplicates                      # or: .venv/bin/python experiments/duplicates.py [--folder DIR]

Measures what an article on Kafka's consumer says (when does a rebalance happen, why does a newcomer get nothing at first, which
commits make duplicates) on consumers of Tidemill's own group client, eager as in the article's version of Kafka and cooperative
as today. Each consumer is a process of its own; a crash is a SIGKILL half-way through the records of a poll.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer
from console import Report, run
from consumer_group import ConsumerGroup, ConsumerProcess, missing, repeated
from instances import ExperimentError, Scene, until
from plain_consumer import CommitStyle

from tidemill.ids import TopicPartition

NEWCOMERS, EAGER, COOPERATIVE = TOPICS = ("newcomers", "eager", "cooperative")
"""A topic for each part: a group that begins with a backlog is busy with other things."""

PARTITIONS = 6
RECORDS_PER_S = 120.0
STEADY_S = 3.0
LIMIT_S = 90.0
LONG_WORK_S = 3.0
"""Long against a rebalance among those who poll."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Plain consumers: a newcomer's delay, and duplicates by commit style.")
    parser.add_argument(
        "--folder", type=Path, default=Path("/tmp/tidemill-experiment-duplicates"), help="the consumers' logs; emptied first"
    )
    report = Report("Plain consumers: a newcomer's delay, and duplicates by commit style")
    folder: Path = parser.parse_args().folder
    with Scene(folder, topics=dict.fromkeys(TOPICS, PARTITIONS)) as scene:
        _newcomers(report, scene)
        for eager in (True, False):
            _duplicates(report, scene, eager)
    return report.end()


# --- a newcomer's delay ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """A group of a slow and a quick consumer that a third one joins. ``dropped_after_s``: max.poll.interval.ms."""

    name: str
    eager: bool
    busy_s: float
    dropped_after_s: float = 300.0

    @property
    def label(self) -> str:
        return "eager" if self.eager else "cooperative"


_CASES = (
    *(_Case(f"eager-{busy_s}", True, busy_s) for busy_s in (1.0, 5.0)),
    *(_Case(f"cooperative-{busy_s}", False, busy_s) for busy_s in (1.0, 5.0)),
    _Case("eager-dropped", True, 9.0, dropped_after_s=4.0),
)


def _newcomers(report: Report, scene: Scene) -> None:
    report.headline("A. A newcomer's first record")
    report.say(
        f"{len(_CASES)} groups of two consumers, of which one works for some seconds after the records of each poll; a third one "
        f"joins when it has just begun to. {PARTITIONS} partitions, {RECORDS_PER_S:.0f} records a second."
    )
    groups = {case: ConsumerGroup(scene, NEWCOMERS, CommitStyle.SYNC, case.eager, f"newcomer-{case.name}") for case in _CASES}
    with _ended(list(groups.values())), ExitStack() as flowing:
        slow: dict[_Case, ConsumerProcess] = {}
        with report.step("two consumers in each group start"):
            for case, group in groups.items():
                limit_ms = int(case.dropped_after_s * 1_000)
                slow[case] = group.start("slow", busy_s=case.busy_s, max_poll_interval_ms=limit_ms)
                group.start("quick")
            for group in groups.values():
                group.wait_assigned("slow", "quick")
            flowing.enter_context(_records(scene, NEWCOMERS))
            for group in groups.values():
                group.wait_processing("slow", "quick")
            time.sleep(STEADY_S)
        with report.step("a newcomer joins each"):
            joining = [
                threading.Thread(target=_join_a_busy_group, args=(group, slow[case], case), daemon=True)
                for case, group in groups.items()
            ]
            for thread in joining:
                thread.start()
            for thread in joining:
                thread.join(LIMIT_S)
        seen = [(case, _seen(groups[case], slow[case])) for case in _CASES]
    _show_newcomers(report, seen)
    _show_threads(report, list(groups.values()))


def _join_a_busy_group(group: ConsumerGroup, slow: ConsumerProcess, case: _Case) -> None:
    """The newcomer's process is made first, since its start takes as long as some consumers' work."""
    since = time.time()
    until(lambda: _polls(slow, since) != [], "the slow consumer to begin its work", LIMIT_S, pause_s=0.02)
    group.start("newcomer")
    group.wait_processing("newcomer")
    deadline = time.monotonic() + case.busy_s + 3
    while time.monotonic() < deadline:
        time.sleep(0.1)


def _polls(consumer: ConsumerProcess, since_s: float) -> list[float]:
    return [line.at_s for line in consumer.log.lines if line.kind == "P" and line.at_s >= since_s and line.rest != "0"]


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """Seconds after the newcomer asked to join. ``polls``: of the slow consumer's next poll; None if it was dropped first."""

    polls: float | None
    first: float
    all: float
    lost: bool


def _seen(group: ConsumerGroup, slow: ConsumerProcess) -> _Newcomer:
    newcomer = group["newcomer"]
    asked, first = newcomer.log.first("J"), newcomer.log.first("R")
    if asked is None or first is None:
        raise ExperimentError(f"the newcomer of {group.name} got nothing: {newcomer.problem()}")
    # A poll that found records has returned just now; the one before it was called when the work was over.
    revoked = slow.log.first("V", asked.at_s) or slow.log.first("L", asked.at_s)
    by_partition: dict[int, float] = {}
    for record in newcomer.log.processed:
        by_partition.setdefault(record.partition, record.at_s)
    return _Newcomer(
        polls=None if revoked is None or revoked.kind == "L" else revoked.at_s - asked.at_s,
        first=first.at_s - asked.at_s,
        all=max(by_partition.values()) - asked.at_s,
        lost=slow.log.first("L", asked.at_s) is not None,
    )


def _show_newcomers(report: Report, seen: Sequence[tuple[_Case, _Newcomer]]) -> None:
    rows = []
    for case, new in seen:
        limit = "" if case.dropped_after_s > case.busy_s else f", max.poll.interval.ms {case.dropped_after_s * 1e3:.0f}"
        polls = f"{new.polls:.2f}" if new.polls is not None else ("dropped" if new.lost else "-")
        rows.append((f"{case.label}: one works {case.busy_s:.0f} s{limit}", polls, f"{new.first:.2f}", f"{new.all:.2f}"))
    columns = ("group", "the slow one's next poll", "newcomer's first record", "of its last partition")
    report.table("Seconds after the newcomer asked to join", columns, rows)
    for case, new in seen:
        if case.dropped_after_s < case.busy_s:
            report.must(
                new.lost and new.first < case.busy_s - 2,
                f"a consumer that doesn't poll is dropped after max.poll.interval.ms: the newcomer waits {new.first:.1f} s, not "
                f"{case.busy_s:.0f}",
            )
        elif case.eager:
            report.must(
                new.polls is not None and new.first > new.polls,
                f"eager, {case.busy_s:.0f} s of work: nothing for the newcomer before every consumer has polled again",
            )
        elif new.polls is not None:
            report.must(
                new.all > new.polls, f"cooperative, {case.busy_s:.0f} s of work: the slow one's partition comes after its poll"
            )
            if case.busy_s >= LONG_WORK_S:
                report.must(
                    new.first < new.polls,
                    f"cooperative, {case.busy_s:.0f} s of work: the quick one's partition doesn't wait for the slow one",
                )


def _show_threads(report: Report, groups: Sequence[ConsumerGroup]) -> None:
    """The listener's thread against the one that subscribed and polls."""
    found = {line.rest.split(" ")[0] for group in groups for log in group.logs for line in log.lines if line.kind in "AV"}
    polling = {line.rest for group in groups for log in group.logs for line in log.lines if line.kind == "J"}
    report.must(found == polling, f"the listener is called by the thread that polls: {', '.join(sorted(found))}")


# --- duplicates --------------------------------------------------------------------------------------------------------


_ARTICLE = {
    CommitStyle.AUTO: ("none", "none", "since the last commit"),
    CommitStyle.SYNC: ("none", "none", "since the last commit"),
    CommitStyle.SYNC_EACH: ("none", "none", "since the last commit"),
    CommitStyle.ASYNC: ("not guaranteed", "not guaranteed", "since the last commit"),
    CommitStyle.ASYNC_LATE: ("possible", "possible", "since the last commit"),
    CommitStyle.ASYNC_REVOKED: ("none", "none", "since the last commit"),
}
_EVENTS = ("join", "leave", "crash")
_MAY_REPEAT = {CommitStyle.ASYNC, CommitStyle.ASYNC_LATE}


@dataclass(frozen=True, slots=True)
class _Counted:
    """By event, in their order. Of the crashed one: records that it had processed and that were processed again, and those that
    it had processed and not committed."""

    duplicates: tuple[int, ...]
    of_the_crashed: int
    uncommitted: int
    missing: int


def _duplicates(report: Report, scene: Scene, eager: bool) -> None:
    label = EAGER if eager else COOPERATIVE
    report.headline(f"{'B' if eager else 'C'}. Records processed twice, {label}")
    groups = {style: ConsumerGroup(scene, label, style, eager, f"{label}-{style.name.lower()}") for style in CommitStyle}
    everyone = list(groups.values())
    with _ended(everyone), ExitStack() as flowing:
        with report.step("a consumer in each of six groups starts"):
            for group in everyone:
                group.start("first")
            for group in everyone:
                group.wait_assigned("first")
            stop_records = flowing.enter_context(_records(scene, label))
            _settled(everyone, "first")
        moments = [time.time()]
        with report.step("a second joins each"):
            for group in everyone:
                group.start("second")
            _settled(everyone, "first", "second")
        moments.append(time.time())
        with report.step("the first leaves each"):
            for group in everyone:
                group["first"].leave()
            for group in everyone:
                group["first"].wait_ended()
            _settled(everyone, "second")
        moments.append(time.time())
        with report.step("a third joins each"):
            for group in everyone:
                group.start("third")
            _settled(everyone, "second", "third")
        moments.append(time.time())
        with report.step("the third is killed, and its session ends"):
            for group in everyone:
                group["third"].crash()
            for group in everyone:
                group["third"].wait_ended()
            time.sleep(group["third"].settings.session_timeout_ms / 1e3)
            _settled(everyone, "second")
        stop_records()
        ends = {tp.partition: end for tp, end in scene.admin.end_offsets(_partitions(label)).items()}
        with report.step("the last one works off what is left"):
            until(lambda: sum(missing(group.logs, ends) for group in everyone) == 0, "all to be processed", LIMIT_S, pause_s=0.5)
        time.sleep(1)
    counted = {style: _counted(group, [*moments, time.time()], ends) for style, group in groups.items()}
    _show_duplicates(report, label, counted)


def _counted(group: ConsumerGroup, moments: Sequence[float], ends: dict[int, int]) -> _Counted:
    """``moments``: when each of the four events began, and the end."""
    joined, left, joined_again, crashed = (repeated(group.logs, *span) for span in pairwise(moments))
    crashed_one = group["third"].log
    return _Counted(
        duplicates=(joined + joined_again, left, crashed),
        of_the_crashed=repeated(group.logs, moments[-2], moments[-1], crashed_one),
        uncommitted=crashed_one.uncommitted,
        missing=missing(group.logs, ends),
    )


def _settled(groups: Sequence[ConsumerGroup], *names: str) -> None:
    """Until these consumers have processed records from now on, and for a while."""
    since_s = time.time()
    for group in groups:
        group.wait_processing(*names, since_s=since_s)
    time.sleep(STEADY_S)


def _show_duplicates(report: Report, label: str, counted: dict[CommitStyle, _Counted]) -> None:
    rows: list[tuple[object, ...]] = []
    for style, found in counted.items():
        cells = [f"{said}: {measured}" for said, measured in zip(_ARTICLE[style], found.duplicates, strict=True)]
        rows.append((style.value, *cells, found.uncommitted))
    columns = ("commit", *(f"{event} (article: measured)" for event in _EVENTS), "processed, not committed at the crash")
    report.table(f"Records processed again, {label}", columns, rows, left=4)
    for style, found in counted.items():
        by_rebalance = sum(found.duplicates[:2])
        if style not in _MAY_REPEAT:
            report.must(by_rebalance == 0, f"{style.value}: {by_rebalance} duplicates by join and leave")
        report.must(
            found.of_the_crashed <= found.uncommitted,
            f"{style.value}: {found.of_the_crashed} records of the crashed one again, {found.uncommitted} had not been committed",
        )
    late = sum(counted[CommitStyle.ASYNC_LATE].duplicates[:2])
    report.must(late > 0, f"{CommitStyle.ASYNC_LATE.value}: {late} duplicates by join and leave: the commit came after JoinGroup")
    left_out = sum(found.missing for found in counted.values())
    report.must(left_out == 0, f"{left_out} records were processed by nobody")


# --- records -----------------------------------------------------------------------------------------------------------


@contextmanager
def _records(scene: Scene, topic: str) -> Iterator[Callable[[], None]]:
    """They come evenly over all partitions until the block ends or what it is given is called."""
    ends = threading.Event()
    producer = Producer({"bootstrap.servers": scene.servers, "linger.ms": 1, "log_level": 0})

    def produce() -> None:
        began, sent = time.monotonic(), 0
        while not ends.wait(0.01):
            for number in range(sent, int((time.monotonic() - began) * RECORDS_PER_S)):
                producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
                sent += 1
            producer.poll(0)

    thread = threading.Thread(target=produce, name="records", daemon=True)

    def stop() -> None:
        ends.set()
        thread.join(10)
        if producer.flush(30):
            raise ExperimentError(f"not all records could be sent to {topic} within 30 s")

    thread.start()
    try:
        yield stop
    finally:
        stop()


@contextmanager
def _ended(groups: Sequence[ConsumerGroup]) -> Iterator[None]:
    try:
        yield
    finally:
        for group in groups:
            group.end()


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


if __name__ == "__main__":
    sys.exit(run(main))
