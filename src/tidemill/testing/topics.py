"""Topics of a TopologyTestDriver as tests see them: values in, values out (Kafka's TestInputTopic and TestOutputTopic).

``RawRecord`` is a record as it is handed to and taken from the plan: bytes, in the form of JSON text that crosses to the
workers.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import index
from typing import Any

from tidemill.dsl.arguments import required_serde
from tidemill.errors import TopologyError
from tidemill.operators.record import why_no_headers, why_no_timestamp
from tidemill.printable import repr_of
from tidemill.spellings import Spelled
from tidemill.topology.durations import Instant, epoch_milliseconds, milliseconds
from tidemill.topology.naming import legal_name
from tidemill.topology.values import Key, Serde, Value

Headers = tuple[tuple[str, "bytes | None"], ...]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of a topic's only partition."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


def to_json(record: RawRecord) -> list[object]:
    headers = [[name, text(value)] for name, value in record.headers]
    return [record.topic, text(record.key), text(record.value), record.timestamp, headers]


def from_json(row: list[Value]) -> RawRecord:
    topic, key, value, timestamp, headers = row
    return RawRecord(topic, data(key), data(value), timestamp, tuple((name, data(held)) for name, held in headers))


def text(found: bytes | None) -> str | None:
    return None if found is None else base64.b64encode(found).decode()


def data(found: str | None) -> bytes | None:
    return None if found is None else base64.b64decode(found)


Duration = int | timedelta


@dataclass(frozen=True, slots=True)
class TestRecord:
    """A record with its values decoded. ``timestamp`` None: the input topic's own time; one that was read has it in ms."""

    __test__ = False

    key: Key
    value: Value
    timestamp: Instant | None = None
    headers: Headers = ()


_PAIR = 2


class TestInputTopic(Spelled):
    """Writes one topic. Its time begins at ``start`` and moves on by ``advance`` with each record that has no own one.

    Times are ms since the epoch, or a ``datetime`` with a time zone.
    """

    __test__ = False

    def __init__(
        self,
        pipe: Callable[[Sequence[RawRecord]], None],
        topic: str,
        key: Serde,
        value: Serde,
        start: Instant,
        advance: Duration,
    ) -> None:
        self._pipe, self.topic = pipe, topic
        self._key = required_serde(key, f"the key of the topic {topic}")
        self._value = required_serde(value, f"the value of the topic {topic}")
        begins = _in_ms(start, "create_input_topic: start")
        _refuse_if(why_no_timestamp(begins), "create_input_topic: start")
        self._now, self._advance = index(begins), milliseconds(advance, "create_input_topic: advance")

    def advance_time(self, by: Duration) -> None:
        """Moves the topic's own time on."""
        self._now += milliseconds(by, "advance_time")

    def pipe_input(self, key: object, value: object, timestamp: Instant | None = None, headers: Headers = ()) -> None:
        """Writes one record and runs the topology until all that came of it is done."""
        self.pipe_records([TestRecord(key, value, timestamp, headers)])

    def pipe_value(self, value: object, timestamp: Instant | None = None) -> None:
        """A record with a null key."""
        self.pipe_input(None, value, timestamp)

    def pipe_values(self, values: Iterable[object], start: Instant | None = None, advance: Duration = 0) -> None:
        """Several records with a null key, one by one; the times as of ``pipe_key_values``."""
        self.pipe_key_values(((None, value) for value in values), start, advance)

    def pipe_key_values(
        self, pairs: Iterable[tuple[object, object]], start: Instant | None = None, advance: Duration = 0
    ) -> None:
        """Several records, one by one: the first at ``start``, each later one ``advance`` after the one before, and the topic's
        own time stays; without a ``start`` at the topic's own time."""
        pairs = list(pairs)
        _refuse_if(_why_no_pairs(pairs), "pipe_key_values")
        if start is None:
            _refuse_if("expected a start with it, or the topic's own (create_input_topic)" if advance else "", "advance")
            self.pipe_records(TestRecord(key, value) for key, value in pairs)
            return
        first, step = _in_ms(start, "start"), milliseconds(advance, "advance")
        _refuse_if(why_no_timestamp(first), "start")
        self.pipe_records(TestRecord(key, value, first + at * step) for at, (key, value) in enumerate(pairs))

    def pipe_records(self, records: Iterable[TestRecord], batch: int | None = 1) -> None:
        """Writes several records, ``batch`` of them in one micro-batch (None: all).

        One by one gives each record's own result, as Kafka Streams without a cache; in larger batches operators that are computed
        for a whole batch at once (count, reduce, aggregate) send one result for each key.

        Raises:
            TopologyError: what is no TestRecord, timestamp, header or size of a batch. A timestamp below 0 is piped: it is for
                the program to refuse.
        """
        if batch is not None and batch < 1:
            raise TopologyError(f"pipe_records: batch is {batch}, expected a number of records from 1 on, or None for all in one")
        given = list(records)
        _refuse_if(_why_no_records(given), "pipe_records")
        raw = [self._raw(record) for record in given]
        size = max(len(raw), 1) if batch is None else batch
        for at in range(0, len(raw), size):
            self._pipe(raw[at : at + size])

    def _raw(self, record: TestRecord) -> RawRecord:
        if record.timestamp is None:
            record = replace(record, timestamp=self._now)
            self._now += self._advance
        given: Any = _in_ms(record.timestamp, f"a record for {self.topic}")
        if not (isinstance(given, int) and given < 0):
            _refuse_if(why_no_timestamp(given), f"a record for {self.topic}")
        headers = record.headers or ()  # None, as a test may write it, is none
        _refuse_if(why_no_headers(headers), f"a record for {self.topic}")
        return RawRecord(
            self.topic, self._key.serialize(record.key), self._value.serialize(record.value), index(given), headers
        )


