"""What windows, joins, grouped tables and processors write into a topology besides names: operations, serdes, old values."""

from __future__ import annotations

import gc
from datetime import timedelta
from typing import Any

import pytest

from tidemill import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    Windowed,
    per_record,
)
from tidemill.dsl.serdes_change import ChangeSerde
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.topology import join_operations as join_op
from tidemill.topology import operations as op
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, StoreKind

STRING, LONG, DOUBLE = Serdes.string(), Serdes.long(), Serdes.double()


def record(key: Any, value: Any) -> Any:
    return value


def one(value: Any) -> Any:
    return value


def three(key: Any, left: Any, right: Any) -> Any:
    return left


def node(topology: Topology, name: str) -> ProcessorNode:
    found = topology.nodes[name]
    assert isinstance(found, ProcessorNode)
    return found


@pytest.fixture
def b() -> StreamsBuilder:
    return StreamsBuilder()


# --- windows ---------------------------------------------------------------------------------------------------------


def test_durations_may_be_timedeltas_or_milliseconds() -> None:
    assert TimeWindows.of_size(timedelta(seconds=5)) == TimeWindows.of_size(5000) == TimeWindows(size=5000, advance=5000)


def test_a_windowed_key_is_printed_as_java_does() -> None:
    key = Windowed("ada", 0, 60_000)
    assert (str(key), f"{key}") == ("[ada@0/60000]", "[ada@0/60000]")
    assert repr(key) == "Windowed(key='ada', start=0, end=60000)"


def test_windowed_tables_have_windowed_keys(b: StreamsBuilder) -> None:
    grouped = b.stream("in", key=STRING, value=LONG).group_by_key()
    hours = grouped.windowed_by(TimeWindows.of_size(1000)).count()
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap(5)).reduce(record)
    assert (hours.key_serde, hours.value_serde) == (TimeWindowedSerde(STRING, 1000), LONG)
    assert (sessions.key_serde, sessions.value_serde) == (SessionWindowedSerde(STRING), LONG)
    assert b.stream("other").group_by_key().windowed_by(TimeWindows.of_size(1000)).count().key_serde is None


def test_an_aggregate_has_the_serdes_that_it_is_given(b: StreamsBuilder) -> None:
    grouped = b.stream("in").group_by_key()
    windows, sessions = TimeWindows.of_size(1000), SessionWindows.of_inactivity_gap(5)
    plain = grouped.aggregate(str, three, key=STRING, value=LONG)
    in_windows = grouped.windowed_by(windows).aggregate(str, three, key=STRING, value=LONG)
    in_sessions = grouped.windowed_by(sessions).aggregate(str, three, three, key=STRING, value=LONG)
    of_table = b.table("t").group_by(lambda k, v: (v, k)).aggregate(str, three, three, key=STRING, value=LONG)
    assert [table.key_serde for table in (plain, in_windows, in_sessions, of_table)] == [
        STRING, TimeWindowedSerde(STRING, 1000), SessionWindowedSerde(STRING), STRING,
    ]
    kept = [store for name, store in b.build().stores.items() if "AGGREGATE" in name]
    assert {(store.key_serde, store.value_serde) for store in kept} == {(STRING, LONG)}


def test_windows_are_kept_as_long_as_they_are_open_or_as_asked(b: StreamsBuilder) -> None:
    windowed = b.stream("in").group_by_key().windowed_by(TimeWindows.of_size(1000, grace=500))
    windowed.count(store="needed")
    windowed.count(store=Materialized(name="longer", retention=timedelta(minutes=1)))
    stores = b.build().stores
    assert [(stores[name].retention_ms, stores[name].window_size_ms) for name in ("needed", "longer")] == [
        (1500, 1000), (60_000, 1000),
    ]
    assert stores["needed"].kind is StoreKind.TIMESTAMPED_WINDOW


def test_results_at_the_close_of_windows_need_a_store_ordered_by_time(b: StreamsBuilder) -> None:
    windowed = b.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(5))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="final", name="at-close")
    topology = b.build()
    operation = node(topology, "at-close").operation
    assert isinstance(operation, op.SessionAggregate)
    assert operation.emit_final
    assert topology.stores["final"].time_ordered


