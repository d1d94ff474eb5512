"""Ready-made aggregators in every kind of group."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from tests.operators.harness import start
from tidemill import Aggregators, Serdes, SessionWindows, StreamsBuilder, per_record
from tidemill.dsl.aggregators import Aggregator
from tidemill.errors import TopologyError

TEXT, LONG, DOUBLE = Serdes.string(), Serdes.long(), Serdes.double()


def over(aggregator: Aggregator, *values: Any) -> Any:
    made = aggregator.initializer()
    for value in values:
        made = aggregator.aggregator("k", value, made)
    return made


def test_each_aggregates_what_it_is_named_after() -> None:
    assert over(Aggregators.count(), "a", "b") == 2
    assert over(Aggregators.sum(LONG), 3, 4) == 7
    assert over(Aggregators.sum(DOUBLE)) == 0.0
    assert over(Aggregators.min(LONG), 3, 1, 2) == 1
    assert over(Aggregators.max(LONG)) is None
    assert over(Aggregators.max(LONG), 3, 1, 5) == 5
    assert over(Aggregators.mean(), 1, 2) == {"count": 2, "sum": 3.0, "mean": 1.5}
    assert over(Aggregators.collect("string", limit=2), "a", "a", "b") == {"values": ["a", "a"]}
    assert over(Aggregators.collect("string", distinct=True), "a", "b", "a") == {"values": ["a", "b"]}


def test_nan_is_the_greatest_number_wherever_it_comes() -> None:
    nan = float("nan")
    for values in ([nan, 2.0, 1.0], [2.0, nan, 1.0], [2.0, 1.0, nan]):
        assert over(Aggregators.min(DOUBLE), *values) == 1.0
        assert math.isnan(over(Aggregators.max(DOUBLE), *values))
    assert math.isnan(over(Aggregators.min(DOUBLE), nan, nan))
    assert math.isnan(Aggregators.max(DOUBLE).merger("k", nan, 1.0))


def test_a_mean_of_decimals_is_a_double() -> None:
    mean = Aggregators.mean(lambda payment: payment["amount"])
    paid = over(mean, {"amount": Decimal("1.25")}, {"amount": Decimal("2.75")})
    assert paid == {"count": 2, "sum": 4.0, "mean": 2.0}
    assert mean.subtractor("k", {"amount": Decimal("2.75")}, paid) == {"count": 1, "sum": 1.25, "mean": 1.25}


def test_an_aggregator_can_be_sent_to_a_worker_with_a_function_that_refers_to_it() -> None:
    total = Aggregators.sum(Serdes.long())
    sent = cloudpickle.loads(cloudpickle.dumps(total))
    assert (sent.initializer(), sent.aggregator("k", 2, 3), sent.merger("k", 2, 3), sent.subtractor("k", 2, 3)) == (0, 5, 5, 1)


def test_of_says_what_goes_in_and_nulls_are_passed_over() -> None:
    amount = Aggregators.sum(LONG, lambda order: order["amount"])
    assert over(amount, {"amount": 3}, {"amount": None}, {"amount": 4}) == 7
    assert over(Aggregators.count(lambda order: order["amount"]), {"amount": 3}, {"amount": None}) == 1


@given(st.lists(st.integers(-1000, 1000)), st.lists(st.integers(-1000, 1000)))
def test_two_aggregates_merge_to_that_of_all_values(first: list[int], second: list[int]) -> None:
    for made in (Aggregators.count(), Aggregators.sum(LONG), Aggregators.min(LONG), Aggregators.max(LONG), Aggregators.mean(),
                 Aggregators.collect("bigint", limit=7), Aggregators.collect("bigint", distinct=True)):  # fmt: skip
        assert made.merger("k", over(made, *first), over(made, *second)) == over(made, *first, *second)


@given(st.lists(st.integers(-1000, 1000)), st.integers(-1000, 1000))
def test_what_is_taken_out_was_never_in(values: list[int], gone: int) -> None:
    for made in (Aggregators.count(), Aggregators.sum(LONG), Aggregators.mean()):
        assert made.subtractor("k", gone, over(made, *values, gone)) == over(made, *values)


def test_what_can_not_be_taken_out_is_refused() -> None:
    with pytest.raises(TopologyError, match="can't take values out"):
        _ = Aggregators.max(LONG).subtractor


def test_a_function_in_the_place_of_a_serde_is_told_where_it_goes() -> None:
    amount: Any = lambda order: order["amount"]  # noqa: E731
    for make in (Aggregators.sum, Aggregators.min, Aggregators.max):
        with pytest.raises(TopologyError, match=rf"a serde comes before the function: Aggregators\.{make.__name__}\(Serdes"):
            make(amount)
    nothing: Any = None
    for serde in (TEXT, Serdes.boolean(), Serdes.json("amount double")):
        with pytest.raises(TopologyError, match=f"sum: the values of the serde {serde.name} are no numbers; give that of some"):
            Aggregators.sum(serde, lambda order: order["amount"])
    assert over(Aggregators.sum(Serdes.json()), 3, 4.5) == 7.5
    with pytest.raises(TopologyError, match="sum: no serde given; name the serde of the values"):
        Aggregators.sum(nothing)
    with pytest.raises(TopologyError, match=r"is not a Spark type; write collect\('double', lambda"):
        Aggregators.collect(amount)
    field: Any = "amount"
    with pytest.raises(TopologyError, match=r"expected a function of a value, such as .*, got 'amount'"):
        Aggregators.mean(field)


def test_a_sketch_estimates_how_many_are_distinct_also_merged() -> None:
    from datasketches import hll_sketch

    made = Aggregators.approx_count_distinct()
    first, second = over(made, *range(2_000)), over(made, *range(1_000, 3_000))
    assert hll_sketch.deserialize(first).get_estimate() == pytest.approx(2_000, rel=0.05)
    assert hll_sketch.deserialize(made.merger("k", first, second)).get_estimate() == pytest.approx(3_000, rel=0.05)
    with pytest.raises(TopologyError, match=r"precision is 3"):
        Aggregators.approx_count_distinct(precision=3)


def test_they_fit_plain_groups_sessions_and_grouped_tables() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=LONG)
    grouped = stream.group_by_key(key=TEXT, value=LONG)
    grouped.aggregate(*Aggregators.max(LONG)).to_stream().to("greatest", key=TEXT, value=LONG)
    total = Aggregators.sum(LONG)
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap(10, grace=100)).aggregate(*total, total.merger)
    sessions.to_stream(per_record(lambda window, _: window.key, TEXT)).to("sessions", key=TEXT, value=LONG)
    table = builder.table("rows", key=TEXT, value=LONG)
    by_all = table.group_by(per_record(lambda _, v: ("all", v), (TEXT, LONG)), key=TEXT, value=LONG)
    by_all.aggregate(*total, total.subtractor).to_stream().to("total", key=TEXT, value=LONG)
    run = start(builder.build())
    for at, (topic, key, value, timestamp) in enumerate([
        ("in", "a", 5, 0), ("in", "a", 3, 20), ("in", "a", 4, 10), ("rows", "x", 7, 0), ("rows", "y", 1, 0), ("rows", "x", 2, 0),
    ]):  # fmt: skip
        run.pipe(at, topic, TEXT.serialize(key), LONG.serialize(value), timestamp)
    last = {topic: LONG.deserialize(value) for topic, _, value, *_ in run.written if value and len(value) == 8}
    assert (last["greatest"], last["sessions"], last["total"]) == (5, 12, 3)
