"""Programs of the DSL drawn by chance. Each of their functions is written in one of four ways: with Columns, or as a Python
function of a record or of a batch, or as a coroutine function. However it is written, it is the same program.

Values are text, whole numbers or JSON structs, which may be null, as may keys. How many of a key's updates are passed on
depends on the micro-batches, so ``Program.checks`` says for each output what holds for all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from inspect import signature
from typing import Any

import pandas as pd
from pyspark.sql import functions as F

from tidemill import (
    EmitStrategy,
    GlobalKTable,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    PunctuationType,
    Record,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    Windows,
    of_columns,
    per_batch,
    per_record,
    per_record_async,
)
from tidemill.topology.windows import Windowed

TEXT, NUMBER, ORDER = Serdes.string(), Serdes.long(), Serdes.json("n bigint, s string")
SERDES: dict[str, Serde] = {"text": TEXT, "number": NUMBER, "order": ORDER}
Sent = tuple[str, "str | None", Any, int, tuple[tuple[str, bytes | None], ...]]
"""Kind of value (its topic), key, value, timestamp, headers."""


class Way(Enum):
    COLUMNS = 0
    RECORD = 1
    BATCH = 2
    ASYNC = 3


class Same(Enum):
    """What is the same however many records a micro-batch has."""

    UPDATES = "each key's records"
    ROWS = "each key's last value"
    NOTHING = "what updates a stream of a table gets depends on the batches"


@dataclass(frozen=True)
class Function:
    """One function in its ways; None where there is none. Where it may be one of batches, it may be a coroutine function."""

    columns: Callable[..., Any] | None
    record: Callable[..., Any]
    batch: Callable[..., Any] | None = None


def _unless_null(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


def _awaited(function: Callable[..., Any], *, of_both: bool) -> Callable[..., Any]:
    async def of_value(value: Any) -> Any:
        return function(value)

    async def of_pair(key: Any, value: Any) -> Any:
        return function(key, value)

    return of_pair if of_both else of_value


def _without_batch(function: Function) -> Function:
    return Function(function.columns, function.record)


PASSES = {
    "text": Function(lambda k, v: F.length(v) > 1, lambda k, v: v is not None and len(v) > 1, lambda k, v: v.str.len() > 1),
    "number": Function(lambda k, v: v % 2 == 0, lambda k, v: v is not None and v % 2 == 0, lambda k, v: v % 2 == 0),
    "order": Function(
        lambda k, v: v["n"] > 2,
        lambda k, v: v is not None and v["n"] is not None and v["n"] > 2,
        lambda k, v: (v["n"] > 2).fillna(False).astype(bool),
    ),
}
HAS_KEY = Function(lambda k, v: k != "b", lambda k, v: k is not None and k != "b")
MAPS = {
    ("text", "text"): Function(lambda v: F.concat(v, F.lit("!")), _unless_null(lambda v: v + "!"), lambda v: v + "!"),
    ("text", "number"): Function(lambda v: F.length(v).cast("bigint"), _unless_null(len), lambda v: v.str.len()),
    ("text", "order"): Function(
        lambda v: F.when(v.isNotNull(), F.struct(F.length(v).cast("bigint").alias("n"), v.alias("s"))),
        _unless_null(lambda v: {"n": len(v), "s": v}),
        lambda v: pd.DataFrame({"n": v.str.len(), "s": v}),
    ),
    ("number", "text"): Function(lambda v: v.cast("string"), _unless_null(str), lambda v: v.astype(str)),
    ("number", "number"): Function(lambda v: v * 3 + 1, _unless_null(lambda v: v * 3 + 1), lambda v: v * 3 + 1),
    ("number", "order"): Function(
        lambda v: F.when(v.isNotNull(), F.struct(v.alias("n"), v.cast("string").alias("s"))),
        _unless_null(lambda v: {"n": v, "s": str(v)}),
        lambda v: pd.DataFrame({"n": v, "s": v.astype(str)}),
    ),
    ("order", "text"): Function(lambda v: v["s"], _unless_null(lambda v: v["s"]), lambda v: v["s"]),
    ("order", "number"): Function(
        lambda v: v["n"] + 1, _unless_null(lambda v: None if v["n"] is None else v["n"] + 1), lambda v: v["n"] + 1
    ),
}
KEYS = {
    "text": Function(lambda k, v: F.substring(v, 1, 1), lambda k, v: None if v is None else v[:1], lambda k, v: v.str[:1]),
    "number": Function(
        lambda k, v: F.abs(v % 3).cast("string"), lambda k, v: None if v is None else str(abs(v) % 3),
        lambda k, v: (v.astype("Int64").abs() % 3).astype("string"),
    ),
    "order": Function(lambda k, v: v["s"], lambda k, v: None if v is None else v["s"], lambda k, v: v["s"]),
}
UPPER_KEY = Function(lambda k, v: F.upper(k), lambda k, v: None if k is None else k.upper())
PIECES = Function(lambda v: F.split(v, ","), lambda v: [] if v is None else v.split(","), lambda v: v.str.split(","))
PIECES_BY_UPPER_KEY = Function(
    lambda k, v: F.transform(F.split(v, ","), lambda piece: F.struct(F.upper(k), piece)),
    lambda k, v: [] if v is None else [(None if k is None else k.upper(), piece) for piece in v.split(",")],
    lambda k, v: (
        [[one] * (0 if n is None else n + 1) for one, n in zip(k.str.upper(), _counts(v), strict=True)], v.str.split(","),
    ),
)  # fmt: skip
TURNED = Function(
    lambda k, v: (F.upper(k), v), lambda k, v: (None if k is None else k.upper(), v), lambda k, v: (k.str.upper(), v)
)
WINDOW_KEY = Function(
    lambda k, v: F.concat_ws("@", k["key"], k["start"]), lambda k, v: f"{k.key}@{k.start}",
    lambda k, v: k["key"] + "@" + k["start"].astype(str),
)
REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "text": max,
    "number": lambda one, other: one + other,
    "order": lambda one, other: {"n": (one["n"] or 0) + (other["n"] or 0), "s": other["s"]},
}


def _counts(values: Any) -> list[int | None]:
    return [value.count(",") if isinstance(value, str) else None for value in values]


@dataclass
class Made:
    """A stream or table of the program; ``inputs``: the topics that it comes from."""

    at: Any
    kind: str
    same: Same
    inputs: frozenset[str]
    is_versioned: bool = False
    is_above_versioned: bool = False
    """A table that may be a view of a versioned one."""


@dataclass
class Program:
    """The program of ``seed``, written in ``ways`` as ``choose`` draws them."""

    seed: int
    choose: Callable[[list[Way]], Way]
    builder: StreamsBuilder = field(default_factory=StreamsBuilder)
    inputs: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    checks: dict[str, Same] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    multiplies: bool = False
    """One record may become several at once, of which a table passes on one update for each key."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._streams: list[Made] = []
        self._tables: list[Made] = []
        self._globals: list[tuple[GlobalKTable, str]] = []
        for kind in self._chance.sample(sorted(SERDES), self._chance.choice([1, 2, 2, 3])):
            self.inputs.append(kind)
            topic, own, how = f"{kind}-in", frozenset({kind}), self._chance.random()
            extractor = _later_or_never if self._chance.random() < 0.15 else None
            serdes: dict[str, Any] = {"key": TEXT, "value": SERDES[kind], "timestamp_extractor": extractor}
            if how < 0.65 or (len(self.inputs) == 1 and how >= 0.9):
                self._streams.append(Made(self.builder.stream(topic, **serdes), kind, Same.UPDATES, own))
            elif how < 0.9:
                kept = self._history() if how > 0.8 else None
                self._tables.append(Made(self.builder.table(topic, store=kept, **serdes), kind, Same.ROWS, own, kept is not None))
            else:
                self._globals.append((self.builder.global_table(topic, key=TEXT, value=SERDES[kind]), kind))
        for _ in range(self._chance.randint(3, 8)):
            self._step()
        for number, stream in enumerate(self._streams[-4:]):
            self._write(f"stream-{number}", stream.at, stream)
        for number, table in enumerate(self._tables[-3:]):
            self._write(f"table-{number}", table.at.to_stream(), table)

    def _write(self, topic: str, stream: KStream, made: Made) -> None:
        stream.to(topic, key=TEXT, value=SERDES[made.kind])
        self.outputs[topic], self.checks[topic] = made.kind, made.same

    def _step(self) -> None:
        found = [*(STREAM_STEPS if self._streams else ()), *(TABLE_STEPS if self._tables else ())]
        step = self._chance.choice(found)
        made = self._chance.choice(self._streams if step in STREAM_STEPS else self._tables)
        self.steps.append(f"{step.__name__.strip('_')} of {made.kind}")
        step(self, made, self._chance.random(), self._chance.random())

    def _written(self, function: Function, serde: Any = None) -> Any:
        """The function in the way that is drawn."""
        forms: dict[Way, Any] = {Way.COLUMNS: function.columns, Way.RECORD: function.record, Way.BATCH: function.batch}
        if function.batch is not None:
            of_both = len(signature(function.record).parameters) == 2
            forms[Way.ASYNC] = _awaited(function.record, of_both=of_both)
        way = self.choose([way for way, form in forms.items() if form is not None])
        self.steps[-1] += f" {way.name.lower()}"
        form = forms[way]
        if way is Way.COLUMNS:
            return form
        wrap = {Way.RECORD: per_record, Way.BATCH: per_batch, Way.ASYNC: per_record_async}[way]
        return wrap(form) if serde is None else wrap(form, serde)

    def _stream(self, at: KStream, kind: str, same: Same, *of: Made) -> None:
        self._streams.append(Made(at, kind, same, frozenset().union(*(made.inputs for made in of))))

    def _table(self, at: KTable, kind: str, above: Same, *of: Made) -> None:
        same = above if above is Same.NOTHING else Same.ROWS
        is_view = any(isinstance(made.at, KTable) and (made.is_versioned or made.is_above_versioned) for made in of)
        self._tables.append(
            Made(at, kind, same, frozenset().union(*(made.inputs for made in of)), is_above_versioned=is_view)
        )

    def _unrelated(self, found: list[Made], at: float, to: Made) -> Made | None:
        """One that comes from other topics: else the order of what one record becomes on two ways would count."""
        others = [made for made in found if made.inputs.isdisjoint(to.inputs)]
        return others[int(at * len(others))] if others else None

    def _history(self) -> Materialized:
        return Materialized(name=f"history-{len(self.steps)}-{len(self.inputs)}", history_retention=1000)

    def _store(self, at: float) -> Any:
        return {"store": f"store-{len(self.steps)}"} if at < 0.5 else {}

    # --- streams ---------------------------------------------------------------------------------------------------

    def _filter(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.filter(self._written(PASSES[of.kind])), of.kind, of.same, of)

    def _filter_not(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.filter_not(self._written(HAS_KEY)), of.kind, of.same, of)

    def _map_values(self, of: Made, a: float, _b: float) -> None:
        to = self._mapped_to(of, a)
        self._stream(of.at.map_values(self._written(MAPS[of.kind, to], SERDES[to])), to, of.same, of)

    def _mapped_to(self, of: Made, at: float) -> str:
        found = [to for kind, to in MAPS if kind == of.kind]
        return found[int(at * len(found))]

    def _map(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.map(self._written(TURNED, (TEXT, SERDES[of.kind]))), of.kind, of.same, of)

    def _select_key(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.select_key(self._written(KEYS[of.kind], TEXT)), of.kind, of.same, of)

    def _flat_map_values(self, of: Made, _a: float, _b: float) -> None:
        if of.kind == "text":
            self.multiplies = True
            self._stream(of.at.flat_map_values(self._written(PIECES, TEXT)), "text", of.same, of)

    def _flat_map(self, of: Made, _a: float, _b: float) -> None:
        if of.kind == "text":
            self.multiplies = True
            self._stream(of.at.flat_map(self._written(PIECES_BY_UPPER_KEY, (TEXT, TEXT))), "text", of.same, of)

    def _peek(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.peek(lambda key, value: None), of.kind, of.same, of)

    def _process(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.process(PassesOn, key=TEXT, value=SERDES[of.kind]), of.kind, of.same, of)

    def _process_with_stores(self, of: Made, _a: float, _b: float) -> None:
        number = len(self.steps)
        stores = (
            Stores.key_value_store(f"seen-{number}", key=TEXT, value=NUMBER),
            Stores.window_store(f"recent-{number}", 40, 10, key=TEXT, value=TEXT, retain_duplicates=True),
            Stores.session_store(f"spans-{number}", 40, key=TEXT, value=NUMBER, persistent=False),
        )
        told = of.at.process(partial(Tells, number), *stores, key=TEXT, value=TEXT)
        self._stream(told, "text", of.same, of)

    def _process_on_schedule(self, of: Made, _a: float, _b: float) -> None:
        self.multiplies = True
        store = Stores.timestamped_key_value_store(f"latest-{len(self.steps)}", key=TEXT, value=SERDES[of.kind])
        self._stream(of.at.process(partial(Repeats, store.name), store, key=TEXT, value=TEXT), "text", Same.NOTHING, of)

    def _process_values(self, of: Made, _a: float, _b: float) -> None:
        store = Stores.versioned_key_value_store(f"versions-{len(self.steps)}", 20, key=TEXT, value=TEXT)
        told = of.at.filter(self._written(HAS_KEY)).process_values(partial(Remembers, store.name), store, value=TEXT)
        self._stream(told, "text", of.same, of)

    def _merge(self, of: Made, a: float, _b: float) -> None:
        found = [made for made in self._streams if made is not of and made.kind == of.kind]
        if found:
            other = found[int(a * len(found))]
            # What passes a repartition topic comes in another batch, so behind what does not.
            same = of.same if of.inputs == other.inputs and other.same is of.same else Same.NOTHING
            self._stream(of.at.merge(other.at), of.kind, same, of, other)

    def _split(self, of: Made, _a: float, _b: float) -> None:
        branches = of.at.split().branch(self._written(_without_batch(PASSES[of.kind])), name=f"some-{len(self.steps)}")
        for branch in branches.default_branch(name=f"others-{len(self.steps)}").values():
            self._stream(branch, of.kind, of.same, of)

    def _repartition(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.repartition(key=TEXT, value=SERDES[of.kind]), of.kind, of.same, of)
        self._streams[-1].inputs |= {f"repartition-{len(self.steps)}"}

    def _to_table(self, of: Made, a: float, _b: float) -> None:
        self._table(of.at.to_table(key=TEXT, value=SERDES[of.kind], **self._store(a)), of.kind, of.same, of)

    def _count(self, of: Made, a: float, _b: float) -> None:
        self._table(of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).count(**self._store(a)), "number", of.same, of)

    def _group_by_count(self, of: Made, a: float, _b: float) -> None:
        grouped = of.at.group_by(self._written(_without_batch(KEYS[of.kind]), TEXT), key=TEXT, value=SERDES[of.kind])
        self._table(grouped.count(**self._store(a)), "number", of.same, of)

    def _reduce(self, of: Made, a: float, _b: float) -> None:
        reducer: Any = REDUCERS[of.kind]
        if of.kind == "number" and self.choose([Way.COLUMNS, Way.RECORD]) is Way.COLUMNS:
            reducer = of_columns(reducer)
            self.steps[-1] += " columns"
        self._table(of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).reduce(reducer, **self._store(a)), of.kind, of.same, of)

    def _aggregate(self, of: Made, a: float, _b: float) -> None:
        grouped = of.at.group_by_key(key=TEXT, value=SERDES[of.kind])
        added = grouped.aggregate(lambda: 0, lambda k, v, total: total + 1 + len(str(v)), value=NUMBER, **self._store(a))
        self._table(added, "number", of.same, of)

    def _count_windows(self, of: Made, _a: float, _b: float) -> None:
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(TimeWindows.of_size(10))
        counted = windowed.count().to_stream()
        self._stream(counted.select_key(self._written(WINDOW_KEY, TEXT)), "number", Same.NOTHING, of)

    def _final_counts_of_windows(self, of: Made, _a: float, _b: float) -> None:
        self.multiplies = True
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(TimeWindows.of_size(10, grace=2))
        counted = windowed.count().suppress(Suppressed.until_window_closes()).to_stream()
        self._stream(counted.select_key(self._written(WINDOW_KEY, TEXT)), "number", Same.NOTHING, of)

    def _reduce_windows(self, of: Made, _a: float, _b: float) -> None:
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(TimeWindows.of_size(10, advance=5))
        reduced = windowed.reduce(_of_nulls_too(REDUCERS[of.kind])).to_stream()
        self._stream(reduced.select_key(self._written(WINDOW_KEY, TEXT)), of.kind, Same.NOTHING, of)

    def _count_sessions(self, of: Made, _a: float, _b: float) -> None:
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(SessionWindows.of_inactivity_gap(5))
        counted = windowed.count().to_stream()
        self._stream(counted.select_key(self._written(WINDOW_KEY, TEXT)), "number", Same.NOTHING, of)

    def _count_sliding_windows(self, of: Made, _a: float, _b: float) -> None:
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(SlidingWindows.of_time_difference(6, grace=3))
        self._windows(windowed.count(), "number", of)

    def _aggregate_one_window(self, of: Made, a: float, _b: float) -> None:
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(UnlimitedWindows.of(start=int(a * 20)))
        self._windows(windowed.aggregate(lambda: 0, lambda k, v, total: total + len(str(v)), value=NUMBER), "number", of)

    def _count_windows_of_ones_own(self, of: Made, a: float, _b: float) -> None:
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(OddWindows(grace=int(a * 5)))
        self._windows(windowed.count(**self._store(a)), "number", of)

    def _reduce_sessions(self, of: Made, a: float, _b: float) -> None:
        windowed = of.at.group_by_key(key=TEXT, value=SERDES[of.kind]).windowed_by(SessionWindows.of_inactivity_gap(4, grace=2))
        self._windows(windowed.reduce(_of_nulls_too(REDUCERS[of.kind]), **self._store(a)), of.kind, of)

    def _counts_of_closed_windows(self, of: Made, a: float, b: float) -> None:
        self.multiplies = True
        grouped = of.at.group_by_key(key=TEXT, value=SERDES[of.kind])
        windows: Any = [
            TimeWindows.of_size(10, advance=4, grace=1), SlidingWindows.of_time_difference(5),
            SessionWindows.of_inactivity_gap(3, grace=2),
        ][int(a * 3)]
        kept = Materialized(name=f"closed-{len(self.steps)}", persistent=b < 0.7)
        self._windows(grouped.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store=kept), "number", of)

    def _windows(self, table: KTable, kind: str, of: Made) -> None:
        self._stream(table.to_stream().select_key(self._written(WINDOW_KEY, TEXT)), kind, Same.NOTHING, of)

    def _cogroup_windows(self, of: Made, a: float, b: float) -> None:
        if other := self._unrelated(self._streams, a, of):
            one, more = (
                made.at.group_by_key(key=TEXT, value=SERDES[made.kind], name=f"{name}-{len(self.steps)}")
                for name, made in (("one", of), ("more", other))
            )
            lengths = one.cogroup(lambda k, v, total: total + len(str(v))).cogroup(more, lambda k, v, total: total + 1)
            if b < 0.5:
                table = lengths.windowed_by(TimeWindows.of_size(10)).aggregate(lambda: 0, key=TEXT, value=NUMBER)
            else:
                sessions = lengths.windowed_by(SessionWindows.of_inactivity_gap(5))
                table = sessions.aggregate(lambda: 0, lambda k, x, y: x + y, key=TEXT, value=NUMBER)
            self._windows(table, "number", of)
            self._streams[-1].inputs |= other.inputs

    def _cogroup(self, of: Made, a: float, _b: float) -> None:
        if other := self._unrelated(self._streams, a, of):
            one, more = (
                made.at.group_by_key(key=TEXT, value=SERDES[made.kind], name=f"{name}-{len(self.steps)}")
                for name, made in (("one", of), ("more", other))
            )
            lengths = one.cogroup(lambda k, v, total: total + len(str(v))).cogroup(more, lambda k, v, total: total + 1)
            self._table(lengths.aggregate(lambda: 0, value=NUMBER), "number", Same.NOTHING, of, other)

    def _joiner(self, one: Made, other: Made) -> Any:
        if one.kind == other.kind == "text" and self.choose([Way.COLUMNS, Way.RECORD]) is Way.COLUMNS:
            self.steps[-1] += " columns"
            return of_columns(lambda left, right: F.format_string("%s|%s", left, F.coalesce(right, F.lit("None"))))
        return per_record(_both, TEXT)

    def _join_a_table(self, of: Made, a: float, b: float) -> None:
        if other := self._unrelated(self._tables, a, of):
            join = of.at.join if b < 0.5 else of.at.left_join
            serdes = Joined(key=TEXT, value=SERDES[of.kind], other_value=SERDES[other.kind])
            self._stream(join(other.at, self._joiner(of, other), joined=serdes), "text", Same.NOTHING, of, other)

    def _join_a_stream(self, of: Made, a: float, b: float) -> None:
        if other := self._unrelated(self._streams, a, of):
            self.multiplies = True
            join = of.at.join if b < 0.5 else of.at.left_join
            serdes = StreamJoined(key=TEXT, value=SERDES[of.kind], other_value=SERDES[other.kind])
            windows = JoinWindows.of_time_difference(20)
            self._stream(join(other.at, self._joiner(of, other), windows, joined=serdes), "text", Same.NOTHING, of, other)

    def _join_itself(self, of: Made, a: float, b: float) -> None:
        self.multiplies = True
        join = of.at.join if b < 0.7 else of.at.left_join
        serdes = StreamJoined(key=TEXT, value=SERDES[of.kind], other_value=SERDES[of.kind])
        windows = JoinWindows.of_time_difference(4, before=int(a * 6), grace=3)
        self._stream(join(of.at, per_record(_both, TEXT), windows, joined=serdes), "text", Same.NOTHING, of)

    def _join_a_table_as_of_then(self, of: Made, a: float, b: float) -> None:
        tables = [made for made in self._tables if made.is_versioned]
        if other := self._unrelated(tables, a, of):
            self.multiplies = True
            join = of.at.filter(self._written(HAS_KEY)).left_join if b < 0.5 else of.at.join
            serdes = Joined(key=TEXT, value=SERDES[of.kind], other_value=SERDES[other.kind], grace=int(b * 10))
            self._stream(join(other.at, per_record(_both, TEXT), joined=serdes), "text", Same.NOTHING, of, other)

    def _outer_join_a_stream(self, of: Made, a: float, b: float) -> None:
        if other := self._unrelated(self._streams, a, of):
            self.multiplies = True
            serdes = StreamJoined(key=TEXT, value=SERDES[of.kind], other_value=SERDES[other.kind], persistent=b < 0.5)
            windows = JoinWindows.of_time_difference(5, before=2 if b < 0.3 else 5, grace=4)
            joined = of.at.outer_join(other.at, per_record(_both, TEXT), windows, joined=serdes)
            self._stream(joined, "text", Same.NOTHING, of, other)

    def _join_a_global_table(self, of: Made, a: float, b: float) -> None:
        if self._globals:
            table, _kind = self._globals[int(a * len(self._globals))]
            join = of.at.join if b < 0.5 else of.at.left_join
            joined = join(table, per_record(_both, TEXT), selector=KEYS[of.kind].record)
            self._stream(joined, "text", Same.NOTHING, of)

    def _to_a_topic_of_its_value(self, of: Made, _a: float, _b: float) -> None:
        chosen = f"chosen-{len(self.steps)}"
        of.at.to(lambda key, value, record: f"{chosen}-{len(str(value)) % 2}", key=TEXT, value=SERDES[of.kind])
        for number in range(2):
            self.outputs[f"{chosen}-{number}"], self.checks[f"{chosen}-{number}"] = of.kind, of.same

    # --- tables ----------------------------------------------------------------------------------------------------

    def _filter_rows(self, of: Made, a: float, _b: float) -> None:
        self._table(of.at.filter(self._written(_without_batch(PASSES[of.kind])), **self._store(a)), of.kind, of.same, of)

    def _filter_not_rows(self, of: Made, a: float, _b: float) -> None:
        self._table(of.at.filter_not(self._written(HAS_KEY), **self._store(a)), of.kind, of.same, of)

    def _transform_rows(self, of: Made, a: float, _b: float) -> None:
        self._table(of.at.transform_values(Lengthens, value=TEXT, **self._store(a)), "text", of.same, of)

    def _transform_rows_with_a_store(self, of: Made, a: float, _b: float) -> None:
        self.multiplies = True  # it counts updates
        store = Stores.key_value_store(f"times-{len(self.steps)}", key=TEXT, value=NUMBER)
        self.builder.add_state_store(store)
        kept = Materialized(name=f"store-{len(self.steps)}", caching=a < 0.5)
        told = of.at.transform_values(partial(Counts, store.name), store.name, value=TEXT, store=kept)
        self._table(told, "text", Same.NOTHING, of)

    def _hold_rows_back(self, of: Made, a: float, b: float) -> None:
        self.multiplies = True
        if not (of.is_versioned or of.is_above_versioned):
            limits = {"max_records": 2} if b < 0.4 else {"max_bytes": 200} if b < 0.6 else {}
            held = Suppressed.until_time_limit(int(a * 12), **limits)
            self._table(of.at.suppress(held), of.kind, Same.NOTHING, of)

    def _map_rows(self, of: Made, a: float, b: float) -> None:
        to = self._mapped_to(of, a)
        function = self._written(_without_batch(MAPS[of.kind, to]), SERDES[to])
        self._table(of.at.map_values(function, value=SERDES[to], **self._store(b)), to, of.same, of)

    def _to_stream(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.to_stream(), of.kind, Same.NOTHING, of)

    def _to_stream_by_another_key(self, of: Made, _a: float, _b: float) -> None:
        self._stream(of.at.to_stream(self._written(UPPER_KEY, TEXT)), of.kind, Same.NOTHING, of)

    def _join_tables(self, of: Made, a: float, b: float) -> None:
        if other := self._unrelated(self._tables, a, of):
            join = [of.at.join, of.at.left_join, of.at.outer_join][int(b * 3)]
            same = Same.NOTHING if Same.NOTHING in (of.same, other.same) else Same.ROWS
            self._table(join(other.at, _both, value=TEXT), "text", same, of, other)

    def _join_by_a_foreign_key(self, of: Made, a: float, b: float) -> None:
        if other := self._unrelated(self._tables, a, of):
            join = of.at.join if b < 0.5 else of.at.left_join
            joined = join(other.at, _both, foreign_key=lambda value: str(value)[:1], value=TEXT)
            self._table(joined, "text", Same.NOTHING, of, other)

    def _group_rows(self, of: Made, _a: float, _b: float) -> None:
        grouped = of.at.group_by(per_record(lambda key, value: (str(value)[:1], value), (TEXT, SERDES[of.kind])))
        self._table(grouped.count(), "number", of.same, of)

    def _aggregate_rows(self, of: Made, _a: float, b: float) -> None:
        grouped = of.at.group_by(per_record(lambda key, value: (str(value)[-1:], str(value)), (TEXT, TEXT)))
        if b < 0.5:
            table = grouped.aggregate(lambda: 0, lambda k, v, n: n + len(v), lambda k, v, n: n - len(v), value=NUMBER)
            self._table(table, "number", of.same, of)
        else:
            table = grouped.reduce(lambda one, other: one + other, lambda one, other: one.replace(other, "", 1))
            self._table(table, "text", Same.NOTHING, of)