@pytest.mark.parametrize(("windows", "expected"), [
    (TimeWindows.of_size(1000, grace=7), 7), (SessionWindows.of_inactivity_gap(50, grace=7), 57),
])
def test_suppress_waits_for_the_grace_of_the_windows_above(
    b: StreamsBuilder, windows: TimeWindows | SessionWindows, expected: int
) -> None:
    counts = b.stream("in").group_by_key().windowed_by(windows).count()  # type: ignore[arg-type]
    counts.filter(record).suppress(Suppressed.until_window_closes(name="held"))
    operation = node(b.build(), "held").operation
    assert operation == op.Suppress("held-store", grace_ms=expected, shut_down_when_full=True)


# --- old values and lookups ------------------------------------------------------------------------------------------


def test_a_grouped_table_needs_old_values_and_its_source_a_store(b: StreamsBuilder) -> None:
    table = b.table("in", name="t").filter(record, name="kept")
    assert not b.build().stores
    table.group_by(record).count(store="counts", name="counted")
    topology = b.build()
    assert list(topology.stores) == ["in-STATE-STORE-0000000000", "counts"]
    assert (node(topology, "t").sends_old, node(topology, "kept").sends_old, node(topology, "counted").sends_old) == (
        True, True, False,
    )
    assert node(topology, "kept").stores == ()


def test_a_filter_of_a_table_that_is_kept_gets_old_values_so_that_needless_tombstones_are_not_sent(b: StreamsBuilder) -> None:
    b.table("kept", store="s", name="t").filter(record, name="f")
    b.table("not-kept", name="u").filter(record, name="g")
    topology = b.build()
    assert [node(topology, name).sends_old for name in ("t", "f", "u", "g")] == [True, True, False, False]


def test_a_left_join_needs_old_values_of_its_left_table_only(b: StreamsBuilder) -> None:
    left, right = b.table("l", name="left"), b.table("r", name="right")
    left.left_join(right, record, name="joined")
    topology = b.build()
    assert [node(topology, name).sends_old for name in ("left", "right")] == [True, False]
    assert node(topology, "joined-join-this").operation == join_op.TableTableJoin("right", record, True, keeps_this=True)
    assert node(topology, "joined-join-other").operation == join_op.TableTableJoin("left", record, False, keeps_other=True)


def test_rows_of_a_derived_table_are_looked_up_where_its_source_is_kept(b: StreamsBuilder) -> None:
    table = b.table("in").map_values(one, name="mapped")
    b.stream("s").join(table, three, name="enriched")
    topology = b.build()
    enriched = node(topology, "enriched")
    assert enriched.operation == join_op.StreamTableJoin("mapped", three, takes_key=True)
    assert enriched.stores == tuple(topology.stores) == ("in-STATE-STORE-0000000000",)


# --- joins and groups ------------------------------------------------------------------------------------------------


def test_null_keys_pass_the_repartition_above_a_left_join_only(b: StreamsBuilder) -> None:
    table = b.table("t")
    for kind in ("join", "left_join"):
        getattr(b.stream(kind).select_key(record), kind)(table, record, name=kind)
    topology = b.build()
    assert node(topology, "join-repartition-filter").operation == op.NullKeyFilter()
    assert node(topology, "left_join-repartition-filter").operation == op.PassThrough()


def test_a_join_with_grace_waits_in_a_buffer(b: StreamsBuilder) -> None:
    table = b.table("t", store=Materialized(name="v", history_retention=1000))
    b.stream("s", key=STRING, value=LONG).join(table, record, joined=Joined(name="j", grace=10))
    topology = b.build()
    buffer = topology.stores["j-Buffer"]
    assert (buffer.kind, buffer.key_serde, buffer.value_serde) == (StoreKind.GRACE_BUFFER, STRING, LONG)
    assert topology.stores["v"].kind is StoreKind.VERSIONED


