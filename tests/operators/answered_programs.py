"""Programs of chance whose results Kafka Streams has recorded: steps as in the tests of topologies, functions that work.

Every serde writes any value as text: ``S`` and the text, ``L`` and the number, ``W``, the bounds and the key of a window.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.operators import harness, step_harness
from tests.topology import random_dsl_programs
from tidemill import Materialized, StreamJoined
from tidemill.dsl.functions import per_record
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.record import Record
from tidemill.topology.nodes import Topology
from tidemill.topology.windows import Windowed

Case = dict[str, Any]


def cases(file: str = "dsl_programs_run") -> list[Case]:
    with gzip.open(harness.VECTORS / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_all_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ``TEXT`` the serde of all topics and stores."""
    monkeypatch.setattr(random_dsl_programs, "STRING", TEXT)
    monkeypatch.setattr(harness, "DEFAULT_SERDE", TEXT)
    monkeypatch.setattr(step_harness, "Serdes", SimpleNamespace(string=lambda: TEXT))


def encoded(value: Any) -> str:
    if isinstance(value, Windowed):
        return f"W{value.start}|{value.end}|{encoded(value.key)}"
    return f"L{value}" if isinstance(value, int) else f"S{value}"


def decoded(text: str) -> Any:
    if text[0] == "W":
        start, end, key = text[1:].split("|", 2)
        return Windowed(decoded(key), int(start), int(end))
    return int(text[1:]) if text[0] == "L" else text[1:]


class AsText:
    name, sql_type = "as-text", "binary"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else encoded(value).encode()

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else decoded(bytes(data).decode())


TEXT = AsText()
PAIR = (TEXT, TEXT)


def text_of(value: Any) -> str:
    if value is None:
        return "null"
    return f"{text_of(value.key)}@{value.start}-{value.end}" if isinstance(value, Windowed) else str(value)


def end_of(text: str) -> str:
    return text[-14:]


def sum_of(value: Any) -> int:
    return sum(map(ord, text_of(value)))


def first(value: Any) -> str | None:
    text = "" if value is None else text_of(value)
    return None if not text or text[0] == "-" else text[0]


def ending(letter: str) -> Callable[[Any], str | None]:
    return lambda value: None if value is None else end_of(text_of(value) + letter)


def passes(_key: Any, value: Any) -> bool:
    return sum_of(value) % 3 != 0


def add(one: Any, other: Any) -> str:
    return end_of(text_of(one) + text_of(other))


def subtract(one: Any, other: Any) -> str:
    return text_of(one).replace(text_of(other), "", 1)


def aggregate(_key: Any, value: Any, aggregated: Any) -> str:
    return add(aggregated, value)


def take_away(_key: Any, value: Any, aggregated: Any) -> str:
    return subtract(aggregated, value)


def merge(_key: Any, one: Any, other: Any) -> str:
    return end_of(f"{text_of(one)}+{text_of(other)}")


def slash(one: Any, other: Any) -> str:
    return end_of(f"{text_of(one)}/{text_of(other)}")


def initial() -> str:
    return "i"


class Ticks:
    """Passes records on, and says its name every 2 s of stream time, some more often."""

    def __init__(self, name: str) -> None:
        self.name = name

    def init(self, context: ProcessorContext) -> None:
        self.context, number = context, sum_of(self.name)
        context.schedule(2000, PunctuationType.STREAM_TIME, partial(self.say, "tick", "."))
        if number % 2 == 0:
            every = 2000 if number % 3 == 0 else 3000
            context.schedule(every, PunctuationType.STREAM_TIME, partial(self.say, "tock", ":"))

    def say(self, key: str, sign: str, now: int) -> None:
        self.context.forward(Record(key, f"{self.name}{sign}{now}", now))

    def process(self, record: Record) -> None:
        self.context.forward(record)


class PassesOn:
    def init(self, context: ProcessorContext) -> None:
        self.process = context.forward


class Transformer:
    def transform(self, _key: Any, value: Any) -> str | None:
        return ending("t")(value)


def kept(text: str) -> Materialized | None:
    """As the topologies' tests read it, with serdes."""
    if text.startswith("v!"):
        return Materialized(name=text[2:], history_retention=3_600_000, key=TEXT, value=TEXT)
    return None if text == "-" else Materialized(name=None if text == "with" else text, key=TEXT, value=TEXT)


