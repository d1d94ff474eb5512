"""Programs of chance with many tables give what Kafka Streams gives on the Spark plan too, with functions of Columns wherever the
plan takes them: without caches record for record, with its default ``statestore.cache.max.bytes`` the last record of each key and
input. ``tests/operators/test_table_programs.py`` runs them with Python functions only.

A text is ``S`` and the text in functions too, so that the JVM, which has strings only, can tell it from a number.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.operators.answered_programs import Case, PassesOn, cases
from tests.operators.harness import WaitingTopics
from tests.operators.test_table_programs import Sent, last_of_each_input
from tests.topology import random_dsl_programs
from tidemill import Joined, Materialized, StreamJoined, of_columns, per_record
from tidemill.errors import TopologyError
from tidemill.testing import TopologyTestDriver
from tidemill.testing.topics import RawRecord
from tidemill.topology.windows import Windowed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CASES = cases("table_programs_run")
TAKES_ALL = os.environ.get("TIDEMILL_ALL_VECTORS") == "1"
NUMBERS = range(len(CASES)) if TAKES_ALL else range(53, len(CASES), 107)


class Texts:
    """``S`` and a text, ``L`` and a number, ``W`` and a window. In the JVM a number has no ``L``, and a window is as printed."""

    name, sql_type = "texts", "string"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else written(value).encode()

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else read(bytes(data).decode())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Texts)

    def __hash__(self) -> int:
        return hash(Texts)


def written(value: Any) -> str:
    if isinstance(value, Windowed):
        return f"W{value.start}|{value.end}|{written(value.key)}"
    text = str(value)
    if text[:1] == "S":
        return text
    windowed = re.fullmatch(r"\[(.*)@(\d+)/(\d+)\]", text, re.DOTALL)
    return f"W{windowed[2]}|{windowed[3]}|{written(windowed[1])}" if windowed else f"L{int(text)}"


def read(text: str) -> Any:
    if text[0] == "W":
        start, end, key = text[1:].split("|", 2)
        return Windowed(read(key), int(start), int(end))
    return int(text[1:]) if text[0] == "L" else text


TEXTS = Texts()
PAIR = (TEXTS, TEXTS)


def text_of(value: Any) -> str:
    return "null" if value is None else str(value).removeprefix("S")


def text_column(value: Column) -> Column:
    text = value.cast("string")
    return F.when(text.startswith("S"), text.substr(F.lit(2), F.length(text))).otherwise(text)


def or_word_null(value: Column) -> Column:
    return F.coalesce(text_column(value), F.lit("null"))


def sum_column(text: Column) -> Column:
    return F.aggregate(F.transform(F.split(text, ""), F.ascii), F.lit(0), lambda one, other: one + other)


@dataclass(frozen=True)
class Functions:
    """Those of ``answered_programs``, in both ways. ``give_nulls``: for some texts."""

    give_nulls: bool

    def text(self, text: str, divisor: int) -> str | None:
        return None if self.give_nulls and sum(map(ord, text)) % divisor == 0 else f"S{text}"

    def column(self, text: Column, divisor: int) -> Column:
        made = F.concat(F.lit("S"), text)
        return F.when(sum_column(text) % divisor != 0, made) if self.give_nulls else made

    def first(self, value: Any) -> str | None:
        text = "" if value is None else text_of(value)
        return None if text[:1] in ("", "-") else f"S{text[0]}"

    def first_column(self, value: Column) -> Column:
        text = text_column(value)
        return F.when((text != "") & ~text.startswith("-"), F.concat(F.lit("S"), F.substring(text, 1, 1)))

    def key(self, _key: Any, value: Any) -> str | None:
        return self.first(value)

    def key_column(self, _key: Column, value: Column) -> Column:
        return self.first_column(value)

    def pair(self, _key: Any, value: Any) -> tuple[str | None, Any]:
        return self.first(value), value

    def pair_column(self, _key: Column, value: Column) -> tuple[Column, Column]:
        return self.first_column(value), value

    def ending(self, letter: str, value: Any) -> str | None:
        return None if value is None else self.text((text_of(value) + letter)[-14:], 5)

    def mapped(self, value: Any) -> str | None:
        return self.ending("m", value)

    def mapped_column(self, value: Column) -> Column:
        return F.when(value.isNotNull(), self.column(F.right(F.concat(text_column(value), F.lit("m")), F.lit(14)), 5))

    def several(self, value: Any) -> list[Any]:
        return [value, f"S{(text_of(value) + 'f')[-14:]}"]

    def several_column(self, value: Column) -> Column:
        return F.array(value, F.concat(F.lit("S"), F.right(F.concat(or_word_null(value), F.lit("f")), F.lit(14))))

    def passes(self, _key: Any, value: Any) -> bool:
        return sum(map(ord, text_of(value))) % 3 != 0

    def passes_column(self, _key: Column, value: Column) -> Column:
        return sum_column(or_word_null(value)) % 3 != 0

    def slash(self, one: Any, other: Any) -> str | None:
        return self.text(f"{text_of(one)}/{text_of(other)}"[-14:], 5)

    def slash_column(self, one: Column, other: Column) -> Column:
        return self.column(F.right(F.concat(or_word_null(one), F.lit("/"), or_word_null(other)), F.lit(14)), 5)

    def add(self, one: Any, other: Any) -> str | None:
        return self.text((text_of(one) + text_of(other))[-14:], 4)

    def add_column(self, one: Column, other: Column) -> Column:
        return self.column(F.right(F.concat(or_word_null(one), or_word_null(other)), F.lit(14)), 4)

    def subtract(self, one: Any, other: Any) -> str | None:
        return self.text(text_of(one).replace(text_of(other), "", 1), 4)

    def aggregate(self, _key: Any, value: Any, aggregated: Any) -> str | None:
        return self.add(aggregated, value)

    def take_away(self, _key: Any, value: Any, aggregated: Any) -> str | None:
        return self.subtract(aggregated, value)

    def merge(self, _key: Any, one: Any, other: Any) -> str | None:
        return self.text(f"{text_of(one)}+{text_of(other)}"[-14:], 7)


def initial() -> str:
    return "Si"


@dataclass(frozen=True)
class Transformer:
    functions: Functions

    def transform(self, _key: Any, value: Any) -> str | None:
        return self.functions.ending("t", value)


def kept(text: str) -> Materialized | None:
    if text.startswith("v!"):
        return Materialized(name=text[2:], history_retention=3_600_000, key=TEXTS, value=TEXTS)
    return None if text == "-" else Materialized(name=None if text == "with" else text, key=TEXTS, value=TEXTS)


class Program(random_dsl_programs.Program):
    """Runs the steps of a program against the DSL, with Columns in all steps but those in ``by_python``."""

    def __init__(self, case: Case, by_python: frozenset[str], *, merges: bool) -> None:
        self.functions, self.by_python, self.merges = Functions(case.get("nulls", False)), by_python, merges
        self.by_columns: list[str] = []
        # Named by their results: a refusal names the nodes.
        unnamed = ("to", "group_by", "group_by_key", "tgroup", "stream", "table", "fk", "lfk")
        super().__init__([[s[0], s[1], s[2], "-" if s[0] in unnamed else f"is-{s[1]}", *s[4:]] for s in case["program"]])

    def _written(self, result: str, columns: Any, python: Any) -> Any:
        if result in self.by_python:
            return python
        self.by_columns.append(result)
        return columns

    def run_simple(self, operator: str, result: str, above: str, name: str | None) -> None:
        at, f = self.made[above], self.functions
        of_columns_and_python: dict[str, tuple[Any, Any]] = {
            "filter": (f.passes_column, per_record(f.passes)),
            "filter_not": (f.passes_column, per_record(f.passes)),
            "select_key": (f.key_column, per_record(f.key, TEXTS)),
            "group_by": (f.key_column, per_record(f.key, TEXTS)),
            "map": (f.pair_column, per_record(f.pair, PAIR)),
            "map_values": (f.mapped_column, per_record(f.mapped, TEXTS)),
            "flat_map_values": (f.several_column, per_record(f.several, TEXTS)),
        }
        serdes = {"key": TEXTS, "value": TEXTS} if operator.startswith("group_by") else {}
        if operator in of_columns_and_python:
            functions: Sequence[Any] = (self._written(result, *of_columns_and_python[operator]),)
        else:
            functions = (lambda _key, _value: None,) if operator == "peek" else ()
        self.made[result] = getattr(at, operator)(*functions, name=name, **serdes)

    def run_to(self, _result: str, above: str, name: str | None, topic: str) -> None:
        self.made[above].to(topic, key=TEXTS, value=TEXTS, name=name)

    def run_process_values(self, result: str, above: str, name: str | None, stores: str) -> None:
        self.made[result] = self.made[above].process_values(PassesOn, name=name)

    def run_to_table(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].to_table(name=name, store=kept(store))

    def run_reduce(self, result: str, above: str, name: str | None, store: str) -> None:
        add: Any = self.functions.add
        if self.merges and not self.functions.give_nulls and not store.startswith("v!"):
            add = self._written(result, of_columns(self.functions.add_column), add)
        self.made[result] = self.made[above].reduce(add, name=name, store=kept(store))

    def run_aggregate(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].aggregate(initial, self.functions.aggregate, name=name, store=kept(store))

    def run_wreduce(self, result: str, above: str, name: str | None, store: str, cut: str, emit: str) -> None:
        self.made[result] = self._windowed(above, cut, emit).reduce(self.functions.add, name=name, store=kept(store))

    def run_waggregate(self, result: str, above: str, name: str | None, store: str, cut: str, emit: str) -> None:
        functions = (initial, self.functions.aggregate, *self._mergers(cut))
        self.made[result] = self._windowed(above, cut, emit).aggregate(*functions, name=name, store=kept(store))

    def _mergers(self, cut: str) -> tuple[Callable[..., Any], ...]:
        return (self.functions.merge,) if cut.startswith("e") else ()

    def run_cogroup(self, result: str, above: str, name: str | None, store: str, cut: str) -> None:
        one, *others = above.split(",")
        cogrouped = self.made[one].cogroup(self.functions.aggregate)
        for other in others:
            cogrouped = cogrouped.cogroup(self.made[other], self.functions.aggregate)
        if cut != "-":
            cogrouped = cogrouped.windowed_by(random_dsl_programs.windows(cut))
        self.made[result] = cogrouped.aggregate(initial, *self._mergers(cut), name=name, store=kept(store))

    def run_tfilter(self, result: str, above: str, name: str | None, store: str) -> None:
        passes = self._written(result, self.functions.passes_column, per_record(self.functions.passes))
        self.made[result] = self.made[above].filter(passes, name=name, store=kept(store))

    def run_tmap_values(self, result: str, above: str, name: str | None, store: str) -> None:
        mapped = self._written(result, self.functions.mapped_column, per_record(self.functions.mapped, TEXTS))
        self.made[result] = self.made[above].map_values(mapped, name=name, store=kept(store))

    def run_ttransform(self, result: str, above: str, name: str | None, store: str, stores: str) -> None:
        transformer = partial(Transformer, self.functions)
        self.made[result] = self.made[above].transform_values(transformer, name=name, store=kept(store))

    def run_tgroup(self, result: str, above: str, name: str | None) -> None:
        self.made[result] = self.made[above].group_by(self.functions.pair, key=TEXTS, value=TEXTS, name=name)

    def run_greduce(self, result: str, above: str, name: str | None, store: str) -> None:
        f = self.functions
        self.made[result] = self.made[above].reduce(f.add, f.subtract, name=name, store=kept(store))

    def run_gaggregate(self, result: str, above: str, name: str | None, store: str) -> None:
        f = self.functions
        self.made[result] = self.made[above].aggregate(initial, f.aggregate, f.take_away, name=name, store=kept(store))

    def _join(self, method: str, result: str, above: str, other: str, **options: Any) -> None:
        joiner: Any = per_record(self.functions.slash, TEXTS)
        if isinstance(options.get("joined"), Joined):
            joiner = self._written(result, of_columns(self.functions.slash_column), joiner)
        if "foreign_key" in options:
            options["foreign_key"] = self.functions.first
        asked = options.get("store")
        if isinstance(asked, Materialized):
            asked = f"v!{asked.name}" if asked.history_retention else "with" if asked.name is None else asked.name
        options |= {"store": kept(asked)} if asked is not None else {}
        self.made[result] = getattr(self.made[above], method)(self.made[other], joiner, **options)

    def _stream_join(self, method: str, result: str, above: str, name: str | None, other: str, store: str, cut: str) -> None:
        joined = StreamJoined(name=name, key=TEXTS, value=TEXTS, other_value=TEXTS)
        self._join(method, result, above, other, windows=random_dsl_programs.windows(cut), joined=joined)


class OneByOne(TopologyTestDriver):
    """Each record of a repartition topic is a batch of its own too, behind which it commits, as in Kafka Streams' driver, and of
    several topics it takes the one whose first record is the oldest."""

    def _pipe(self, records: Sequence[RawRecord]) -> None:
        waiting, batch = WaitingTopics(), list(records)
        while batch:
            sent, _ = self._run(batch)
            for record in sent:
                self._written.setdefault(record.topic, []).append(record)
                if record.topic in self._topics_read:
                    waiting.add((record.topic, record.key, record.value, record.timestamp, record.headers))
            batch = [RawRecord(*waiting.take())] if waiting else []

    def sent_by(self, case: Case) -> Sent:
        found: Sent = []
        outputs = sorted(step[4] for step in case["program"] if step[0] == "to")
        for at, (topic, key, value, timestamp) in enumerate(case["inputs"]):
            before = {to: len(self._written.get(to, ())) for to in outputs}
            if topic in self._topics_read:
                self._pipe([RawRecord(topic, *(None if side is None else side.encode() for side in (key, value)), timestamp)])
            for to in outputs:
                for sent in self._written.get(to, [])[before[to] :]:
                    sides = (None if side is None else side.decode() for side in (sent.key, sent.value))
                    found.append([at, to, *sides, sent.timestamp])
        return found


def driver_of(case: Case, session: SparkSession, *, has_caches: bool) -> OneByOne:
    """With Columns in all steps that may have them, but for those that the plan refuses and wants of Python values."""
    config: dict[str, object] = {"default.key.serde": TEXTS, "default.value.serde": TEXTS}
    if not has_caches:
        config["statestore.cache.max.bytes"] = 0
    chance, by_python = random.Random(str(case["inputs"])), frozenset[str]()
    while True:
        program = Program(case, by_python, merges=has_caches)
        if not program.by_columns:
            assert TAKES_ALL, "a program of the sample has a function that can be one of Columns: sample others"
            pytest.skip("the plan takes no function of this program with Columns")
        try:
            topology = program.builder.build(optimization=case["topology_optimization"])
            return OneByOne(topology, config, session=session)
        except TopologyError as error:
            if "works on columns, but" not in str(error) and "the column has type" not in str(error):
                raise
            named = sorted({*re.findall(r"\bis-(\w+)", str(error))} & {*program.by_columns}) or program.by_columns
            by_python |= {chance.choice(named)}


def of_each_key(sent: Sent) -> Sent:
    """In the order of each key: which of two repartition topics with equal timestamps is read first decides that between keys."""
    return sorted(sent, key=lambda one: (one[0], one[1], str(one[2])))


@pytest.fixture
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(random_dsl_programs, "STRING", TEXTS)
    return CASES[request.param]


@pytest.mark.parametrize("case", NUMBERS, indirect=True)
def test_without_caches_each_record_is_that_of_kafka_streams(case: Case, spark: SparkSession) -> None:
    with (driver := driver_of(case, spark, has_caches=False)):
        assert of_each_key(driver.sent_by(case)) == of_each_key(case["outputs"])
        assert driver.dropped == case["dropped"]


@pytest.mark.parametrize("case", NUMBERS, indirect=True)
def test_with_caches_each_record_leaves_what_it_leaves_in_kafka_streams(case: Case, spark: SparkSession) -> None:
    with (driver := driver_of(case, spark, has_caches=True)):
        assert last_of_each_input(driver.sent_by(case)) == last_of_each_input(case["outputs_cached"])
