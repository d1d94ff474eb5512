"""The Processor API: stores of every kind, global stores, forwarding to one child, transformers that are asked for rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest

from tests.operators.harness import Run, start
from tests.operators.step_harness import StepRun
from tidemill import Materialized, Serdes, StreamsBuilder, TimeWindows
from tidemill.dsl.functions import per_record
from tidemill.dsl.processor_topology import TopologyBuilder
from tidemill.dsl.stores import Stores
from tidemill.errors import RecordError, SerdeError, StopError
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.punctuation import Punctuations, first_from
from tidemill.operators.record import Record
from tidemill.topology.nodes import Store
from tidemill.topology.values import ValueAndTimestamp
from tidemill.topology.windows import Windowed

STRING, LONG = Serdes.string(), Serdes.long()


class _Calls:
    """A processor that does with one store what the test says."""

    def __init__(self, store: str, call: Callable[[Any, Record], Any]) -> None:
        self.store, self.call = store, call

    def init(self, context: ProcessorContext) -> None:
        self.context, self.kept = context, context.store(self.store)

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(repr(self.call(self.kept, record))))


def using(store: Store, call: Callable[[Any, Record], Any]) -> Run:
    builder = StreamsBuilder()
    builder.add_state_store(store)
    builder.stream("in").process(lambda: _Calls(store.name, call), store.name, name="calls").to("out", value=STRING)
    return start(builder.build())


def pipe(run: Run, *records: tuple[str, str | None, int], topic: str = "in") -> list[Any]:
    """The values that came out; texts of Python values are read back."""
    run.written.clear()
    for at, (key, value, timestamp) in enumerate(records):
        run.pipe(at, topic, key.encode(), None if value is None else value.encode(), timestamp, (("h", b"1"),))
    return [eval(value) for _topic, _key, value, *_rest in run.written if value is not None]


def test_a_context_has_the_stream_s_time_and_the_wall_clock() -> None:
    class Times:
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record) -> None:
            times = self.context.current_stream_time_ms, self.context.current_system_time_ms
            self.context.forward(record.with_value(repr(times)))

    builder = StreamsBuilder()
    builder.stream("in", value=STRING).process(Times).to("out", value=STRING)
    run = start(builder.build(), wall_clock=1_000)
    assert pipe(run, ("k", "a", 50), ("k", "b", 20)) == [(50, 1_000), (50, 1_000)]
    run.graph.wall_clock = 1_500
    assert pipe(run, ("k", "c", 60)) == [(60, 1_500)]


def test_a_plain_store_logs_with_the_record_s_timestamp() -> None:
    run = using(Stores.key_value_store("s"), lambda s, r: (s.put_if_absent(r.key, r.value), s.delete("x"), list(s.all())))
    assert pipe(run, ("k", "a", 5), ("k", "b", 3)) == [(None, None, [("k", "a")]), ("a", None, [("k", "a")])]
    assert [entry[1:4] for entry in run.logged] == [(b"k", b"a", 5), (b"x", None, 5), (b"x", None, 3)]


def test_ranges_include_both_ends_and_prefixes_are_of_bytes() -> None:
    def calls(s: Any, r: Record) -> Any:
        s.put(r.key, r.value)
        found = s.range("b", "c"), s.range("b", "c", reverse=True), s.range(high="a"), s.prefix_scan("b", STRING)
        found += (s.prefix_scan("b", STRING, reverse=True),)
        return [[key for key, _ in rows] for rows in found]

    run = using(Stores.key_value_store("s"), calls)
    assert pipe(run, ("a", "1", 1), ("b", "1", 1), ("bb", "1", 1), ("c", "1", 1), ("d", "1", 1))[-1] == [
        ["b", "bb", "c"], ["c", "bb", "b"], ["a"], ["b", "bb"], ["bb", "b"],
    ]


def test_a_timestamped_store_logs_the_value_s_timestamp_and_deletes_with_the_record_s() -> None:
    run = using(
        Stores.timestamped_key_value_store("s"),
        lambda s, r: (s.put(r.key, r.value, 77) if r.value else s.delete(r.key), s.get(r.key)),
    )
    assert pipe(run, ("k", "a", 5), ("k", None, 6)) == [(None, ("a", 77)), (("a", 77), None)]
    assert [entry[1:4] for entry in run.logged] == [(b"k", b"a", 77), (b"k", None, 6)]


def test_a_timestamped_store_takes_a_value_with_its_timestamp_as_java_s_does() -> None:
    def calls(s: Any, r: Record) -> Any:
        s.put("k", ValueAndTimestamp(r.value, 77))
        before = s.put_if_absent("k", ValueAndTimestamp("other", 1)), s.put_if_absent("l", ValueAndTimestamp("b", 78))
        return before, list(s.all()), s.put("k", ValueAndTimestamp(None, 79)), s.get("k")

    run = using(Stores.timestamped_key_value_store("s"), calls)
    assert pipe(run, ("k", "a", 5)) == [((("a", 77), None), [("k", ("a", 77)), ("l", ("b", 78))], None, None)]
    assert [entry[1:4] for entry in run.logged] == [(b"k", b"a", 77), (b"l", b"b", 78), (b"k", None, 5)]


def test_a_timestamped_window_store_takes_a_value_with_its_timestamp() -> None:
    store = Stores.window_store("s", 1000, 100, timestamped=True)
    run = using(store, lambda s, r: (s.put("k", ValueAndTimestamp(r.value, 77), 40), s.fetch("k", 40)))
    assert pipe(run, ("k", "a", 50)) == [(None, ("a", 77))]


JSON = Serdes.json()
READS_OF_TIMESTAMPED: dict[str, tuple[Store, Callable[[Any], None], Callable[[Any], list[Any]]]] = {
    "key-value": (
        Stores.timestamped_key_value_store("s", key=STRING, value=JSON),
        lambda s: s.put("k", {"a": 1}, 77),
        lambda s: [
            s.get("k"), next(s.all())[1], next(s.range("k", "k"))[1], next(s.prefix_scan("k", STRING))[1],
            s.put_if_absent("k", 0), s.delete("k"),
        ],
    ),
    "window": (
        Stores.window_store("s", 1000, 100, timestamped=True, key=STRING, value=JSON),
        lambda s: s.put("k", {"a": 1}, 40, 77),
        lambda s: [
            s.fetch("k", 40), next(s.fetch_range("k", 0, 90))[1], next(s.fetch_all(0, 90))[1], next(s.fetch_keys("k", "k"))[1],
            next(s.all(reverse=True))[1],
        ],
    ),
    "versioned": (
        Stores.versioned_key_value_store("s", 1000, key=STRING, value=JSON),
        lambda s: s.put("k", {"a": 1}, 77),
        lambda s: [s.get("k"), s.get_as_of("k", 80), s.history("k", 0, 80)[0], s.delete("k", 80)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", READS_OF_TIMESTAMPED)
def test_each_read_of_a_store_with_times_gives_value_and_timestamp_by_name(kind: str) -> None:
    store, put, reads = READS_OF_TIMESTAMPED[kind]

    def calls(s: Any, _r: Record) -> Any:
        put(s)
        return [(found.value, found.timestamp_ms) for found in reads(s)]

    [found] = pipe(using(store, calls), ("k", "", 50))
    assert found == [({"a": 1}, 77)] * len(found)


def test_what_a_timestamped_store_gave_can_be_put_back() -> None:
    """With JSON a tuple is a value, too: the list of it would have been stored."""

    def calls(s: Any, _r: Record) -> Any:
        s.put("k", {"a": 1}, 77)
        s.put("l", s.get("k"))
        s.put_all([("m", s.get("k")), ("n", s.get("l"))])
        with pytest.raises(ValueError, match="null"):
            s.put_all([("o", s.get("k")), (None, s.get("l"))])
        return list(s.all())

    found = pipe(using(Stores.timestamped_key_value_store("s", key=STRING, value=JSON), calls), ("k", "", 50))
    assert found == [[(key, ({"a": 1}, 77)) for key in "klmn"]]


@pytest.mark.parametrize("store", [Stores.key_value_store("s"), Stores.timestamped_key_value_store("s")])
def test_the_number_of_keys_is_as_of_the_last_write(store: Store) -> None:
    def calls(s: Any, r: Record) -> int:
        s.put(r.key, r.value)
        return int(s.approximate_num_entries)

    assert pipe(using(store, calls), ("k", "a", 5), ("k", "b", 6), ("l", "c", 7), ("k", None, 8)) == [1, 1, 2, 1]


@pytest.mark.parametrize("store", [Stores.key_value_store("s"), Stores.timestamped_key_value_store("s")])
def test_a_key_of_none_is_an_error_in_reads_too(store: Store) -> None:
    def calls(s: Any, r: Record) -> Any:
        for call in (s.get, s.delete, lambda key: s.put(key, "v"), lambda key: s.put_if_absent(key, "v")):
            with pytest.raises(ValueError, match="a key-value store has no null keys"):
                call(None)
        return list(s.all())

    assert pipe(using(store, calls), ("k", "a", 5)) == [[]]


@pytest.mark.parametrize(("store", "asked", "said"), [
    (Stores.key_value_store("s"), "prefixScan", ": write prefix_scan$"),
    (
        Stores.key_value_store("s"), "flush",
        "; it has all, approximate_num_entries, delete, get, prefix_scan, put, put_all, put_if_absent, range$",
    ),
    (Stores.timestamped_key_value_store("s"), "reverseRange", r": write range\(low, high, reverse=True\)$"),
    (Stores.window_store("s", 10, 10), "fetchAll", ": write fetch_all$"),
    (Stores.session_store("s", 10), "findSessions", ": write find_sessions$"),
    (Stores.versioned_key_value_store("s", 10), "getAsOf", ": write get_as_of$"),
])
def test_a_name_that_a_store_lacks_is_answered_with_its_reads_too(store: Store, asked: str, said: str) -> None:
    def calls(s: Any, r: Record) -> Any:
        with pytest.raises(AttributeError, match=said):
            getattr(s, asked)

    assert pipe(using(store, calls), ("k", "a", 5)) == [None]


@pytest.mark.parametrize(("bad", "said"), [((None, "v"), "no null keys"), (("z", 7), "expected str")])
def test_put_all_writes_all_entries_or_none(bad: tuple[Any, Any], said: str) -> None:
    def calls(s: Any, r: Record) -> Any:
        with pytest.raises((ValueError, SerdeError), match=said):
            s.put_all([("a", "1"), ("b", "2"), bad])
        before = list(s.all())
        s.put_all((key, r.value) for key in "ab")
        return before, list(s.all())

    run = using(Stores.key_value_store("s"), calls)
    assert pipe(run, ("k", "v", 5)) == [([], [("a", "v"), ("b", "v")])]
    assert [entry[1:4] for entry in run.logged] == [(b"a", b"v", 5), (b"b", b"v", 5)]


def test_a_versioned_store_is_read_as_of_a_time_and_drops_what_is_too_old() -> None:
    run = using(
        Stores.versioned_key_value_store("s", 50),
        lambda s, r: (s.put(r.key, r.value, r.timestamp), s.get(r.key), s.get_as_of(r.key, 60)),
    )
    assert pipe(run, ("k", "a", 50), ("k", "b", 100), ("k", "c", 60), ("k", "d", 49)) == [
        (True, ("a", 50), ("a", 50)), (True, ("b", 100), ("a", 50)), (False, ("b", 100), ("c", 60)),
        (None, ("b", 100), ("c", 60)),
    ]
    assert run.dropped_at == [3]


def test_a_window_store_keeps_values_by_start_and_drops_what_has_expired() -> None:
    run = using(
        Stores.window_store("s", 60_000, 10),
        lambda s, r: (s.put(r.key, r.value, r.timestamp), s.fetch(r.key, 20), list(s.fetch_range(r.key, 0, 1 << 40))),
    )
    assert pipe(run, ("k", "a", 20), ("k", "b", 30), ("k", "c", 1_000_000), ("k", "d", 20)) == [
        (None, "a", [(20, "a")]), (None, "a", [(20, "a"), (30, "b")]), (None, None, [(1_000_000, "c")]),
        (None, None, [(1_000_000, "c")]),
    ]
    assert run.dropped_at == [3]


class _WritesInInit:
    def __init__(self, supplied: list[str]) -> None:
        self.stores = supplied

    def init(self, context: ProcessorContext) -> None:
        self.kept, windows, sessions = (context.store(name) for name in self.stores)
        self.kept.put("first", "row")
        windows.put("first", "row", 7)
        sessions.put(Windowed("first", 7, 9), "row")

    def process(self, record: Record) -> None:
        self.kept.put(record.key, record.value)


def test_what_is_written_in_init_is_logged_at_the_wall_clock_s_time() -> None:
    """Kafka refuses times below 0, and there is no record yet whose time it could be."""
    stores = [Stores.key_value_store("s"), Stores.window_store("w", 60_000, 5), Stores.session_store("n", 60_000)]
    builder = StreamsBuilder()
    for store in stores:
        builder.add_state_store(store)
    names = [store.name for store in stores]
    builder.stream("in").process(lambda: _WritesInInit(names), *names)
    run = start(builder.build(), wall_clock=1_000)
    assert pipe(run, ("k", "a", 5)) == []
    assert [(store, timestamp) for store, _key, _value, timestamp, *_rest in run.logged] == [
        ("s", 1_000), ("s", 5), ("w", 1_000), ("n", 1_000),
    ]


def test_a_session_store_keeps_values_by_bounds() -> None:
    def calls(s: Any, r: Record) -> Any:
        s.put(Windowed(r.key, r.timestamp, r.timestamp + 5), r.value)
        return s.fetch_session(r.key, r.timestamp, r.timestamp + 5), len(list(s.find_sessions(r.key, 0, 100)))

    run = using(Stores.session_store("s", 60_000), calls)
    assert pipe(run, ("k", "a", 20), ("k", "b", 40)) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("start", "end", "why"), [(5, 3, "ends before it begins"), (-1, 3, "-1"), (-5, -1, "-[15]")]
)
@pytest.mark.parametrize("write", ["put", "remove"])
def test_a_session_that_could_not_be_restored_is_not_written(write: str, start: int, end: int, why: str) -> None:
    """Java's constructor of a window refuses it."""

    def call(s: Any, r: Record) -> None:
        session = Windowed(r.key, start, end)
        s.put(session, r.value) if write == "put" else s.remove(session)

    run = using(Stores.session_store("s", 60_000), call)
    with pytest.raises(RecordError, match=why):
        pipe(run, ("k", "a", 20))
    assert run.logged == []


