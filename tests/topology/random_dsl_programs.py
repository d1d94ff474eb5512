"""Programs of the whole DSL as lists of steps, run against it: what the recorded answers of Kafka Streams are compared with.

A step is ``[operator, result, input, name, ...]``, with ``-`` for what is not given. A store is a name, ``with`` for a
``Materialized`` without one, or ``v!name`` for a versioned store. Windows are ``t:size:advance:grace``, ``s:difference:grace``
(sliding), ``e:gap:grace`` (sessions), ``u:0`` (unlimited) or, of joins, ``j:difference:grace``, in ms.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from tidemill import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
    Topology,
    UnlimitedWindows,
)
from tidemill.topology.graph import InternalTopicKind, copartition_groups, internal_topics, subtopologies

STRING = Serdes.string()


def record(key: Any, value: Any) -> Any:
    return value


def pair(key: Any, value: Any) -> Any:
    return key, value


def one(value: Any) -> Any:
    return value


def aggregate(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


class Route:
    def __call__(self, key: Any, value: Any, record: Any) -> Any:
        return "routed"


class Noop:
    def process(self, record: Any) -> None:
        pass


class Transformer:
    def transform(self, key: Any, value: Any) -> Any:
        return value


def store(text: str) -> Any:
    if text.startswith("v!"):
        return Materialized(name=text[2:], history_retention=3_600_000)
    return {"-": None, "with": Materialized(key=STRING)}.get(text, text)


def names(text: str) -> list[str]:
    return [] if text == "-" else text.split(",")


def windows(text: str) -> Any:
    kind, *numbers = text.split(":")
    match kind, [int(number) for number in numbers]:
        case "t", (size, advance, grace):
            return TimeWindows.of_size(size, advance=advance, grace=grace)
        case "s", (difference, grace):
            return SlidingWindows.of_time_difference(difference, grace=grace)
        case "e", (gap, grace):
            return SessionWindows.of_inactivity_gap(gap, grace=grace)
        case "u", _:
            return UnlimitedWindows.of()
        case _, (difference, grace):
            return JoinWindows.of_time_difference(difference, grace=grace)


class Program:
    """Runs the steps of a program against the DSL."""

    def __init__(self, steps: list[list[str]]) -> None:
        self.builder = StreamsBuilder()
        self.made: dict[str, Any] = {}
        for operator, result, above, *rest in steps:
            name = None if not rest or rest[0] == "-" else rest[0]
            getattr(self, f"run_{operator}", partial(self.run_simple, operator))(result, above, name, *rest[1:])

    # --- sources ---

    def run_stream(self, result: str, topics: str, name: str | None) -> None:
        read = re.compile(topics[1:]) if topics.startswith("/") else topics.split(",")
        self.made[result] = self.builder.stream(read, key=STRING, value=STRING, name=name)

    def run_table(self, result: str, topic: str, name: str | None, kept: str) -> None:
        self.made[result] = self.builder.table(topic, key=STRING, value=STRING, name=name, store=store(kept))

    def run_global(self, result: str, topic: str, name: str | None, kept: str) -> None:
        self.made[result] = self.builder.global_table(topic, key=STRING, value=STRING, name=name, store=store(kept))

    def run_addstore(self, _result: str, added: str, _name: str | None) -> None:
        self.builder.add_state_store(Stores.key_value_store(added, key=STRING, value=STRING))

    def run_addglobal(self, _result: str, topic: str, name: str | None, added: str) -> None:
        self.builder.add_global_store(Stores.key_value_store(added), topic, Noop, name=name)

    # --- streams ---

    def run_simple(self, operator: str, result: str, above: str, name: str | None) -> None:
        at = self.made[above]
        if operator in ("to_stream", "group_by_key", "print"):
            self.made[result] = getattr(at, operator)(name=name)
        else:
            function = one if operator in ("map_values", "flat_map_values") else pair if operator == "map" else record
            self.made[result] = getattr(at, operator)(function, name=name)

    def run_merge(self, result: str, above: str, name: str | None, other: str) -> None:
        self.made[result] = self.made[above].merge(self.made[other], name=name)

    def run_split(self, results: str, above: str, name: str | None, given: str, ending: str) -> None:
        split, last = self.made[above].split(name=name), len(results.split(",")) - 1
        for number, (result, branch) in enumerate(zip(results.split(","), given.split(","), strict=True)):
            grow = split.default_branch if ending == "default" and number == last else partial(split.branch, record)
            grow(name=None if branch == "-" else branch, consumer=partial(self.made.__setitem__, result))

    def run_repartition(self, result: str, above: str, name: str | None, partitions: str) -> None:
        wanted = None if partitions == "-" else int(partitions)
        self.made[result] = self.made[above].repartition(name=name, partitions=wanted)

    def run_to(self, _result: str, above: str, name: str | None, topic: str) -> None:
        self.made[above].to(topic, name=name)

    def run_route(self, _result: str, above: str, name: str | None) -> None:
        self.made[above].to(Route(), name=name)

    def run_process(self, result: str, above: str, name: str | None, stores: str) -> None:
        self.made[result] = self.made[above].process(Noop, *names(stores), name=name)

    def run_process_values(self, result: str, above: str, name: str | None, stores: str) -> None:
        self.made[result] = self.made[above].process_values(Noop, *names(stores), name=name)

    def run_to_table(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].to_table(name=name, store=store(kept))

    # --- groups ---

    def run_count(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].count(name=name, store=store(kept))

    def run_reduce(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].reduce(record, name=name, store=store(kept))

    def run_aggregate(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].aggregate(str, aggregate, name=name, store=store(kept))

    def _windowed(self, above: str, cut: str, emit: str) -> Any:
        windowed = self.made[above].windowed_by(windows(cut))
        return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if emit == "final" else windowed

    def run_wcount(self, result: str, above: str, name: str | None, kept: str, cut: str, emit: str) -> None:
        self.made[result] = self._windowed(above, cut, emit).count(name=name, store=store(kept))

    def run_wreduce(self, result: str, above: str, name: str | None, kept: str, cut: str, emit: str) -> None:
        self.made[result] = self._windowed(above, cut, emit).reduce(record, name=name, store=store(kept))

    def run_waggregate(self, result: str, above: str, name: str | None, kept: str, cut: str, emit: str) -> None:
        merger = (aggregate,) if cut.startswith("e") else ()
        self.made[result] = self._windowed(above, cut, emit).aggregate(str, aggregate, *merger, name=name, store=store(kept))

    def run_cogroup(self, result: str, above: str, name: str | None, kept: str, cut: str) -> None:
        first, *others = above.split(",")
        cogrouped = self.made[first].cogroup(aggregate)
        for other in others:
            cogrouped = cogrouped.cogroup(self.made[other], aggregate)
        merger = (aggregate,) if cut.startswith("e") else ()
        if cut != "-":
            cogrouped = cogrouped.windowed_by(windows(cut))
        self.made[result] = cogrouped.aggregate(str, *merger, name=name, store=store(kept))

    # --- tables ---

    def run_tfilter(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].filter(record, name=name, store=store(kept))

    def run_tmap_values(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].map_values(one, name=name, store=store(kept))

    def run_ttransform(self, result: str, above: str, name: str | None, kept: str, stores: str) -> None:
        transformed = self.made[above].transform_values(Transformer, *names(stores), name=name, store=store(kept))
        self.made[result] = transformed

    def run_to_stream_key(self, result: str, above: str, name: str | None) -> None:
        self.made[result] = self.made[above].to_stream(record, name=name)

    def run_suppress(self, result: str, above: str, name: str | None, until: str) -> None:
        held = Suppressed.until_window_closes(name=name) if until == "w" else Suppressed.until_time_limit(1000, name=name)
        self.made[result] = self.made[above].suppress(held)

    def run_tgroup(self, result: str, above: str, name: str | None) -> None:
        self.made[result] = self.made[above].group_by(record, name=name)

    def run_gcount(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].count(name=name, store=store(kept))

    def run_greduce(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].reduce(record, record, name=name, store=store(kept))

    def run_gaggregate(self, result: str, above: str, name: str | None, kept: str) -> None:
        self.made[result] = self.made[above].aggregate(str, aggregate, aggregate, name=name, store=store(kept))

    # --- joins ---

    def _join(self, method: str, result: str, above: str, other: str, **options: Any) -> None:
        self.made[result] = getattr(self.made[above], method)(self.made[other], record, **options)

    def run_tjoin(self, result: str, above: str, name: str | None, other: str, kept: str) -> None:
        self._join("join", result, above, other, name=name, store=store(kept))

    def run_tljoin(self, result: str, above: str, name: str | None, other: str, kept: str) -> None:
        self._join("left_join", result, above, other, name=name, store=store(kept))

    def run_tojoin(self, result: str, above: str, name: str | None, other: str, kept: str) -> None:
        self._join("outer_join", result, above, other, name=name, store=store(kept))

    def run_fk(self, result: str, above: str, name: str | None, other: str, kept: str) -> None:
        self._join("join", result, above, other, foreign_key=one, joined=TableJoined(name=name), store=store(kept))

    def run_lfk(self, result: str, above: str, name: str | None, other: str, kept: str) -> None:
        self._join("left_join", result, above, other, foreign_key=one, name=name, store=store(kept))

    def _stream_join(self, method: str, result: str, above: str, name: str | None, other: str, kept: str, cut: str) -> None:
        joined = StreamJoined(name=name, store_name=None if kept == "-" else kept, key=STRING)
        self._join(method, result, above, other, windows=windows(cut), joined=joined)

    def run_sjoin(self, result: str, above: str, name: str | None, other: str, kept: str, cut: str) -> None:
        self._stream_join("join", result, above, name, other, kept, cut)

    def run_sljoin(self, result: str, above: str, name: str | None, other: str, kept: str, cut: str) -> None:
        self._stream_join("left_join", result, above, name, other, kept, cut)

    def run_sojoin(self, result: str, above: str, name: str | None, other: str, kept: str, cut: str) -> None:
        self._stream_join("outer_join", result, above, name, other, kept, cut)

    def run_stjoin(self, result: str, above: str, name: str | None, other: str, grace: str) -> None:
        self._join("join", result, above, other, joined=Joined(name=name, grace=None if grace == "-" else int(grace)))

    def run_stljoin(self, result: str, above: str, name: str | None, other: str, grace: str) -> None:
        self._join("left_join", result, above, other, joined=Joined(name=name, grace=None if grace == "-" else int(grace)))

    def run_gjoin(self, result: str, above: str, name: str | None, other: str) -> None:
        self._join("join", result, above, other, selector=record, name=name)

    def run_gljoin(self, result: str, above: str, name: str | None, other: str) -> None:
        self._join("left_join", result, above, other, selector=record, name=name)


def topics_of(topology: Topology) -> list[str]:
    """Sub-topologies, internal topics and copartition groups, in the words of the recorded answers."""
    lines = []
    internal = internal_topics(topology, "app")
    for part in subtopologies(topology, "app"):
        if not part.source_topics:
            continue
        lists = (part.source_topics, part.sink_topics, part.repartition_source_topics, part.changelog_topics,
                 part.source_topic_changelogs)
        lines.append(f"SUB {part.id} " + "".join(f"[{', '.join(names)}]" for names in lists))
        for name in sorted({*part.repartition_source_topics, *part.changelog_topics} - {*part.source_topic_changelogs}):
            topic = internal[name]
            partitions = str(topic.partitions or "-") if topic.kind is InternalTopicKind.REPARTITION else ""
            settings = ", ".join(f"{key}={value}" for key, value in sorted(topic.properties().items()))
            lines.append(f"TOPIC {name} {partitions}{{{settings}}}")
    return lines + [f"CO [{', '.join(group)}]" for group in copartition_groups(topology, "app")]
