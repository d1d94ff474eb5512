"""Programs that can't run are refused when they are built, with the node, the reason and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tidemill import (
    EmitStrategy,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    Processor,
    Serde,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
    TopologyBuilder,
    UnlimitedWindows,
    ValueTransformerWithKey,
    WindowedSerdes,
    per_record,
)
from tidemill.errors import TidemillError, TopologyError
from tidemill.topology.operations import Branch


class Bare:
    def serialize(self, value: Any) -> bytes | None:
        return value

    def deserialize(self, data: bytes | None) -> Any:
        return data


def record(key: Any, value: Any) -> Any:
    return value


def never(*_: Any) -> Any:
    raise AssertionError("a function of Python values was called")



def _yields(*given: object) -> Iterator[object]:
    yield given


class _Yields:
    def __call__(self, *given: object) -> Iterator[object]:
        yield given


PROGRAMS: dict[str, tuple[Callable[[StreamsBuilder], Any], str]] = {
    "a name used twice": (
        lambda b: b.stream("in").filter(record, name="same").map_values(str, name="same").to("out"),
        r"two nodes have the name 'same' \(filter; map_values\).*give one of them another name$",
    ),
    "a sink named like a source": (
        lambda b: b.stream("in", name="io").to("out", name="io"),
        r"two nodes have the name 'io' \(the source of in; the sink to out\)",
    ),
    "two groups of one name": (
        lambda b: [b.stream("in").group_by(record, name=n).count() for n in ("g", "g")],
        r"two nodes have the name 'g' \(both select_key or group_by\)",
    ),
    "two repartitions of one name": (
        lambda b: [b.stream("in").repartition(name="g") for _ in range(2)],
        r"two nodes have the name 'g-repartition-filter', which is of name='g' \(both a repartition, of .*give one of them",
    ),
    "two joins by foreign key of one name": (
        lambda b: [b.table(f"{n}l").join(b.table(f"{n}r"), never, foreign_key=str, name="j") for n in "ab"],
        r"of name='j' \(both join by foreign key\)",
    ),
    "a branch named like another operator": (
        lambda b: (b.stream("in").split(name="x").branch(record, name="a").no_default_branch(), b.stream("o", name="xa")),
        r"'xa' \(merge, a join or a branch of split; the source of o\)",
    ),
    "two stores of one name": (
        lambda b: [b.stream("in").group_by_key().count(store="s") for _ in range(2)],
        r"two stores have the name 's' \(of count KSTREAM-AGGREGATE-0000000001 and count KSTREAM-AGGREGATE-0000000003\)",
    ),
    "a store of processors and a global store of one name": (
        lambda b: b.add_state_store(Stores.key_value_store("s")).add_global_store(Stores.key_value_store("s"), "in", Processor),
        r"two stores have the name 's' \(of add_state_store and global_table or add_global_store KTABLE-SOURCE-0000000001\)",
    ),
    "a topic as stream and as table": (
        lambda b: (b.stream("t"), b.table("t")),
        r"the topic 't' is read by two nodes, 'KSTREAM-SOURCE-0000000000' and .*read it once",
    ),
    "two tables of one topic": (lambda b: (b.table("t"), b.table("t")), "the topic 't' is read by two nodes"),
    "a topic that a pattern matches": (
        lambda b: (b.stream(re.compile("t.*")), b.stream("ta")), "the topic 'ta' is read by two nodes",
    ),
    "a pattern that matches a topic": (
        lambda b: (b.stream("ta"), b.stream(re.compile("t.*"))), r"the pattern 't\.\*' of node .* matches the topic 'ta'",
    ),
    "a source topic named like a repartition topic": (
        lambda b: (b.stream("in").repartition(name="x"), b.stream("x-repartition")),
        "the topic 'x-repartition' is read by two nodes",
    ),
    "no topic": (lambda b: b.stream([]), "stream: no topic given"),
    "None for a topic": (lambda b: b.stream(None), "stream: expected a topic, or a list of topics, got None"),
    "bytes for a topic": (lambda b: b.stream(b"in"), "stream: expected a topic, or a list of topics, got b'in'"),
    "None for a table's topic": (lambda b: b.table(None), "None can't be the name of a topic: it is of type NoneType"),
    "two topics of a table": (lambda b: b.table(["a", "b"]), r"\['a', 'b'\] can't be the name of a topic: it is of type list"),
    "None for a global table's topic": (lambda b: b.global_table(None), "None can't be the name of a topic"),
    "an illegal topic": (lambda b: b.stream("a b"), r"'a b' can't be the name of a topic: only ASCII letters"),
    "an illegal output topic": (lambda b: b.stream("a").to(""), "'' can't be the name of a topic: it is empty"),
    "a topic that is no text": (lambda b: b.stream("a").to(7), "7 can't be the name of a topic: it is of type int"),
    "a name that is no text": (lambda b: b.stream("a").filter(record, name=5), "5 can't be the name of an operator: it is of"),
    "a name of a split that is no text": (lambda b: b.stream("a").split(name=5), "5 can't be the name of an operator: it is"),
    "a mapper for print": (lambda b: b.stream("a").print(record), "print: label: expected text, got .*; foreach with a function"),
    "an illegal operator name": (lambda b: b.stream("a").filter(record, name="ä"), "'ä' can't be the name of an operator"),
    "a name that is too long": (lambda b: b.stream("a", name="x" * 250), "it has 250 characters, at most 249"),
    "a table whose source's name gets too long": (lambda b: b.table("a", name="x" * 243), "it has 250 characters"),
    "an illegal store name": (lambda b: b.table("a", store=".."), r"'\.\.' can't be the name of a store"),
    "a pattern with flags": (lambda b: b.stream(re.compile("a", re.IGNORECASE)), "must be text without flags"),
    "an unknown offset reset": (lambda b: b.stream("a", offset_reset="first"), "offset_reset is 'first', expected one of"),
    "a serde that is none": (lambda b: b.stream("a", value="string"), r"stream: value: 'string' is not a serde"),
    "a serde that is none, of a sink": (lambda b: b.stream("a").to("b", key=str), "to: key: str is not a serde but a class"),
    "a serde factory that was not called": (
        lambda b: b.stream("a", key=Serdes.string),
        r"stream: key: Serdes.string is not a serde but a function; give what it makes, such as Serdes.string\(\)",
    ),
    "a serde factory of per_record that was not called": (
        lambda b: per_record(len, Serdes.long), "per_record: serde: Serdes.long is not a serde but a function; give what it",
    ),
    "three serdes of per_record": (
        lambda b: per_record(len, (None, None, None)), "per_record: serde: expected one serde, or a pair .*, got a tuple of 3",
    ),
    "a serde of one's own without its names": (
        lambda b: b.stream("a", key=Bare()), "stream: key: .* is no serde: it has no name, sql_type",
    ),
    "a windowed serde of what is none": (
        lambda b: WindowedSerdes.time_windowed_serde_from("string", 10), "serde_from: inner: 'string' is not a serde",
    ),
    "a windowed serde of nothing": (
        lambda b: WindowedSerdes.session_windowed_serde_from(None), "session_windowed_serde_from: inner: a serde is missing",
    ),
    "a function that is none": (lambda b: b.stream("a").map_values("upper"), "map_values: expected a function of"),
    "a predicate of values only": (
        lambda b: b.stream("a").filter(lambda value: value), r"filter: the function <lambda>\(value\) can't be called with",
    ),
    "a mapper of three": (
        lambda b: b.stream("a").map_values(lambda a, b, c: a),
        r"map_values: .* can't be called with \(value\) or \(key, value\)",
    ),
    "an initializer with arguments": (
        lambda b: b.stream("a").group_by_key().aggregate(lambda x: x, lambda k, v, a: a),
        "aggregate: initializer: ",
    ),
    "an aggregator without the aggregate": (
        lambda b: b.stream("a").group_by_key().aggregate(dict, record), "aggregate: aggregator: ",
    ),
    "no partitions": (lambda b: b.stream("a").repartition(partitions=0), "partitions must be a whole number from 1 on, got 0"),
    "partitions that are no number": (
        lambda b: b.stream("a").repartition(partitions=True), "partitions must be a whole number from 1 on, got True",
    ),
    "a store that is none": (lambda b: b.table("a", store=5), "table: store must be a name or a Materialized, got 5"),
    "a store of processors": (
        lambda b: b.table("a", store=Stores.versioned_key_value_store("prices", timedelta(hours=1))),
        re.escape("'prices' of Stores, which is for processors; write Materialized(name='prices', history_retention=3600000)"),
    ),
    "a store of processors in memory": (
        lambda b: b.stream("a").group_by_key().count(store=Stores.key_value_store("seen", persistent=False, logged=False)),
        re.escape("write Materialized(name='seen', persistent=False, logged=False)"),
    ),
    "merging with something else": (lambda b: b.stream("a").merge(b.table("b")), "merge: expected a stream"),
    "merging with another builder's stream": (
        lambda b: b.stream("a").merge(StreamsBuilder().stream("b")), "belongs to another StreamsBuilder",
    ),
    "a branch with consumer and function": (
        lambda b: b.stream("a").split().branch(record, consumer=print, function=print), "give consumer or function, not both",
    ),
    "predicates of Columns and of Python values in one split": (
        lambda b: b.stream("a").split(name="s-").branch(record).branch(per_record(record)),
        r"a branch of 's-': its predicates are .*; wrap all of them in per_record\(\.\.\.\), or none",
    ),
    "predicates of Python values and of Columns in one split": (
        lambda b: b.stream("a").split().branch(per_record(record)).branch(record), "wrap all of them in per_record",
    ),
    "two default branches": (
        lambda b: (lambda split: (split.default_branch(name="one"), split.default_branch(name="two")))(
            b.stream("a").split(name="s-")
        ),
        "split 's-' has its default branch 's-one' already",
    ),
    "a predicate that gives a generator, which is true": (
        lambda b: b.stream("a").filter(per_record(_yields)), "filter: <function _yields .* has yield in it.* use flat_map",
    ),
    "an action that gives a generator": (lambda b: b.stream("a").foreach(_yields), "foreach: .* has yield in it"),
    "a reducer that gives a generator": (lambda b: b.stream("a").group_by_key().reduce(_yields), "reduce: .* has yield in it"),
    "a topic's name that is a generator": (lambda b: b.stream("a").to(_Yields()), "to: topic: .* has yield in it"),
    "windows without a size": (
        lambda b: b.stream("a").group_by_key().windowed_by(TimeWindows.of_size(0)), "TimeWindows: the size is 0",
    ),
    "windows that leave records out": (
        lambda b: TimeWindows.of_size(10, advance=11), r"advance is 11 ms, expected 1 \.\. 10 ms",
    ),
    "a negative grace": (lambda b: TimeWindows.of_size(10, grace=-1), "TimeWindows: grace: -1 ms is negative"),
    "a duration that is none": (lambda b: SessionWindows.of_inactivity_gap("5s"), "'5s' is no duration; give a timedelta"),
    "a duration beyond 8 bytes": (lambda b: SessionWindows.of_inactivity_gap(2**63), "9223372036854775808 ms do not fit in 8"),
    "join windows that hold nothing": (
        lambda b: JoinWindows.of_time_difference(5, before=-6), r"before \(-6 ms\) and after \(5 ms\) make no window",
    ),
    "windows that are none": (
        lambda b: b.stream("a").group_by_key().windowed_by(timedelta(1)), "windowed_by: expected TimeWindows",
    ),
    "unlimited windows that are to close": (
        lambda b: b.stream("a").group_by_key().windowed_by(UnlimitedWindows.of()).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE),
        "unlimited windows never close",
    ),
    "a store that forgets windows too early": (
        lambda b: b.stream("a").group_by_key().windowed_by(TimeWindows.of_size(10, grace=5)).count(
            store=Materialized(name="s", retention=14)
        ),
        "the store 's': the retention of 14 ms is shorter than its windows and their grace, 15 ms",
    ),
    "a versioned store of windows": (
        lambda b: b.stream("a").group_by_key().windowed_by(TimeWindows.of_size(10)).count(
            store=Materialized(name="s", history_retention=14)
        ),
        "windows can't be kept in a versioned store",
    ),
    "a retention of a table": (
        lambda b: b.table("a", store=Materialized(name="s", retention=14)), "for the history of a table give history_retention",
    ),
    "sessions without a merger": (
        lambda b: b.stream("a").group_by_key().cogroup(aggregator).windowed_by(SessionWindows(gap=5)).aggregate(int),
        "sessions need a merger",
    ),
    "groups of a cogroup that share the store's name": (
        lambda b: b.stream("a").select_key(record).group_by_key().cogroup(aggregator).cogroup(
            b.stream("c").select_key(record).group_by_key(), aggregator
        ).aggregate(int, store="s"),
        r"'s-repartition-filter', .*give one of them another name, groups of one cogroup by group_by_key\(name=...\)$",
    ),
    "a merger for windows": (
        lambda b: b.stream("a").group_by_key().cogroup(aggregator).windowed_by(TimeWindows.of_size(5)).aggregate(int, aggregator),
        "a merger is for sessions only",
    ),
    "waiting for windows to close where there are none": (
        lambda b: b.table("a").suppress(Suppressed.until_window_closes()), "has no windows, so nothing ever closes",
    ),
    "suppressing a versioned table": (
        lambda b: b.table("a", store=VERSIONED).filter(record).suppress(Suppressed.until_time_limit(5)),
        "versioned, or comes from one that is",
    ),
    "a join of streams without windows": (
        lambda b: b.stream("a").join(b.stream("b"), record), r"two streams are joined in windows, got None; give JoinWindows",
    ),
    "a join of streams whose windows come before the joiner": (
        lambda b: b.stream("a").join(b.stream("b"), JoinWindows.of_time_difference(5), record),
        r"join: the windows stand where the joiner belongs; write \(other, joiner, windows\)",
    ),
    "a join whose joiner comes before the other stream": (
        lambda b: b.stream("a").left_join(record, b.table("b")),
        r"left_join: the joiner stands where a stream, a table or a global table belongs; write \(other, joiner\)",
    ),
    "a join of a table with windows": (
        lambda b: b.stream("a").join(b.table("b"), record, JoinWindows.of_time_difference(5)),
        "windows are for joins of two streams",
    ),
    "a global table's selector before its joiner, as in Java": (
        lambda b: b.stream("a").join(b.global_table("b"), lambda key, value: key, record),
        "windows are for joins of two streams, got .*; leave them out, and give the function that names a row .* as selector=",
    ),
    "a join with something else": (
        lambda b: b.stream("a").join("b", record), "joined with a stream, a table or a global table only",
    ),
    "a join with nothing, in windows": (
        lambda b: b.stream("a").join(None, record, JoinWindows.of_time_difference(5)),
        "join: a stream can be joined with a stream, a table or a global table only, got None",
    ),
    "an outer join with a table": (
        lambda b: b.stream("a").outer_join(b.table("b"), record),
        r"outer_join: a stream can be joined with a stream only, got KTable\(node=1, name=.KTABLE-SOURCE-[^<]*$",
    ),
    "a join with another builder's table": (
        lambda b: b.stream("a").join(StreamsBuilder().table("b"), record), "belongs to another StreamsBuilder",
    ),
    "a global table without a selector": (
        lambda b: b.stream("a").join(b.global_table("b"), record), "give selector=, a function",
    ),
    "a joiner of one": (
        lambda b: b.stream("a").join(b.table("b"), lambda one: one), r"join: .* can't be called with \(left, right\)",
    ),
    "a joined of another kind": (
        lambda b: b.stream("a").join(b.table("b"), record, joined=StreamJoined()), "joined must be a Joined here",
    ),
    "a grace over a table without history": (
        lambda b: b.stream("a").join(b.table("b", store="s"), record, joined=Joined(grace=5)),
        "with a grace the table must be versioned, but 's' of",
    ),
    "a grace longer than the history": (
        lambda b: b.stream("a").join(b.table("b", store=VERSIONED), record, joined=Joined(grace=timedelta(hours=2))),
        "the grace of 7200000 ms is longer than the history retention of 'v', 3600000 ms",
    ),
    "a versioned global table": (lambda b: b.global_table("b", store=VERSIONED), "a global table has no history"),
    "a foreign-key name for a join by key": (
        lambda b: b.table("a").join(b.table("b"), record, joined=TableJoined(name="x")), "joined= is for joins by foreign key",
    ),
    "a join of a table with a stream": (
        lambda b: b.table("a").join(b.stream("b"), record), "a table can be joined with a table only",
    ),
    "stores of a join that forget too early": (
        lambda b: b.stream("a").join(
            b.stream("b"), record, JoinWindows.of_time_difference(5),
            joined=StreamJoined(this_store=Stores.window_store("w", 9, 9, retain_duplicates=True)),
        ),
        r"the store 'w' of a join: expected Stores.window_store\(..., retention=10 .*, got retention=9, window_size=9, "
        r"retain_duplicates=True$",
    ),
    "a store of a join that keeps no windows": (
        lambda b: b.stream("a").join(
            b.stream("b"), record, JoinWindows.of_time_difference(5), joined=StreamJoined(this_store=Stores.key_value_store("w")),
        ),
        r"retain_duplicates=True\), got a store of the kind key_value$",
    ),
    "copartitioned repartitions of different sizes": (
        lambda b: b.stream("a").repartition(name="ra", partitions=2).join(
            b.stream("b").repartition(name="rb", partitions=3), record, JoinWindows.of_time_difference(5)
        ),
        r"different numbers of partitions: ra-repartition \(2\), rb-repartition \(3\)",
    ),
    "a processor with a store that nobody adds": (
        lambda b: b.stream("a").process(Noop, "missing", name="p"), "'p' uses the store 'missing', which is not added",
    ),
    "a processor that names a global store": (
        lambda b: (
            b.add_global_store(Stores.key_value_store("g"), "topic", Noop), b.stream("a").process(Noop, "g", name="p"),
        ),
        "'p' names the global store 'g': every processor can use a global store",
    ),
    "a supplier that wants something": (
        lambda b: b.stream("a").process(lambda context: context), "process: supplier: ",
    ),
    "a store that is no store": (lambda b: b.add_state_store("kv"), "expected a store of Stores"),
    "a topic as global and as stream": (
        lambda b: (b.global_table("t"), b.stream("t")), "the topic 't' is read by two nodes",
    ),
}


class Noop:
    def process(self, record: Any) -> None:
        pass


def aggregator(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


VERSIONED = Materialized(name="v", history_retention=timedelta(hours=1))


@pytest.mark.parametrize("what", PROGRAMS)
def test_refused(what: str) -> None:
    write, message = PROGRAMS[what]

    def build() -> None:
        builder = StreamsBuilder()
        write(builder)
        builder.build()

    with pytest.raises(TopologyError, match=message):
        build()


def test_what_takes_several_results_takes_a_generator() -> None:
    stream = StreamsBuilder().stream("a", key=Serdes.string(), value=Serdes.string())
    stream.flat_map(per_record(_yields)).flat_map_values(per_record(_yields))


def test_a_refused_operator_leaves_no_node_behind() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    split = stream.split(name="split")
    refusals: list[Callable[[], Any]] = [
        lambda: stream.filter(None), lambda: stream.to(""), lambda: stream.to("out", key="no serde"),
        lambda: stream.group_by(record, value="no serde"), lambda: stream.to_table(store=1),
        lambda: stream.filter(record, name="an illegal name"), lambda: stream.merge("other"),
        lambda: split.branch(record, name="an illegal name"), lambda: split.branch(record, consumer=print, function=print),
    ]
    for refused in refusals:
        with pytest.raises(TidemillError):
            refused()
    assert list(builder.build().nodes) == ["KSTREAM-SOURCE-0000000000", "split"]
    assert builder.build().nodes["split"].operation == Branch((), ())


def test_building_calls_functions_of_columns_once_and_no_others() -> None:
    called: list[str] = []

    def once(name: str, gives: Callable[[Any, Any], Any] = record) -> Callable[[Any, Any], Any]:
        def function(key: Any, value: Any) -> Any:
            called.append(name)
            return gives(key, value)

        return function

    builder = StreamsBuilder()
    stream = builder.stream("in").map(once("map", lambda k, v: (k, v))).map_values(once("map_values"))
    stream = stream.flat_map(once("flat_map")).flat_map_values(once("flat_map_values")).filter(once("filter"))
    stream = stream.filter_not(once("filter_not")).select_key(once("select_key")).peek(never)
    branches = stream.split().branch(once("branch")).default_branch()
    for number, branch in enumerate(branches.values()):
        branch.foreach(never)
        branch.group_by(once(f"group_by {number}")).reduce(never)
    table = stream.group_by_key().aggregate(never, never, store=Materialized(name="s")).filter(once("table filter"))
    table.map_values(once("table map_values")).group_by(never).reduce(never, never)
    assert called == []
    assert len(builder.build(optimization="all").nodes) > 20
    assert sorted(called) == sorted(set(called))
    assert len(called) == 12


@pytest.mark.parametrize("given", [{"application.id": "app"}, StreamsBuilder().stream("in"), None])
def test_what_is_no_program_is_refused_with_what_it_is(given: Any) -> None:
    settings = {"application.id": "app", "bootstrap.servers": "none:1"}
    with pytest.raises(TopologyError, match=f"the program is a {type(given).__name__}, expected a StreamsBuilder or a TopologyB"):
        KafkaStreams(given, settings)


def test_a_class_of_builders_is_no_program() -> None:
    with pytest.raises(TopologyError, match="the program is the class StreamsBuilder, not an object, expected a StreamsBuilder"):
        KafkaStreams(StreamsBuilder, {"application.id": "app", "bootstrap.servers": "none:1"})  # type: ignore[arg-type]


def test_a_builder_of_processors_is_built_like_one_of_the_dsl() -> None:
    """Kafka Streams' Topology is both: what addProcessor builds, and what an application runs."""
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_sink("sink", "out", "source")
    streams = KafkaStreams(builder, {"application.id": "app", "bootstrap.servers": "none:1"})
    assert list(streams.topology.nodes) == ["source", "sink"]


@pytest.mark.parametrize("base", [Serde, Processor, ValueTransformerWithKey])
def test_what_is_derived_without_its_methods_is_refused_when_it_is_made(base: type) -> None:
    """The protocol's own methods give None: values would be null, and records nowhere."""
    made = type("Mistyped", (base,), {"serialise": print, "proces": print})
    with pytest.raises(TypeError, match="abstract class Mistyped"):
        made()