class OddWindows(Windows):
    """Windows of different lengths that overlap and leave times out."""

    def __init__(self, *, grace: int) -> None:
        super().__init__(size=6, grace=grace)

    def windows_for(self, timestamp: int) -> list[tuple[int, int]]:
        ten = timestamp // 10 * 10
        return [(ten + start, ten + end) for start, end in ((0, 4), (3, 9), (5, 7)) if start <= timestamp % 10 < end]


class Tells:
    """Says what its stores hold of a key."""

    def __init__(self, number: int) -> None:
        self._number = number

    def init(self, context: Any) -> None:
        self._context = context
        names = (f"{name}-{self._number}" for name in ("seen", "recent", "spans"))
        self._seen, self._recent, self._spans = map(context.store, names)

    def process(self, record: Any) -> None:
        key, now = record.key or "", record.timestamp
        number = (self._seen.get(key) or 0) + 1
        self._seen.put(key, number)
        recent = [value for _, value in self._recent.fetch_range(key, max(0, now - 15), now)]
        self._recent.put(key, str(record.value), now)
        spans = [span for span, _ in self._spans.find_sessions(key, max(0, now - 5), now + 5)]
        for span in spans:
            self._spans.remove(span)
        first, last = min([now, *(span.start for span in spans)]), max([now, *(span.end for span in spans)])
        self._spans.put(Windowed(key, first, last), number)
        said = record.with_value(f"{number} {recent} {first}-{last}")
        self._context.forward(said.with_headers((*record.headers, ("n", str(number).encode()))))