def _why_no_pairs(pairs: Sequence[object]) -> str:
    bad = [each for each in pairs if not isinstance(each, (tuple, list)) or len(each) != _PAIR]
    return f"expected pairs (key, value), got {repr_of(bad[0])}; of a dict give its items()" if bad else ""


def _why_no_records(records: Sequence[object]) -> str:
    bad = [each for each in records if not isinstance(each, TestRecord)]
    return f"expected TestRecord(key, value), got {repr_of(bad[0])}; pairs are for pipe_key_values" if bad else ""


def _in_ms(time: Any, what: str) -> Any:
    """A ``datetime`` as a timestamp; anything else as it is."""
    return epoch_milliseconds(time, what) if isinstance(time, datetime) else time


def _refuse_if(problem: str, where: str) -> None:
    if problem:
        raise TopologyError(f"{where}: {problem}")


class TestOutputTopic(Spelled):
    """Reads one topic, from where it was last read."""

    __test__ = False

    def __init__(self, written: list[RawRecord], topic: str, key: Serde, value: Serde) -> None:
        self._written, self.topic = written, legal_name(topic, "a topic")
        self._key = required_serde(key, f"the key of the topic {topic}")
        self._value = required_serde(value, f"the value of the topic {topic}")
        self._at = 0

    @property
    def queue_size(self) -> int:
        """Number of records that wait to be read."""
        return len(self._written) - self._at

    @property
    def is_empty(self) -> bool:
        """True if all records were read."""
        return self.queue_size == 0

    def read_record(self) -> TestRecord:
        """The next record.

        Raises:
            TopologyError: there is none.
        """
        if self.is_empty:
            raise TopologyError(f"the topic {self.topic} has no record that was not read yet; {self._at} were read before")
        found = self._written[self._at]
        self._at += 1
        return TestRecord(self._key.deserialize(found.key), self._value.deserialize(found.value), found.timestamp, found.headers)

    def read_key_value(self) -> tuple[Key, Value]:
        """Key and value of the next record; TopologyError if there is none."""
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> Value:
        """The value of the next record; TopologyError if there is none."""
        return self.read_record().value

    def read_values(self) -> list[Value]:
        """The values of all that wait, in order."""
        return [record.value for record in self.read_records()]

    def read_records(self) -> list[TestRecord]:
        """All that wait."""
        return [self.read_record() for _ in range(self.queue_size)]

    def read_key_values(self) -> list[tuple[Key, Value]]:
        """Keys and values of all that wait, in order."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_key_values_to_dict(self) -> dict[Key, Value]:
        """The last value of each key that waits; None of one that was deleted, unlike one that nothing was sent of.

        Raises:
            TopologyError: a record has no key, as in Kafka Streams; then none is taken for read.
        """
        begin = self._at
        found = self.read_key_values()
        if any(key is None for key, _ in found):
            self._at = begin
            raise TopologyError(f"the topic {self.topic} has a record without a key, and can be no dict; use read_key_values")
        return dict(found)