def test_a_join_of_streams_takes_stores_of_its_own(b: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference(5, grace=2)
    given = Stores.window_store("mine", 12, 10, retain_duplicates=True, persistent=False)
    b.stream("l", key=STRING, value=LONG).left_join(
        b.stream("r", key=STRING, value=DOUBLE), record, windows, joined=StreamJoined(this_store=given, name="j")
    )
    stores = b.build().stores
    assert stores["mine"].persistent is False
    outer = stores["mine-left-shared-join-store"]
    assert (outer.value_serde, outer.other_value_serde) == (LONG, DOUBLE)


def test_a_grouped_table_goes_through_a_topic_of_changes(b: StreamsBuilder) -> None:
    b.table("in").group_by(record, key=STRING, value=LONG).count(name="c")
    topology = b.build()
    sink, source = topology.nodes["c-sink"], topology.nodes["c-source"]
    assert isinstance(sink, SinkNode)
    assert isinstance(source, SourceNode)
    assert (sink.key_serde, sink.value_serde) == (source.key_serde, source.value_serde) == (STRING, ChangeSerde(LONG))


def test_cogrouped_streams_share_a_store(b: StreamsBuilder) -> None:
    first, second = b.stream("a").group_by_key(), b.stream("b").group_by_key()
    first.cogroup(three).cogroup(second, three).aggregate(int, store="s", name="c")
    topology = b.build()
    for name in ("c-cogroup-agg-0", "c-cogroup-agg-1"):
        assert node(topology, name).operation == op.Aggregate("s", int, three)
        assert node(topology, name).stores == ("s",)
    assert node(topology, "c-cogroup-merge").operation == op.CogroupMerge("s")


def test_streams_that_are_cogrouped_in_a_loop_each_have_a_repartition_of_their_own(b: StreamsBuilder) -> None:
    """Python gives the ``id`` of a grouped stream that nothing holds any more to one of the next."""
    first = b.stream("a").group_by_key().cogroup(three)
    for at in range(6):
        both = first.cogroup(b.stream(f"in{at}").group_by(record, key=STRING, value=LONG, name=f"by{at}"), three)
        both.aggregate(int, store=f"s{at}")
        del both
        gc.collect()
    assert set(b.build().repartition_topics) == {f"by{at}-repartition" for at in range(6)}


# --- functions and processors ----------------------------------------------------------------------------------------


def test_the_serde_of_a_function_is_that_of_its_result(b: StreamsBuilder) -> None:
    stream = b.stream("in", key=STRING, value=STRING)
    assert stream.map_values(per_record(one, LONG)).value_serde == LONG
    assert stream.select_key(per_record(record, LONG)).key_serde == LONG
    mapped = stream.map(per_record(record, (LONG, DOUBLE)))
    assert (mapped.key_serde, mapped.value_serde) == (LONG, DOUBLE)
    assert stream.group_by_key().aggregate(int, per_record(three, LONG)).value_serde == LONG


def test_a_function_by_record_takes_the_key_if_it_needs_two_arguments(b: StreamsBuilder) -> None:
    function = per_record(record)
    b.stream("in").map_values(function, name="mapped")
    assert node(b.build(), "mapped").operation == op.MapValues(function, True)


class Noop:
    def process(self, record: Any) -> None:
        pass


def test_a_processor_brings_stores_or_names_them(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("named"))
    processed = b.stream("in", key=STRING).process(Noop, "named", Stores.session_store("own", 5), name="p")
    topology = b.build()
    assert node(topology, "p").operation == op.ProcessRecords(Noop, ("named", "own"))
    assert set(node(topology, "p").stores) == {"named", "own"} == set(topology.stores)
    assert (processed.key_serde, processed.repartition_required) == (None, True)


def test_a_processor_of_values_keeps_keys_and_needs_no_repartition(b: StreamsBuilder) -> None:
    processed = b.stream("in", key=STRING).process_values(Noop, value=LONG)
    assert (processed.key_serde, processed.value_serde, processed.repartition_required) == (STRING, LONG, False)


def test_stores_that_nobody_uses_are_left_out(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("unused"))
    b.stream("in").to("out")
    assert not b.build().stores


def test_building_does_not_change_what_was_built(b: StreamsBuilder) -> None:
    stream = b.stream("in").group_by_key()
    stream.count(name="one")
    first = b.build()
    text = first.describe()
    stream.count(name="two")
    assert first.describe() == text
    assert "two" in b.build().nodes
