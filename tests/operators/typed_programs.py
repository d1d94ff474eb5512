"""Programs of chance over typed keys, read from a description: what the recorder of their answers does in Java, done in Python.

A program is a list of steps, ``{"op": ..., "id": ..., "in": ..., ...}``. Keys are of the type that ``kt`` says: ``S`` string,
``L`` long, ``I`` integer, ``D`` double, ``T<size>:`` or ``E:`` in front of the type of a windowed key. Values are text or longs,
written as ``S`` and the text, ``L`` and the number.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.operators.typed_functions import (
    VALUE,
    Step,
    adding,
    both,
    end_of,
    extractor,
    grouping,
    hits,
    initial,
    joining,
    made_key,
    mapped,
    passes,
    reducing,
    sum_of,
    taking_away,
    text_of,
    two_of,
)
from tests.operators.typed_processors import Acting, Keeping, Transforming
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
    UnlimitedWindows,
    WindowedSerdes,
)
from tidemill.dsl.functions import per_record
from tidemill.topology.nodes import Topology

Case = dict[str, Any]
LONG_MAX = 2**63 - 1
_PLAIN: dict[str, Any] = {"S": Serdes.string(), "L": Serdes.long(), "I": Serdes.integer(), "D": Serdes.double()}


def key_serde(kind: str) -> Any:
    if kind[0] == "T":
        size, inner = kind[1:].split(":", 1)
        return WindowedSerdes.time_windowed_serde_from(key_serde(inner), int(size))
    return WindowedSerdes.session_windowed_serde_from(key_serde(kind[2:])) if kind[0] == "E" else _PLAIN[kind]


def _materialized(kept: Step | None, kind: str, value: Any = VALUE) -> Materialized:
    kept = kept or {}
    return Materialized(
        name=kept.get("name"), key=key_serde(kind), value=value, history_retention=kept.get("v"), retention=kept.get("ret"),
        persistent=False if "mem" in kept else None,
    )


def _windows_of(cut: list[Any]) -> Any:
    match cut:
        case "t", size, advance, grace:
            return TimeWindows.of_size(size, advance=advance, grace=grace)
        case "s", difference, grace:
            return SlidingWindows.of_time_difference(difference, grace=grace)
        case "u", start:
            return UnlimitedWindows.of(start=start)
        case _, gap, grace:
            return SessionWindows.of_inactivity_gap(gap, grace=grace)


def _kind_of_store(step: Step, kept: Step, kind: str) -> str:
    if step["op"] in ("window", "cogroup") and step.get("w"):
        return "ses" if kind[0] == "E" else "twin"
    return "ver" if "v" in kept else "tkv"


def _windowed_kind(cut: list[Any], kind: str) -> str:
    size = LONG_MAX if cut[0] == "u" else cut[1]
    return f"E:{kind}" if cut[0] == "e" else f"T{size}:{kind}"


class Program:
    """Runs the steps of a program against the DSL."""

    def __init__(self, steps: list[Step]) -> None:
        self.builder = StreamsBuilder()
        self.made: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        self.store_kinds: dict[str, str] = {}
        for step in steps:
            kept = step.get("store") or {}
            kind = step.get("kt") or self.kinds.get(step.get("in", ""), "")
            made = getattr(self, f"_{step['op'].lower()}", partial(self._simple, step["op"]))(step, kind)
            if made is not None:
                result, made_kind = made if isinstance(made, tuple) else (made, kind)
                self.made[step["id"]], self.kinds[step["id"]] = result, made_kind
                if "name" in kept:
                    self.store_kinds[kept["name"]] = _kind_of_store(step, kept, made_kind)

    def _of(self, step: Step) -> Any:
        return self.made[step["in"]]

    # --- sources and sinks ---

    def _addstore(self, step: Step, _kind: str) -> None:
        name, self.store_kinds[step["id"]] = step["id"], step["kind"]
        options: dict[str, Any] = {"key": Serdes.string(), "value": VALUE}
        if "mem" in step:
            options["persistent"] = False
        match step["kind"]:
            case "kv":
                store = Stores.key_value_store(name, **options)
            case "tkv":
                store = Stores.timestamped_key_value_store(name, **options)
            case "ver":
                store = Stores.versioned_key_value_store(name, step["ret"], **options)
            case "ses":
                store = Stores.session_store(name, step["ret"], **options)
            case kind:
                store = Stores.window_store(
                    name, step["ret"], step["size"], timestamped=kind == "twin", retain_duplicates=step["dup"], **options
                )
        self.builder.add_state_store(store)

    def _globalstore(self, step: Step, _kind: str) -> None:
        name, self.store_kinds[step["id"]] = step["id"], step["kind"]
        make = Stores.key_value_store if step["kind"] == "kv" else Stores.timestamped_key_value_store
        store = make(name, key=Serdes.string(), value=VALUE, logged=False)
        keeping = partial(Keeping, name, step["kind"])
        self.builder.add_global_store(store, step["topic"], keeping, key=Serdes.string(), value=VALUE)

    def _stream(self, step: Step, kind: str) -> Any:
        extract = extractor(step["ext"]) if "ext" in step else None
        return self.builder.stream(step["topics"], key=key_serde(kind), value=VALUE, timestamp_extractor=extract)

    def _table(self, step: Step, kind: str) -> Any:
        extract = extractor(step["ext"]) if "ext" in step else None
        options: dict[str, Any] = {"key": key_serde(kind), "value": VALUE}
        if step.get("store") is not None:
            options = {"store": _materialized(step["store"], kind)}
        return self.builder.table(step["topic"], timestamp_extractor=extract, **options)

    def _global(self, step: Step, kind: str) -> Any:
        return self.builder.global_table(step["topic"], store=_materialized(step["store"], kind))

    def _to(self, step: Step, kind: str) -> None:
        self._of(step).to(step["topic"], key=key_serde(kind), value=VALUE)

    def _route(self, step: Step, kind: str) -> None:
        def topic(_key: Any, value: Any, record: Any) -> str:
            length = len((record.topic or "").removeprefix("app-"))
            return f"o-r{sum_of(value) % 2}{length}{record.timestamp % 2}{len(record.headers)}"

        self._of(step).to(topic, key=key_serde(kind), value=VALUE)

    def _throughtable(self, step: Step, kind: str) -> Any:
        self._to(step, kind)
        options: dict[str, Any] = {"key": key_serde(kind), "value": VALUE}
        if step.get("store") is not None:
            options = {"store": _materialized(step["store"], kind)}
        return self.builder.table(step["topic"], **options)

    def _through(self, step: Step, kind: str) -> Any:
        self._to(step, kind)
        return self.builder.stream(step["topic"], key=key_serde(kind), value=VALUE)

    # --- streams ---

    def _simple(self, operator: str, step: Step, kind: str) -> Any:
        at, test = self._of(step), per_record(passes(step) if "m" in step else lambda k, v: True)
        serde, select = key_serde(kind), partial(made_key, kind)
        match operator:
            case "filter":
                return at.filter(test)
            case "filterKey":
                return at.filter(per_record(lambda k, v: k is not None and not hits(k, step)))
            case "filterNot":
                return at.filter_not(test)
            case "mapValues":
                return at.map_values(per_record(mapped(step), VALUE))
            case "mapValuesKey":
                return at.map_values(per_record(lambda k, v: None if v is None else end_of(text_of(k) + text_of(v)), VALUE))
            case "map":
                value = mapped(step)
                return at.map(per_record(lambda k, v: (select(v), value(v)), (serde, VALUE)))
            case "selectKey":
                return at.select_key(per_record(lambda k, v: select(v), serde))
            case "unwindow":
                return at.select_key(per_record(lambda k, v: None if k is None else k.key, serde))
            case "flatMap":
                return at.flat_map(per_record(two_of(step), (serde, VALUE)))
            case "flatMapValues":
                return at.flat_map_values(per_record(lambda v: [] if hits(v, step) else [v, end_of(text_of(v) + "g")], VALUE))
            case "merge":
                return at.merge(self.made[step["other"]])
            case "repartition":
                return at.repartition(key=serde, value=VALUE)
            case "groupBy":
                return at.group_by(per_record(lambda k, v: select(v), serde), key=serde, value=VALUE)
            case "groupByKey":
                return at.group_by_key(key=serde, value=VALUE)
            case "toTable":
                return at.to_table(store=_materialized(step.get("store"), kind))
            case "toStream":
                return at.to_stream()
            case "toStreamKey":
                return at.to_stream(per_record(lambda k, v: select(v), serde))
        raise AssertionError(operator)

    def _split(self, step: Step, kind: str) -> None:
        split, names = self._of(step).split(name=f"{step['id']}-"), [f"{step['id']}-{n}" for n in range(3)]
        split.branch(per_record(passes(step)), name="0", consumer=partial(self.made.__setitem__, names[0]))
        even = per_record(lambda k, v: sum_of(v) % 2 == 0)
        split.branch(even, name="1", consumer=partial(self.made.__setitem__, names[1]))
        if step["dflt"]:
            split.default_branch(name="2", consumer=partial(self.made.__setitem__, names[2]))
        else:
            split.no_default_branch()
        self.kinds |= dict.fromkeys(names, kind)

    def _process(self, step: Step, kind: str) -> Any:
        made = partial(Acting, step, self.store_kinds)
        return self._of(step).process(made, *step["stores"], key=key_serde(kind), value=VALUE)

    def _processvalues(self, step: Step, _kind: str) -> Any:
        made = partial(Acting, step, self.store_kinds, fixed=True)
        return self._of(step).process_values(made, *step["stores"], value=VALUE)

    # --- aggregations ---

    def _aggregated(self, group: Any, step: Step, kind: str, *more: Any, merge: bool = False) -> Any:
        match step.get("fn", step["op"].removeprefix("g")):
            case "count":
                return group.count(store=_materialized(step.get("store"), kind, Serdes.long()))
            case "reduce":
                return group.reduce(reducing(step), *more[:1], store=_materialized(step.get("store"), kind))
        store, add = _materialized(step.get("store"), kind), adding(step, "+" if more else ",")
        return group.aggregate(initial, add, *more[1:], *((both,) if merge else ()), store=store)

    def _count(self, step: Step, kind: str) -> Any:
        return self._aggregated(self._of(step), step, kind)

    _reduce = _aggregate = _count

    def _gcount(self, step: Step, kind: str) -> Any:
        return self._aggregated(self._of(step), step, kind, lambda x, y: taking_away(None, y, x), taking_away)

    _greduce = _gaggregate = _gcount

    def _window(self, step: Step, kind: str) -> Any:
        windowed = self._of(step).windowed_by(_windows_of(step["w"]))
        if step["final"]:
            windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        return self._aggregated(windowed, step, kind, merge=step["w"][0] == "e"), _windowed_kind(step["w"], kind)

    def _cogroup(self, step: Step, _kind: str) -> Any:
        kind, cut = self.kinds[step["ins"][0]], step.get("w")
        first, *others = (self.made[name] for name in step["ins"])
        cogrouped = first.cogroup(adding(step, "0"))
        for number, other in enumerate(others, 1):
            cogrouped = cogrouped.cogroup(other, adding(step, str(number)))
        store = _materialized(step.get("store"), kind)
        if cut is None:
            return cogrouped.aggregate(initial, store=store), kind
        made = cogrouped.windowed_by(_windows_of(cut)).aggregate(initial, *((both,) if cut[0] == "e" else ()), store=store)
        return made, _windowed_kind(cut, kind)

    # --- tables ---

    def _kept(self, step: Step, kind: str) -> dict[str, Any]:
        return {} if step.get("store") is None else {"store": _materialized(step["store"], kind)}

    def _tfilter(self, step: Step, kind: str) -> Any:
        return self._of(step).filter(per_record(passes(step)), **self._kept(step, kind))

    def _tfilternot(self, step: Step, kind: str) -> Any:
        return self._of(step).filter_not(per_record(passes(step)), **self._kept(step, kind))

    def _tmapvalues(self, step: Step, kind: str) -> Any:
        return self._of(step).map_values(per_record(mapped(step), VALUE), **self._kept(step, kind))

    def _ttransform(self, step: Step, kind: str) -> Any:
        made = partial(Transforming, step, self.store_kinds)
        return self._of(step).transform_values(made, *step["stores"], **self._kept(step, kind))

    def _suppress(self, step: Step, _kind: str) -> Any:
        if step["ms"] is None:
            return self._of(step).suppress(Suppressed.until_window_closes())
        limits = {"max_records": step.get("max"), "max_bytes": step.get("bytes")}
        return self._of(step).suppress(Suppressed.until_time_limit(step["ms"], **limits))

    def _tgroup(self, step: Step, kind: str) -> Any:
        return self._of(step).group_by(grouping(step), key=key_serde(kind), value=VALUE)

    # --- joins ---

    def _tjoin(self, step: Step, kind: str) -> Any:
        method = {"tjoin": "join", "tljoin": "left_join", "tojoin": "outer_join"}[step["op"]]
        return getattr(self._of(step), method)(self.made[step["other"]], joining(step), **self._kept(step, kind))

    _tljoin = _tojoin = _tjoin

    def _fk(self, step: Step, kind: str) -> Any:
        join = self._of(step).join if step["op"] == "fk" else self._of(step).left_join
        return join(
            self.made[step["other"]], joining(step), foreign_key=partial(_foreign, self.kinds[step["other"]]),
            joined=TableJoined(name=step["id"]), store=_materialized(step.get("store"), kind),
        )

    _lfk = _fk

    def _sjoin(self, step: Step, kind: str) -> Any:
        method = {"sjoin": "join", "sljoin": "left_join", "sojoin": "outer_join"}[step["op"]]
        before, after, grace = step["w"]
        windows = JoinWindows.of_time_difference(max(abs(before), abs(after)), before=before, after=after, grace=grace)
        joined = StreamJoined(key=key_serde(kind), value=VALUE, other_value=VALUE)
        return getattr(self._of(step), method)(self.made[step["other"]], joining(step), windows, joined=joined)

    _sljoin = _sojoin = _sjoin

    def _stjoin(self, step: Step, kind: str) -> Any:
        join = self._of(step).join if step["op"] == "stjoin" else self._of(step).left_join
        joined = Joined(key=key_serde(kind), value=VALUE, other_value=VALUE, grace=step.get("grace"))
        return join(self.made[step["other"]], joining(step), joined=joined)

    _stljoin = _stjoin

    def _gjoin(self, step: Step, _kind: str) -> Any:
        join, wanted = self._of(step).join if step["op"] == "gjoin" else self._of(step).left_join, self.kinds[step["other"]]
        return join(self.made[step["other"]], joining(step), selector=lambda key, value: made_key(wanted, value))

    _gljoin = _gjoin


def _foreign(kind: str, value: Any) -> Any:
    return made_key(kind, value)


def topology_of(case: Case) -> Topology:
    return Program(case["steps"]).builder.build(optimization=case["opt"])
