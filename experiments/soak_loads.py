"""What the instances of a soak do, and what must have come of it: LOADS.

    load = LOADS["exactly_once_v2"]["windows"](servers, seed); load.feed.start(); ...; load.done >= load.sent
    load.finish(); load.judge(report); load.close()

The word count is judged by a count of the words that were sent; the program of windows and joins (soak_program) by what a
TopologyTestDriver makes of each partition's records: the same records, or, at least once, no less than they say.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import soak_program
from console import Report
from instances import INPUT, OUTPUT, WORDCOUNT, until
from soak_program import ADDED, EVENTS, EXACT, FOREIGN, JITTER_MS, KEYS, RECENT, RUNNING, SUMMED, foreign_key
from traffic import CommittedReader, Counts, Feed, SteadyProducer

from tidemill import Serdes
from tidemill.testing import TestRecord, TopologyTestDriver

PARTITIONS = 4
LINES_PER_S = EVENTS_PER_S = 40.0
QUIET_S = 3.0
_FIRST_MS = 1_700_000_000_000
_STEP_MS = 100
_CLOSING_MS = 60_000
_PIPED_AT_ONCE = 500

Written = tuple[str, bytes | None, int]
"""Key, value and timestamp of a record."""


class Load(Protocol):
    """``done`` of what was ``sent`` has come out; ``finish`` waits for all of it."""

    program: Path
    topics: Mapping[str, int]
    tasks: int

    @property
    def feed(self) -> SteadyProducer: ...

    @property
    def sent(self) -> int: ...

    @property
    def done(self) -> int: ...

    def finish(self) -> None: ...

    def judge(self, report: Report) -> None: ...

    def close(self) -> None: ...


class WordCount:
    """Every word is counted once."""

    program = WORDCOUNT
    topics: Mapping[str, int] = {INPUT: 6, OUTPUT: 6}
    tasks = 12

    def __init__(self, servers: str, seed: int) -> None:
        self.feed = Feed(servers, INPUT, partitions=self.topics[INPUT], seed=seed, lines_per_s=LINES_PER_S)
        self._counts = Counts(servers, OUTPUT, partitions=self.topics[OUTPUT])

    @property
    def sent(self) -> int:
        return self.feed.total

    @property
    def done(self) -> int:
        return self._counts.total

    def finish(self) -> None:
        self.feed.stop()
        self._counts.wait_total(self.sent)
        self._counts.settle(QUIET_S)

    def judge(self, report: Report) -> None:
        exactness = self._counts.exactness(self.feed.expected)
        report.must(exactness.is_exact and not exactness.not_rising, f"counts {exactness}; {exactness.not_rising} not rising")

    def close(self) -> None:
        self._counts.close()


class Windows:
    """Every record of soak_program's topics is there once, as if nothing had happened to the group."""

    program = Path(soak_program.__file__)
    topics: Mapping[str, int] = dict.fromkeys((EVENTS, FOREIGN, ADDED, *EXACT), PARTITIONS)
    tasks = 2 * PARTITIONS

    def __init__(self, servers: str, seed: int) -> None:
        self.feed = Events(servers, seed)
        self._written = WrittenRecords(servers, self.topics)

    @property
    def sent(self) -> int:
        return self.feed.records

    @property
    def done(self) -> int:
        return len({_number(value) for _, value, _ in self._written.of(RUNNING)})

    def finish(self) -> None:
        self.feed.stop()
        self.feed.close_windows()
        until(lambda: self.done >= self.sent, f"{self.sent} events to come out")
        self._written.settle(QUIET_S)

    def judge(self, report: Report) -> None:
        expected: dict[str, Counter[Written]] = {topic: Counter() for topic in EXACT}
        for number in range(PARTITIONS):
            for topic, records in replayed(self._written.partition(EVENTS, number)).items():
                expected[topic].update(records)
        for topic in EXACT:
            self.judge_topic(report, topic, Counter(self._written.of(topic)), expected[topic])
        wanted = foreign_rows(self._written.of(EVENTS))
        found_rows = last_values(self._written.of(FOREIGN))
        report.must(found_rows == wanted, f"{FOREIGN}: {difference(Counter(found_rows.items()), Counter(wanted.items()))}")
        self.judge_sums(report, sums(self._written.of(ADDED)), added(self._written.of(EVENTS)))

    def judge_sums(self, report: Report, found: Counter[str], expected: Counter[str]) -> None:
        differ = sorted(key for key in found | expected if found[key] != expected[key])
        report.must(not differ, f"{ADDED}: sums of {len(expected)} keys, of which these are wrong: {differ}")

    def judge_topic(self, report: Report, topic: str, found: Counter[Written], expected: Counter[Written]) -> None:
        report.must(found == expected, f"{topic}: {difference(found, expected)}")

    def close(self) -> None:
        self._written.close()


class WindowsAtLeastOnce(Windows):
    """Every record of soak_program's topics is there, or one that says more."""

    def judge_topic(self, report: Report, topic: str, found: Counter[Written], expected: Counter[Written]) -> None:
        missing = lacking(topic, found, expected)
        counted = f"{expected.total()} records were to come, {found.total()} came"
        report.must(not missing, f"{topic}: {counted}, {len(missing)} are missing{f', e.g. {missing[:3]}' if missing else ''}")

    def judge_sums(self, report: Report, found: Counter[str], expected: Counter[str]) -> None:
        report.must(found >= expected, f"{ADDED}: sums of {len(expected)} keys, none of them too low: {found >= expected}")