class _KeepsUpper:
    def init(self, context: ProcessorContext) -> None:
        self.kept = context.store("g")

    def process(self, record: Record) -> None:
        self.kept.put(record.key, None if record.value is None else record.value.upper())


def global_store(call: Callable[[Any, Record], Any]) -> Run:
    builder = StreamsBuilder()
    builder.add_global_store(Stores.key_value_store("g", logged=False), "reference", _KeepsUpper)
    builder.stream("in").process(lambda: _Calls("g", call), name="calls").to("out", value=STRING)
    return start(builder.build())


def test_a_global_store_is_read_by_every_processor_and_moves_no_stream_time() -> None:
    run = global_store(lambda s, r: s.get(r.key))
    assert pipe(run, ("k", "one", 99), topic="reference") == []
    assert run.graph.stream_time == -1
    assert pipe(run, ("k", "x", 5), ("j", "x", 5)) == ["ONE", None]
    assert run.logged == []


def test_a_global_store_is_written_by_its_own_processor_only() -> None:
    run = global_store(lambda s, r: s.put(r.key, r.value))
    with pytest.raises(RecordError, match=r"calls failed: .*the global store g can't be written here"):
        pipe(run, ("k", "x", 5))


class _Routes:
    """Sends each record to the child that its value names."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record, record.value)


def test_a_processor_forwards_to_the_child_that_it_names() -> None:
    builder = TopologyBuilder().add_source("source", "in").add_processor("routes", _Routes, "source")
    run = start(builder.add_sink("first", "one", "routes").add_sink("second", "two", "routes").build())
    for at, value in enumerate((b"second", b"first")):
        run.pipe(at, "in", b"k", value, 1)
    assert [entry[0] for entry in run.written] == ["two", "one"]
    with pytest.raises(RecordError, match=r"routes has no child 'third'; its children are first, second"):
        run.pipe(2, "in", b"k", b"third", 1)


def test_a_transformer_answers_for_rows_that_are_looked_up() -> None:
    class Doubles:
        def transform(self, _key: str, value: str | None) -> str | None:
            return None if value is None else value * 2

    builder = StreamsBuilder()
    table = builder.table("t", store="kept").transform_values(Doubles, value=STRING)
    builder.stream("in").join(table, per_record(lambda v, row: repr((v, row)), STRING)).to("out", value=STRING)
    run = start(builder.build())
    assert pipe(run, ("k", "ab", 1), topic="t") == []
    assert pipe(run, ("k", "x", 2), ("j", "x", 2)) == [("x", "abab")]


def test_a_row_that_is_looked_up_has_no_origin() -> None:
    """Kafka Streams' lookup has the row's timestamp, and no topic, partition or offset: the record at hand is another one."""

    class Tells:
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def transform(self, _key: str, _value: str | None) -> str:
            origin = self.context.record_metadata
            return f"{None if origin is None else origin.topic} {self.context.timestamp}"

    builder = StreamsBuilder()
    table = builder.table("t").transform_values(Tells, value=STRING)
    builder.stream("in").join(table, per_record(lambda v, row: repr((v, row)), STRING)).to("out", value=STRING)
    table.to_stream().map_values(per_record(repr, STRING)).to("changes", value=STRING)
    run = start(builder.build())
    assert pipe(run, ("k", "ab", 1), topic="t") == ["t 1"]
    assert pipe(run, ("k", "x", 5)) == [("x", "None 1")]


def test_the_other_transformer_of_a_node_is_closed_if_one_fails_to_close() -> None:
    closed: list[object] = []

    class Fails:
        def transform(self, _key: str, value: str | None) -> str | None:
            return value

        def close(self) -> None:
            closed.append(self)
            raise ValueError("not closed")

    builder = StreamsBuilder()
    table = builder.table("t").transform_values(Fails, value=STRING)
    builder.stream("in").join(table, per_record(lambda v, row: repr(v + row), STRING)).to("out", value=STRING)
    run = start(builder.build())
    pipe(run, ("k", "ab", 1), topic="t")
    assert pipe(run, ("k", "x", 2)) == ["xab"]
    with pytest.raises(ValueError, match="not closed"):
        run.graph.close()
    assert len(closed) == len(set(closed)) == 2


class _Schedules:
    """Says its name, and the time, every 2 s of stream time; the first one twice."""

    def __init__(self, name: str) -> None:
        self.name = name

    def init(self, context: ProcessorContext) -> None:
        for sign in ".:" if self.name == "v2" else ".":
            context.schedule(2000, PunctuationType.STREAM_TIME, partial(self.say, context, sign))

    def say(self, context: ProcessorContext, sign: str, now: int) -> None:
        context.forward(Record("tick", f"{self.name}{sign}{now}", now))

    def process(self, _record: Record) -> None: ...


def test_punctuators_that_are_due_at_once_run_in_kafka_streams_order() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    for name in ("v2", "v3", "v5", "v7", "v9"):
        stream.process(partial(_Schedules, name)).to("out", key=STRING, value=STRING)
    run = start(builder.build())
    for at, timestamp in enumerate((100, 2500, 4100, 4200, 9000, 12001)):
        run.pipe(at, "in", b"a", b"x", timestamp)
    said = [value.decode() for _topic, _key, value, *_rest in run.written if value is not None]
    assert said == [  # TopologyTestDriver of Kafka Streams 4.3.0
        "v2.100", "v9.100", "v2:100", "v5.100", "v7.100", "v3.100",
        "v7.2500", "v3.2500", "v2:2500", "v2.2500", "v9.2500", "v5.2500",
        "v9.4100", "v5.4100", "v2:4100", "v7.4100", "v3.4100", "v2.4100",
        "v3.9000", "v2.9000", "v2:9000", "v9.9000", "v5.9000", "v7.9000",
        "v5.12001", "v7.12001", "v2:12001", "v3.12001", "v2.12001", "v9.12001",
    ]  # fmt: skip


def test_a_punctuator_that_ends_itself_or_another_is_not_called_again() -> None:
    called, due = [], Punctuations()

    def call(name: str, _now: int) -> None:
        called.append(name)
        if name == "a":
            ends["a"]()
            ends["b"]()

    ends = {name: due.schedule(0, 10, partial(call, name)) for name in "abc"}
    due.run(5)
    due.run(50)
    assert called == ["a", "c", "c"]


FIRST_FROM_100_EVERY_30 = {-1: 100, 0: 100, 99: 100, 100: 100, 101: 130, 129: 130, 130: 160, 131: 160, 160: 190, 1000: 1030}
"""Now -> when an anchored schedule is first due: StreamTask's, of Kafka Streams 4.3.1."""