class Repeats:
    """Says every 10 ms of its task's stream time, which all topics move, what the latest records of all keys are."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: Any) -> None:
        self._context, self._latest = context, context.store(self._store)
        context.schedule(10, PunctuationType.STREAM_TIME, self._tell)

    def process(self, record: Any) -> None:
        self._latest.put(record.key or "", record.value)

    def _tell(self, now: int) -> None:
        for key, (value, timestamp) in self._latest.all(reverse=True):
            self._context.forward(Record(key, f"{value}@{timestamp}", now))


class Remembers:
    """Says which version of a key's value was valid some time ago."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: Any) -> None:
        self._context, self._versions = context, context.store(self._store)

    def process(self, record: Any) -> None:
        value = None if record.value is None else str(record.value)
        self._versions.put(record.key, value, record.timestamp)
        then, now = self._versions.get_as_of(record.key, record.timestamp - 4), self._versions.get(record.key)
        self._context.forward(record.with_value(f"{then} {now}"))


class Counts:
    """A transformer of rows that says how often their key has changed."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: Any) -> None:
        self._times = context.store(self._store)

    def transform(self, key: str, value: Any) -> str | None:
        times = (self._times.get(key) or 0) + 1
        self._times.put(key, times)
        return None if value is None or times % 4 == 3 else f"{value} {times}"


class Lengthens:
    """A transformer of rows."""

    def transform(self, key: str, value: Any) -> str | None:
        return None if value is None else f"{key}:{value}"


def _later_or_never(record: Any, partition_time: int) -> int:
    """Some records are of the partition's time, some of none, which drops them."""
    number = record.timestamp % 5
    return partition_time if number == 3 else -1 if number == 4 else int(record.timestamp) + 1


