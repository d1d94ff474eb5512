"""A stream joined with a versioned table sees the row as of each record's time, whatever the table is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.harness import start
from tests.operators.random_programs import built, cases
from tests.operators.step_harness import StepRun
from tidemill import Joined, Materialized, Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.errors import RecordError
from tidemill.operators.versioned_tables import is_versioned_table

STRING = Serdes.string()
BY_VALUE = per_record(lambda k, v: (k, v), (STRING, STRING))


def kept(value: Any = STRING) -> Materialized:
    return Materialized(name="kept", history_retention=60_000, key=STRING, value=value)


def newest(_one: str, other: str) -> str:
    return other


TABLES: dict[str, Callable[[StreamsBuilder], Any]] = {
    "table": lambda b: b.table("in", store=kept()),
    "to_table": lambda b: b.stream("in").to_table(store=kept()),
    "count": lambda b: b.stream("in").group_by_key().count(store=kept(None)),
    "reduce": lambda b: b.stream("in").group_by_key().reduce(newest, store=kept()),
    "aggregate": lambda b: b.stream("in").group_by_key().aggregate(str, lambda k, v, a: v, store=kept()),
    "cogroup": lambda b: b.stream("in").group_by_key().cogroup(lambda k, v, a: v).aggregate(str, store=kept()),
    "grouped table's count": lambda b: b.table("in").group_by(BY_VALUE).count(store=kept(None)),
    "grouped table's reduce": lambda b: b.table("in").group_by(BY_VALUE).reduce(newest, lambda a, v: a, store=kept()),
    "grouped table's aggregate": lambda b: b.table("in").group_by(BY_VALUE).aggregate(
        str, lambda k, v, a: v, lambda k, v, a: a, store=kept()
    ),
    "join": lambda b: b.table("in").left_join(b.table("other"), lambda v, _o: v, store=kept()),
    "foreign-key join": lambda b: b.table("in").left_join(
        b.table("other"), lambda v, _o: v, foreign_key=lambda v: v, store=kept()
    ),
}  # fmt: skip
VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda table: table,
    "filtered": lambda table: table.filter(per_record(lambda k, v: True)),
    "mapped, with serdes": lambda table: table.map_values(per_record(str, STRING), store=Materialized(key=STRING)),
    "transformed": lambda table: table.transform_values(Same),
}


class Same:
    def transform(self, _key: Any, value: Any) -> Any:
        return None if value is None else str(value)


def joined(table: str, view: str, grace: int | None, batches: list[list[tuple[str, str, int]]]) -> list[str]:
    """What the join gives for records (topic, value, timestamp) of one key."""
    builder = StreamsBuilder()
    looked_up = VIEWS[view](TABLES[table](builder))
    asked = builder.stream("ask").left_join(looked_up, lambda v, n: f"{v}: {n}", joined=Joined(name="j", grace=grace))
    asked.to("out", value=STRING)
    run = StepRun(builder.build())
    for batch in batches:
        run.pipe([(topic, b"k", value.encode(), at, ()) for topic, value, at in batch])
    return [value.decode() for topic, _key, value, *_ in run.written if topic == "out" and value is not None]


PUT = [[("in", "a", 1000)], [("in", "b", 2000)], [("in", "c", 3000)]]
ASKED = [("ask", "before", 999), ("ask", "second", 2500), ("ask", "third", 3000), ("ask", "late", 1500), ("ask", "last", 9000)]
COUNTED = ["before: None", "second: 2", "third: 3", "late: 1", "last: 3"]
TAKEN = ["before: None", "second: b", "third: c", "late: a", "last: c"]


def expected(table: str) -> list[str]:
    if table == "grouped table's count":  # its group is left and entered again: one row stays
        return ["before: None", "second: 1", "third: 1", "late: 1", "last: 1"]
    return COUNTED if table == "count" else TAKEN


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("table", TABLES)
def test_each_record_sees_the_row_as_of_its_time(table: str, view: str) -> None:
    one_by_one = [*PUT, *([asked] for asked in ASKED)]
    assert joined(table, view, None, one_by_one) == expected(table)
    assert joined(table, view, None, [*PUT, ASKED]) == expected(table)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("table", TABLES)
def test_with_a_grace_it_does_when_its_turn_has_come(table: str, view: str) -> None:
    second, third, late = expected(table)[1:4]
    assert joined(table, view, 100, [*PUT, *([asked] for asked in ASKED[1:])]) == [second, late, third]
    assert joined(table, view, 100, [*PUT, ASKED[1:]]) == [second, late, third]


def test_every_versioned_table_of_programs_of_chance_answers_as_of_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for case in cases(every=5):
        run = start(built(case, monkeypatch))
        versioned = [name for name in run.topology.nodes if is_versioned_table(run.topology, name)]
        assert [name for name in versioned if run.graph.table_as_of(name) is None] == []
        found += len(versioned)
    assert found > 10


@pytest.mark.parametrize("problem", [ValueError("bad"), SystemExit(3)])
def test_a_joiner_that_fails_on_a_record_that_has_waited_is_reported_with_its_offset(problem: BaseException) -> None:
    def joined(value: str, row: str) -> str:
        if value == "bad":
            raise problem
        return value + row

    builder = StreamsBuilder()
    history = Materialized(name="versions", history_retention=1000)
    table = builder.table("t", key=STRING, value=STRING, store=history)
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.join(table, per_record(joined, STRING), joined=Joined(grace=10)).to("out")
    run = start(builder.build())
    run.pipe(0, "t", b"k", b"row", 1)
    run.pipe(0, "in", b"k", b"bad", 2)
    with pytest.raises(RecordError, match=r"in-0 at offset 0: the function of KSTREAM-JOIN-\d+ failed"):
        run.pipe(1, "in", b"k", b"good", 50)