@pytest.mark.parametrize("now", FIRST_FROM_100_EVERY_30)
def test_an_anchored_schedule_is_first_due_at_its_start_or_next_on_its_grid(now: int) -> None:
    assert first_from(100, 30, now) == FIRST_FROM_100_EVERY_30[now]


class _Anchored:
    """Forwards the times of punctuations on a grid that begins at 100."""

    def __init__(self, clock: PunctuationType, start_time: Any) -> None:
        self.clock, self.start_time = clock, start_time

    def init(self, context: ProcessorContext) -> None:
        def tick(now: int) -> None:
            context.forward(Record("tick", str(now), now))

        context.schedule(30, self.clock, tick, start_time=self.start_time)

    def process(self, _record: Record) -> None: ...


def anchored(clock: PunctuationType, start_time: Any, wall_clock: int = 0) -> Run:
    builder = StreamsBuilder()
    builder.stream("in").process(partial(_Anchored, clock, start_time)).to("out", key=STRING, value=STRING)
    return start(builder.build(), wall_clock)


def said(run: Run) -> list[str]:
    return [value.decode() for _topic, _key, value, *_rest in run.written if value is not None]


def test_an_anchored_punctuator_by_stream_time_waits_for_its_start_and_keeps_its_grid() -> None:
    run = anchored(PunctuationType.STREAM_TIME, 100)
    for at, timestamp in enumerate((5, 99, 100, 125, 131, 250, 251, 280)):
        run.pipe(at, "in", b"k", b"v", timestamp)
    assert said(run) == ["100", "131", "250", "280"]  # 160, 190 and 220 are one call; the next is due at 280