class PassesOn:
    """A processor that forwards what it gets."""

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self._context.forward(record)


def _of_nulls_too(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Windows drop null keys only, as in Kafka Streams: their reducers get null values."""
    return lambda one, other: one if other is None else other if one is None else reducer(one, other)


def _both(one: object, other: object) -> str:
    return f"{one}|{other}"


_p = Program
STREAM_STEPS = [
    _p._filter, _p._filter_not, _p._map_values, _p._map_values, _p._map, _p._select_key, _p._flat_map_values, _p._flat_map,
    _p._peek,
    _p._process, _p._merge, _p._split, _p._repartition, _p._to_table, _p._count, _p._group_by_count, _p._reduce,
    _p._aggregate, _p._count_windows, _p._final_counts_of_windows, _p._reduce_windows, _p._count_sessions, _p._cogroup,
    _p._join_a_table, _p._join_a_stream, _p._outer_join_a_stream, _p._join_a_global_table, _p._process_with_stores,
    _p._process_on_schedule, _p._process_values, _p._count_sliding_windows, _p._aggregate_one_window, _p._reduce_sessions,
    _p._count_windows_of_ones_own,
    _p._counts_of_closed_windows,
    _p._cogroup_windows, _p._to_a_topic_of_its_value, _p._join_itself, _p._join_a_table_as_of_then,
]  # fmt: skip
TABLE_STEPS = [
    _p._filter_rows, _p._filter_rows, _p._map_rows, _p._map_rows, _p._to_stream, _p._to_stream_by_another_key, _p._join_tables,
    _p._join_by_a_foreign_key, _p._group_rows, _p._filter_not_rows, _p._transform_rows, _p._hold_rows_back, _p._aggregate_rows,
    _p._transform_rows_with_a_store,
]  # fmt: skip


def records(seed: int, kinds: list[str], number: int) -> list[Sent]:
    """Records of few keys, times mostly forwards."""
    chance, time, sent = random.Random(seed), 0, []
    values: dict[str, Callable[[], Any]] = {
        "text": lambda: chance.choice(["x", "xy", "x,y", "zz,1,", "", ",", "é€"]),
        "number": lambda: chance.randint(-4, 9),
        "order": lambda: {"n": chance.choice([None, 1, 3, 5]), "s": chance.choice([None, "p", "qq"])},
    }
    for _ in range(number):
        kind, time = chance.choice(kinds), max(0, time + chance.choice([0, 1, 2, 7, -3]))
        key = chance.choice(["a", "b", "c", "a", "b", "c", None])
        headers = tuple((name, chance.choice([None, b"x"])) for name in "hi" if chance.random() < 0.2)
        sent.append((kind, key, None if chance.random() < 0.12 else values[kind](), time, headers))
    return sent