class Program(random_dsl_programs.Program):
    """Runs the steps of a program against the DSL."""

    def run_simple(self, operator: str, result: str, above: str, name: str | None) -> None:
        at, test = self.made[above], per_record(passes)
        functions = {
            "filter": test, "filter_not": test, "select_key": per_record(lambda k, v: first(v), TEXT),
            "map": per_record(lambda k, v: (first(v), v), PAIR), "map_values": per_record(ending("m"), TEXT),
            "flat_map_values": per_record(lambda v: [v, end_of(text_of(v) + "f")], TEXT), "peek": lambda k, v: None,
        }  # fmt: skip
        match operator:
            case "to_stream":
                self.made[result] = at.to_stream(name=name)
            case "group_by_key":
                self.made[result] = at.group_by_key(key=TEXT, value=TEXT, name=name)
            case "group_by":
                self.made[result] = at.group_by(functions["select_key"], key=TEXT, value=TEXT, name=name)
            case _:
                self.made[result] = getattr(at, operator)(functions[operator], name=name)

    def run_split(self, results: str, above: str, name: str | None, given: str, ending: str) -> None:
        split, names = self.made[above].split(name=name), results.split(",")
        for result in names:
            is_last = ending == "default" and result == names[-1]
            grow = split.default_branch if is_last else partial(split.branch, per_record(passes))
            grow(name=None, consumer=partial(self.made.__setitem__, result))

    def run_repartition(self, result: str, above: str, name: str | None, partitions: str) -> None:
        self.made[result] = self.made[above].repartition(name=name, key=TEXT, value=TEXT)

    def run_to(self, _result: str, above: str, name: str | None, topic: str) -> None:
        self.made[above].to(topic, key=TEXT, value=TEXT, name=name)

    def run_process(self, result: str, above: str, name: str | None, stores: str) -> None:
        self.made[result] = self.made[above].process(partial(Ticks, result), name=name)

    def run_process_values(self, result: str, above: str, name: str | None, stores: str) -> None:
        self.made[result] = self.made[above].process_values(PassesOn, name=name)

    def run_to_table(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].to_table(name=name, store=kept(store))

    def run_reduce(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].reduce(add, name=name, store=kept(store))

    def run_aggregate(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].aggregate(initial, aggregate, name=name, store=kept(store))

    def run_wreduce(self, result: str, above: str, name: str | None, store: str, cut: str, emit: str) -> None:
        self.made[result] = self._windowed(above, cut, emit).reduce(add, name=name, store=kept(store))

    def run_waggregate(self, result: str, above: str, name: str | None, store: str, cut: str, emit: str) -> None:
        mergers = (merge,) if cut.startswith("e") else ()
        windowed = self._windowed(above, cut, emit)
        self.made[result] = windowed.aggregate(initial, aggregate, *mergers, name=name, store=kept(store))

    def run_cogroup(self, result: str, above: str, name: str | None, store: str, cut: str) -> None:
        one, *others = above.split(",")
        cogrouped = self.made[one].cogroup(aggregate)
        for other in others:
            cogrouped = cogrouped.cogroup(self.made[other], aggregate)
        mergers = (merge,) if cut.startswith("e") else ()
        if cut != "-":
            cogrouped = cogrouped.windowed_by(random_dsl_programs.windows(cut))
        self.made[result] = cogrouped.aggregate(initial, *mergers, name=name, store=kept(store))

    def run_tfilter(self, result: str, above: str, name: str | None, store: str) -> None:
        asked = random_dsl_programs.store(store)
        self.made[result] = self.made[above].filter(per_record(passes), name=name, store=asked)

    def run_tmap_values(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].map_values(per_record(ending("m"), TEXT), name=name, store=kept(store))

    def run_ttransform(self, result: str, above: str, name: str | None, store: str, stores: str) -> None:
        self.made[result] = self.made[above].transform_values(Transformer, name=name, store=kept(store))

    def run_tgroup(self, result: str, above: str, name: str | None) -> None:
        select = per_record(lambda k, v: (first(v), v), PAIR)
        self.made[result] = self.made[above].group_by(select, key=TEXT, value=TEXT, name=name)

    def run_greduce(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].reduce(add, subtract, name=name, store=kept(store))

    def run_gaggregate(self, result: str, above: str, name: str | None, store: str) -> None:
        self.made[result] = self.made[above].aggregate(initial, aggregate, take_away, name=name, store=kept(store))

    def _join(self, method: str, result: str, above: str, other: str, **options: Any) -> None:
        if "foreign_key" in options:
            options["foreign_key"] = first
        asked = options.get("store")
        if isinstance(asked, Materialized):
            options["store"] = Materialized(name=asked.name, key=TEXT, value=TEXT, history_retention=asked.history_retention)
        elif asked is not None:
            options["store"] = kept(asked)
        self.made[result] = getattr(self.made[above], method)(self.made[other], per_record(slash, TEXT), **options)

    def _stream_join(self, method: str, result: str, above: str, name: str | None, other: str, store: str, cut: str) -> None:
        joined = StreamJoined(name=name, key=TEXT, value=TEXT, other_value=TEXT)
        self._join(method, result, above, other, windows=random_dsl_programs.windows(cut), joined=joined)


def topology_of(case: Case) -> Topology:
    return Program(case["program"]).builder.build(optimization=case["topology_optimization"])