def test_an_anchored_punctuator_by_the_wall_clock_makes_up_for_nothing() -> None:
    run = anchored(PunctuationType.WALL_CLOCK_TIME, datetime.fromtimestamp(0.1, timezone.utc), wall_clock=1_000)
    for at, by in enumerate((29, 1, 30, 75)):
        run.advance_wall_clock(at, by)
    assert said(run) == ["1030", "1060", "1135"]


@pytest.mark.parametrize(
    ("start_time", "said_of_it"),
    [
        (-1, "-1 is no time from 1970 on"),
        (datetime(1969, 12, 31, tzinfo=timezone.utc), "is no time from 1970 on"),
        (datetime(2026, 1, 1), "2026-01-01 00:00:00 has no time zone"),
        ("noon", "'noon' is no time"),
        (True, "True is no time"),
    ],
)
def test_a_start_time_that_is_none_is_refused(start_time: Any, said_of_it: str) -> None:
    with pytest.raises(StopError, match=f"KSTREAM-PROCESSOR-0000000001: start_time: .*{said_of_it}"):
        anchored(PunctuationType.STREAM_TIME, start_time)


def test_an_interval_of_nothing_is_refused() -> None:
    class Hasty(_Anchored):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(0, PunctuationType.STREAM_TIME, lambda now: None, start_time=100)

    builder = StreamsBuilder()
    builder.stream("in").process(partial(Hasty, PunctuationType.STREAM_TIME, 0))
    with pytest.raises(StopError, match="the interval is 0 ms, expected 1 ms or more"):
        start(builder.build())


