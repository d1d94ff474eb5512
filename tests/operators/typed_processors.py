"""The processors of typed programs: they do to stores of every kind what a step says, and say what they have found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.operators.typed_functions import Step, end_of, made_key, sum_of, text_of
from tidemill import Serdes
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.record import Record
from tidemill.topology.values import ValueAndTimestamp
from tidemill.topology.windows import Windowed


def shown(rows: Iterator[Any]) -> str:
    return "".join(f"{text_of(key)}={text_of(value)};" for _, (key, value) in zip(range(40), rows, strict=False))


def _key_value(store: Any, act: list[Any], key: str, value: Any, timestamp: int) -> str:
    _, what, *rest = act
    match what:
        case "put" if rest:
            store.put(key, value, max(0, timestamp - rest[0]))
        case "put":
            store.put(key, value)
        case "putAll":
            later = [value, value] if act[2] is None else [(value, timestamp), (value, timestamp + 5)]
            store.put_all([(f"{key}x", _row(later[0])), (key, _row(later[1]))])
        case "putIfAbsent":
            return text_of(store.put_if_absent(key, value))
        case "delete":
            return text_of(store.delete(key))
        case "get":
            return text_of(store.get(key))
        case "all" | "rall":
            return shown(store.all(reverse=what == "rall"))
        case "range" | "rrange":
            return shown(store.range(rest[0], rest[1], reverse=what == "rrange"))
        case "prefix":
            return shown(store.prefix_scan(rest[0], Serdes.string()))
    return ""


def _row(given: Any) -> Any:
    if not isinstance(given, tuple):
        return given
    return None if given[0] is None else ValueAndTimestamp(*given)


def _versioned(store: Any, act: list[Any], key: str, value: Any, timestamp: int) -> str:
    at = max(0, timestamp - act[2])
    match act[1]:
        case "put":
            return "not" if store.put(key, value, at) is None else ""
        case "delete":
            return text_of(store.delete(key, at))
        case "get":
            return text_of(store.get(key))
    return text_of(store.get_as_of(key, at))


def _windows(store: Any, act: list[Any], key: str, value: Any, timestamp: int) -> str:
    _, what, before, after, low, high = act
    first, last, reverse = max(0, timestamp - before), max(0, timestamp + after), what[0] == "b"
    match what.removeprefix("b"):
        case "put":
            store.put(key, value, first)
            return ""
        case "get":
            return text_of(store.fetch(key, first))
        case "fetch":
            return shown(store.fetch_range(key, first, last, reverse=reverse))
        case "keys":
            return shown(store.fetch_keys(low, high, first, last, reverse=reverse))
        case "fetchAll":
            return shown(store.fetch_all(first, last, reverse=reverse))
    return shown(store.all(reverse=reverse))


def _sessions(store: Any, act: list[Any], key: str, value: Any, timestamp: int) -> str:
    _, what, before, after, low, high = act
    first, last, reverse = max(0, timestamp - before), max(0, timestamp + after), what[0] == "b"
    match what.removeprefix("b"):
        case "put":
            store.put(Windowed(key, first, last), value)
            return ""
        case "remove":
            store.remove(Windowed(key, first, last))
            return ""
        case "get":
            return text_of(store.fetch_session(key, first, last))
        case "find":
            return shown(store.find_sessions(key, first, last, reverse=reverse))
        case "keys":
            return shown(store.fetch_keys(low, high, first, last, reverse=reverse))
        case "fetch":
            return shown(store.fetch(key, reverse=reverse))
    return shown(store.all(reverse=reverse))


_ACTS = {"kv": _key_value, "tkv": _key_value, "ver": _versioned, "win": _windows, "twin": _windows, "ses": _sessions}


class Acting:
    """Does to its stores what the step says, with each record and at times."""

    def __init__(self, step: Step, kinds: dict[str, str], *, fixed: bool = False) -> None:
        self.step, self.kinds, self.fixed = step, kinds, fixed

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.stores = {name: context.store(name) for name in (*self.step["stores"], *self.step.get("globals", ()))}
        for tick in self.step["ticks"]:
            self._schedule(tick)

    def _schedule(self, tick: list[Any]) -> None:
        interval, kind, most, acts, start = tick
        calls = 0
        clock = PunctuationType.WALL_CLOCK_TIME if kind == "w" else PunctuationType.STREAM_TIME

        def punctuate(now: int) -> None:
            nonlocal calls
            said = self.run(acts, "a", f"t{now}", now)
            if not self.fixed:
                key = made_key(self.step["kt"], f"t{now}")
                self.context.forward(Record(key, f"t{now}|{self.context.current_stream_time_ms}|{said}{self._origin()}", now))
            calls += 1
            if calls == most:
                cancel()

        cancel = self.context.schedule(interval, clock, punctuate, start_time=start)

    def run(self, acts: list[Any], key: str, value: Any, timestamp: int) -> str:
        said = (_ACTS[self.kinds[act[0]]](self.stores[act[0]], act, key, value, timestamp) for act in acts)
        return "".join(f"{text}!" for text in said if text)

    def _origin(self) -> str:
        if "meta" not in self.step:
            return ""
        origin = self.context.record_metadata
        return "none!" if origin is None else f"{origin.topic.removeprefix('app-')}{origin.offset}!"

    def process(self, record: Record) -> None:
        said = self.run(self.step["acts"], text_of(record.key), record.value, record.timestamp) + self._origin()
        if "sched" in self.step and sum_of(record.value) % 4 == self.step["sched"]:
            self._schedule(self.step["ticks"][0])
        forward, again = self.context.forward, Record(record.key, record.value, record.timestamp, record.headers)

        def keyed(record: Record, value: Any) -> Record:
            return record if self.fixed else record.with_key(made_key(self.step["kt"], value))

        match self.step["fwd"]:
            case 0:
                forward(keyed(again, record.value))
            case 1:
                forward(keyed(again, record.key).with_value(said))
            case 2:
                headers = (*record.headers, ("p", said.encode()))
                told = keyed(again, record.value).with_value(f"{said}{self.context.current_stream_time_ms}")
                forward(told.with_timestamp(max(0, record.timestamp - 300)).with_headers(headers))
            case 3 if said:
                forward(keyed(again, record.value).with_value(said))
                later = keyed(again, said).with_timestamp(record.timestamp + 150)
                forward(later if self.fixed else later.with_headers(()))


class Keeping:
    """Keeps what a global topic brings."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def init(self, context: ProcessorContext) -> None:
        self.store = context.store(self.name)

    def process(self, record: Record) -> None:
        key = text_of(record.key)
        value = None if record.value is None else end_of(f"{text_of(record.value)}G{key}")
        self.store.put(key, value, *([record.timestamp] if self.kind == "tkv" else []))


class Transforming(Acting):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.stores = {name: context.store(name) for name in self.step["stores"]}

    def transform(self, key: Any, value: Any) -> str | None:
        said = self.run(self.step["acts"], text_of(key), value, 1000)
        if "meta" in self.step:
            origin = self.context.record_metadata
            came_from = f"{origin.topic.removeprefix('app-')}{origin.offset}" if origin else "null-1"
            said += f"{self.context.timestamp},{came_from}"
        return None if value is None else end_of(text_of(value) + said)