LOADS: Mapping[str, Mapping[str, type[WordCount] | type[Windows]]] = {
    "exactly_once_v2": {"wordcount": WordCount, "windows": Windows},
    "at_least_once": {"windows": WindowsAtLeastOnce},
}
"""By guarantee and program. Counts that are too high don't say what has come out: at least once, the word count has no judge."""


class Events(SteadyProducer):
    """Numbers with keys by chance, and timestamps that are up to JITTER_MS late."""

    def __init__(self, servers: str, seed: int) -> None:
        super().__init__(servers, EVENTS_PER_S)
        self._random = random.Random(seed)

    def send_next(self) -> None:
        key, value, at_ms = event(self.records, self._random)
        self.produce(EVENTS, value, key=key, timestamp=at_ms)

    def close_windows(self) -> None:
        """A record of each key, later than the end of every window and grace period so far."""
        for number in range(KEYS):
            at_ms = _FIRST_MS + self.records * _STEP_MS + _CLOSING_MS
            self.produce(EVENTS, str(self.records), key=f"k{number}", timestamp=at_ms)
        self.stop()


def event(number: int, drawn: random.Random) -> tuple[str, str, int]:
    """Key, value and timestamp of that record."""
    return f"k{drawn.randrange(KEYS)}", str(number), _FIRST_MS + number * _STEP_MS - drawn.randrange(JITTER_MS)


class WrittenRecords(CommittedReader):
    """All committed records of the topics, each partition in its order."""

    def __init__(self, servers: str, topics: Mapping[str, int]) -> None:
        self._partitions = {(topic, number): list[Written]() for topic, count in topics.items() for number in range(count)}
        super().__init__(servers, topics)

    def take(self, message: Any, _now: float, /) -> None:
        record = message.key().decode(), message.value(), message.timestamp()[1]
        self._partitions[message.topic(), message.partition()].append(record)

    def partition(self, topic: str, number: int) -> list[Written]:
        return self._partitions[topic, number]

    def of(self, topic: str) -> list[Written]:
        return [record for (name, _), records in self._partitions.items() if name == topic for record in records]


def replayed(records: Sequence[Written], at_once: int = _PIPED_AT_ONCE) -> Mapping[str, list[Written]]:
    """What the program makes of one partition's records, by topic of EXACT."""
    text, raw = Serdes.string(), Serdes.bytes()
    with TopologyTestDriver(soak_program.builder, soak_program.config) as driver:
        events = driver.create_input_topic(EVENTS, text, raw)
        events.pipe_records((TestRecord(key, value, at_ms) for key, value, at_ms in records), at_once)
        return {
            topic: [
                (got.key, got.value, cast(int, got.timestamp))
                for got in driver.create_output_topic(topic, text, raw).read_records()
            ]
            for topic in EXACT
        }


def lacking(topic: str, found: Iterable[Written], expected: Iterable[Written]) -> list[Written]:
    """The expected records of a topic of EXACT that no record found says as much as: what came again only adds to a result."""
    amounts: dict[Hashable, list[Any]] = {}
    for record in found:
        about, amount = said_by(topic, record)
        amounts.setdefault(about, []).append(amount)
    claims = [(record, *said_by(topic, record)) for record in expected]
    return sorted(
        record for record, about, amount in claims if all(not other >= amount for other in amounts.get(about, ()))
    )


def said_by(topic: str, record: Written) -> tuple[Hashable, Any]:
    """What a record is about, and how much it says of it: >= compares it with what another one says."""
    key, value, _ = record
    if topic in SUMMED:
        return key, int.from_bytes(value or b"", "big")
    if topic == RUNNING:
        number, count, _ = (value or b"").decode().split()
        return number, int(count)
    if topic == RECENT:
        number, *seen = (value or b"").decode().split()
        return number, frozenset(seen)
    return record, 0


def _number(value: bytes | None) -> bytes:
    """The number of the event that a record of RUNNING is about."""
    return (value or b"").partition(b":")[0]


def last_values(records: Sequence[Written]) -> dict[str, bytes]:
    """By key; without those whose last value is null."""
    return {key: value for key, value in {key: value for key, value, _ in records}.items() if value is not None}


def sums(records: Sequence[Written]) -> Counter[str]:
    """By key: the last number of a topic of numbers."""
    return Counter({key: int.from_bytes(value, "big") for key, value in last_values(records).items()})


def added(events: Sequence[Written]) -> Counter[str]:
    """By key: the sum of all numbers."""
    expected = Counter[str]()
    for key, value, _ in events:
        expected[key] += int(value or b"")
    return expected


def foreign_rows(events: Sequence[Written]) -> dict[str, bytes]:
    """The rows of the join by foreign key in the end, of the last even and the last odd number of each key."""
    even = last_values([event for event in events if int(event[1] or b"") % 2 == 0])
    odd = last_values([event for event in events if int(event[1] or b"") % 2 == 1])
    keys = {key: foreign_key(value.decode()) for key, value in even.items()}
    return {key: value + b" " + odd[keys[key]] for key, value in even.items() if keys[key] in odd}


def difference(found: Counter[Any], expected: Counter[Any]) -> str:
    """For a report: how many, or what is wrong."""
    if found == expected:
        return f"{found.total()} records, all as expected"
    missing, extra = expected - found, found - expected
    examples = f"e.g. missing {sorted(missing, key=repr)[:3]}, not expected {sorted(extra, key=repr)[:3]}"
    return f"WRONG: {missing.total()} of {expected.total()} records missing, {extra.total()} not expected, {examples}"