class _Labels:
    """Forwards each record with a label in front of its value."""

    def __init__(self, label: str) -> None:
        self._label = label

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        self._context.forward(record.with_value(f"{self._label}{record.value}"))


def test_a_sink_of_several_processors_keeps_the_order_of_the_records() -> None:
    builder = TopologyBuilder().add_source("left", "left").add_source("right", "right")
    for name, source in (("a", "left"), ("b", "right")):
        builder.add_processor(name, partial(_Labels, name), source)
    builder.add_sink("sink", "out", "a", "b", key=STRING, value=STRING)
    run = StepRun(builder.build())
    run.pipe([(topic, b"k", str(at).encode(), at) for at, topic in enumerate(("left", "right", "right", "left"))])
    assert [value for _topic, _key, value, *_rest in run.written] == [b"a0", b"b1", b"b2", b"a3"]


def test_two_sinks_of_a_topic_keep_the_order_of_a_record_s_results() -> None:
    builder = StreamsBuilder()
    letters = builder.stream("in", key=STRING, value=STRING).flat_map_values(per_record(list, STRING))
    letters.filter(per_record(lambda _, letter: letter == "a")).to("out", partitioner=lambda *_: 0)
    letters.filter_not(per_record(lambda _, letter: letter == "a")).to("out")
    run = StepRun(builder.build())
    run.pipe([("in", b"k", b"bab", 1), ("in", b"k", b"cca", 2)])
    assert [value for _topic, _key, value, *_rest in run.written] == [b"b", b"a", b"b", b"c", b"c", b"a"]


def test_two_sinks_of_windowed_keys_keep_the_order_of_a_batch_s_results() -> None:
    builder = StreamsBuilder()
    windows = builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(TimeWindows.of_size(10, grace=0))
    counts = windows.count(store=Materialized(name="counts", caching=False)).to_stream()
    counts.filter(per_record(lambda _, count: count > 1)).to("out")
    counts.filter(per_record(lambda _, count: count == 1)).to("out")
    run = StepRun(builder.build())
    run.pipe([("in", key, b"v", 1) for key in (b"k", b"l", b"m", b"m")])
    assert [(key[:1], value[-1]) for _topic, key, value, *_rest in run.written] == [(b"k", 1), (b"l", 1), (b"m", 1), (b"m", 2)]
