"""The functions of typed programs, as the recorder of their answers has them in Java, and the serde of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.dsl.functions import per_record
from tidemill.topology.values import ValueAndTimestamp
from tidemill.topology.windows import Windowed

Step = dict[str, Any]


class AnyText:
    name, sql_type = "any-text", "binary"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else f"{'L' if isinstance(value, int) else 'S'}{value}".encode()

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        written = bytes(data).decode()
        return int(written[1:]) if written[0] == "L" else written[1:]


VALUE: Any = AnyText()


def text_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Windowed):
        return f"{text_of(value.key)}@{value.start}-{value.end}"
    if isinstance(value, ValueAndTimestamp):
        return f"{text_of(value[0])}~{value[1]}"
    return str(value)


def end_of(text: str) -> str:
    return text[-12:]


def sum_of(value: Any) -> int:
    return sum(map(ord, text_of(value)))


def made_key(kind: str, value: Any) -> Any:
    text, number = text_of(value), sum_of(value)
    if value is None or not text or number % 11 == 0:
        return None
    number = number % 4 - 1
    return {"S": text[0], "L": number, "I": number, "D": number * 0.5}[kind]


def hits(value: Any, step: Step) -> bool:
    return bool(sum_of(value) % step["m"] == step["r"])


def passes(step: Step) -> Callable[[Any, Any], bool]:
    return lambda key, value: not hits(value, step)


def mapped(step: Step) -> Callable[[Any], str | None]:
    return lambda value: None if value is None or hits(value, step) else end_of(text_of(value) + step["l"])


def adding(step: Step, sign: str) -> Callable[[Any, Any, Any], str | None]:
    def add(_key: Any, value: Any, aggregate: Any) -> str | None:
        text = end_of(text_of(aggregate) + sign + text_of(value))
        return None if "m" in step and hits(text, step) else text

    return add


def reducing(step: Step) -> Callable[[Any, Any], str | None]:
    add = adding(step, "+")
    return lambda aggregate, value: add(None, value, aggregate)


def taking_away(_key: Any, value: Any, aggregate: Any) -> str:
    return end_of(f"{text_of(aggregate)}-{text_of(value)}")


def both(_key: Any, one: Any, other: Any) -> str:
    return end_of(f"{text_of(one)}&{text_of(other)}")


def joining(step: Step) -> Any:
    def join(one: Any, other: Any) -> str | None:
        text = end_of(f"{text_of(one)}/{text_of(other)}")
        return None if "m" in step and hits(text, step) else text

    return per_record(join, VALUE)


def initial() -> str:
    return "i"


def two_of(step: Step) -> Callable[[Any, Any], list[tuple[Any, Any]]]:
    def two(_key: Any, value: Any) -> list[tuple[Any, Any]]:
        if hits(value, step):
            return []
        more = text_of(value) + "f"
        return [(made_key(step["kt"], value), value), (made_key(step["kt"], more), None if value is None else end_of(more))]

    return two


def grouping(step: Step) -> Callable[[Any, Any], tuple[Any, Any]]:
    def group(key: Any, value: Any) -> tuple[Any, Any]:
        is_left_out = value is None or sum_of(value) % 9 == 0
        return made_key(step["kt"], value), None if is_left_out else end_of(text_of(key) + text_of(value))

    return group


def extractor(kind: str) -> Callable[[Any, int], int]:
    def extract(record: Any, partition_time: int) -> int:
        number = sum_of(record.value)
        match kind:
            case "neg":
                return -1 if number % 5 == 0 else record.timestamp
            case "part":
                return partition_time if number % 3 == 0 else record.timestamp
            case "shift":
                return int(record.timestamp + (number % 3 - 1) * 700)
        return max(0, partition_time - number % 900)

    return extract
