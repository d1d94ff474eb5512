"""Scenarios as TOML: from a parsed file to a Scenario.

Decides names and units of the file: times are in seconds (``at_s``, ``for_s``) except where a name ends in ``_ms``; settings
have their Kafka names. An unknown key is an error, so that a misspelt one is not silently without effect. The caller
reads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from tidemill.assignment.choice import DEFAULT
from tidemill.assignment.kip441.high_availability import Compatibility
from tidemill.assignment.model import AssignmentConfig, RackStrategy
from tidemill.assignment.scale import ScaleWish
from tidemill.config.values import RebalanceProtocol
from tidemill.documents import Document
from tidemill.errors import ConfigError
from tidemill.ids import ProcessId, TaskId
from tidemill.sim.scenario import (
    LATEST_MS,
    ClientSpec,
    Disk,
    Event,
    Happening,
    Scaling,
    Scenario,
    ScenarioSubtopology,
    Surroundings,
    Variant,
    checked,
)

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=Enum)

SETTINGS = {field.name.replace("_", "."): field.name for field in fields(AssignmentConfig)}
SURROUNDINGS = {field.name: field.name for field in fields(Surroundings)}


def scenario_of(table: Document, otherwise_named: str) -> Scenario:
    """The scenario of a parsed file; ConfigError if it makes no sense."""
    reader = _Reader(table, f"scenario {table.get('name', otherwise_named)!r}")
    scenario = Scenario(
        name=reader.take("name", str, otherwise_named),
        description=reader.take("description", str, ""),
        seed=reader.take("seed", int, 1),
        start=reader.take("start", _instant, None),
        assignor=reader.take("assignor", str, DEFAULT),
        compatibility=reader.take("compatibility", Compatibility, Compatibility.KAFKA_4_3),
        measured_from_ms=reader.take("measured_from_s", _seconds, None) if "measured_from_s" in table else None,
        horizon_ms=reader.take("horizon_s", _seconds, 86_400_000),
        settings=reader.take("settings", settings_of, AssignmentConfig()),
        surroundings=reader.take("surroundings", surroundings_of, Surroundings()),
        subtopologies=tuple(map(_subtopology, reader.tables("subtopologies"))),
        clients=(),
        events=tuple(sorted(map(_event, reader.tables("events")), key=lambda event: event.at_ms)),
        variants=tuple(map(_variant, reader.tables("variants"))),
        scaling=reader.take("scale", _scaling, None),
    )
    called = {event.by for event in scenario.events} | {
        event.client for event in scenario.events if event.what is Happening.JOIN
    }
    if scenario.scaling is not None:
        called |= set(scenario.scaling.clients)
    clients = tuple(_client(entry, called) for entry in reader.tables("clients"))
    reader.refuse_the_rest()
    return checked(replace(scenario, clients=clients))


def settings_of(table: Document) -> AssignmentConfig:
    """Settings by their Kafka names."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        values[_known(name, SETTINGS, "[settings]")] = setting_value(name, value)
    return AssignmentConfig(**values)


def setting_value(name: str, value: object) -> Any:
    """A setting's value in its type; text is read as the command line writes it."""
    match name:
        case "rack.aware.assignment.strategy":
            return _one_of(RackStrategy, value, name)
        case "rack.aware.assignment.tags":
            return _texts(value, name)
        case _:
            return _whole(value, name)


def surroundings_of(table: Document) -> Surroundings:
    values: dict[str, Any] = {}
    for name, value in table.items():
        values[_known(name, SURROUNDINGS, "[surroundings]")] = surroundings_value(name, value)
    return Surroundings(**values)


def surroundings_value(name: str, value: object) -> Any:
    """A value of ``Surroundings`` in its type."""
    if name == "replica_racks":
        return _texts(value, name)
    if name == "rebalance_protocol":
        return _one_of(RebalanceProtocol, value, name)
    if name == "restore_records_per_s":
        return _positive(value, name)
    return _whole(value, name)


class _Reader:
    """Takes the keys of a table one by one and knows which are left."""

    def __init__(self, table: Document, where: str) -> None:
        self._left, self._where = dict(table), where
        self._taken: list[str] = []

    def take(self, name: str, read: Callable[[Any], Value], default: Value) -> Value:
        self._taken.append(name)
        if name not in self._left:
            return default
        return self._read(name, read)

    def needs(self, name: str, read: Callable[[Any], Value]) -> Value:
        if name not in self._left:
            raise ConfigError(f"{self._where}: {name} is missing; it has {', '.join(self._left) or 'nothing'}")
        self._taken.append(name)
        return self._read(name, read)

    def _read(self, name: str, read: Callable[[Any], Value]) -> Value:
        value = self._left.pop(name)
        try:
            return read(value)
        except ConfigError:
            raise
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise ConfigError(f"{self._where}: {name} = {value!r} can't be read ({error})") from error

    def tables(self, name: str) -> list[Document]:
        found: list[Document] = self.take(name, _tables, [])
        return found

    def refuse_the_rest(self) -> None:
        if self._left:
            unknown = ", ".join(self._left)
            raise ConfigError(f"{self._where}: {unknown} is not known; expected {', '.join(sorted(self._taken))}")


def _subtopology(table: Document) -> ScenarioSubtopology:
    reader = _Reader(table, "[[subtopologies]]")
    part = ScenarioSubtopology(
        number=reader.needs("number", int),
        partitions=reader.needs("partitions", int),
        is_stateful=reader.take("stateful", bool, False),
        records=reader.take("records", _counts, ()),
        processed=reader.take("processed", _counts, ()),
        records_per_s=reader.take("records_per_s", _rates, ()),
        bytes_per_record=reader.take("bytes_per_record", _count, 100),
        is_source_changelog=reader.take("source_is_changelog", bool, False),
    )
    reader.refuse_the_rest()
    return part


def _client(table: Document, called: set[str | None]) -> ClientSpec:
    reader = _Reader(table, f"[[clients]] {table.get('name', '')}")
    name = reader.needs("name", str)
    client = ClientSpec(
        name=name,
        process_id=reader.needs("process_id", ProcessId.parse),
        threads=reader.take("threads", int, 1),
        tags=reader.take("tags", dict, {}),
        rack=reader.take("rack", str, None) if "rack" in table else None,
        state=reader.take("state", _by_task, {}),
        joins_ms=reader.take("joins_s", _seconds, None if name in called else 0),
    )
    reader.refuse_the_rest()
    return client


def _event(table: Document) -> Event:
    reader = _Reader(table, f"[[events]] {table.get('do', '')}")
    event = Event(
        at_ms=reader.needs("at_s", _seconds),
        what=reader.needs("do", lambda value: _one_of(Happening, value, "do")),
        client=reader.take("client", str, None) if "client" in table else None,
        by=reader.take("by", str, None) if "by" in table else None,
        for_ms=reader.take("for_s", _seconds, None) if "for_s" in table else None,
        disk=reader.take("disk", lambda value: _one_of(Disk, value, "disk"), Disk.KEPT),
        records=reader.take("records", _by_task, {}),
        records_per_s=reader.take("records_per_s", _rate, 0.0),
    )
    reader.refuse_the_rest()
    return event


def _scaling(table: Document) -> Scaling:
    reader = _Reader(table, "[scale]")
    usual = ScaleWish()
    wish = ScaleWish(
        least=reader.take("least", lambda value: _whole(value, "least"), usual.least),
        most=reader.take("most", lambda value: _whole(value, "most"), usual.most),
        catch_up_s=max(1, reader.take("catch_up_s", lambda value: _whole(value, "catch_up_s"), usual.catch_up_s)),
        headroom=reader.take("headroom_percent", lambda value: _whole(value, "headroom_percent") / 100, usual.headroom),
        capacity_per_s=reader.needs("capacity_per_s", lambda value: _whole(value, "capacity_per_s")),
    )
    scaling = Scaling(
        wish=wish,
        clients=reader.take("clients", lambda value: _texts(value, "clients"), ()),
        every_ms=reader.take("every_s", _seconds, 15_000),
        start_ms=reader.take("start_s", _seconds, 10_000),
    )
    reader.refuse_the_rest()
    return scaling


def _variant(table: Document) -> Variant:
    reader = _Reader(table, "[[variants]]")
    name = reader.needs("name", str)
    values = {key: str(value) for key, value in table.items() if key != "name"}
    return Variant(name=name, values=values)


def _tables(value: object) -> list[Document]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError("expected tables, written with two brackets: [[...]]")
    return value


def _rate(value: str | float) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError("expected a number, 0 or more")
    return number


def _rates(value: str | float | list[str | float]) -> tuple[float, ...]:
    return tuple(map(_rate, value)) if isinstance(value, list) else (_rate(value),)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("expected whole numbers, 0 or more, of at most 64 bits")
    return value


def _counts(value: object) -> tuple[int, ...]:
    return tuple(map(_count, value)) if isinstance(value, list) else (_count(value),)


def _by_task(table: Document) -> dict[TaskId, int]:
    return {TaskId.parse(task): _count(count) for task, count in table.items()}


def _instant(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        raise ValueError("expected a date and time such as 2022-04-11T13:47:00+09:00, without quotes")
    return value


def _seconds(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value * 1000 <= LATEST_MS:
        raise ValueError(f"expected a number of seconds, from 0 to {LATEST_MS // 1000}")
    return round(value * 1000)


def _whole(value: object, name: str) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) else -1
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 63 or isinstance(value, (bool, float)):
        raise ConfigError(f"{name} = {value!r}: expected a whole number, 0 or more, of at most 64 bits")
    return number


def _texts(value: object, name: str) -> tuple[str, ...]:
    """A list; on the command line its texts with ``+`` between them."""
    if isinstance(value, str):
        return tuple(value.split("+"))
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise ConfigError(f"{name} = {value!r}: expected a list of texts")


def _positive(value: object, name: str) -> float:
    try:
        number = float(value) if isinstance(value, (float, int, str)) else -1.0
    except (ValueError, OverflowError):
        number = -1.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"{name} = {value!r}: expected a number greater than 0")
    return number


def _one_of(choices: type[Choice], value: object, name: str) -> Choice:
    try:
        return choices(value)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise ConfigError(f"{name} = {value!r}: expected one of {names}") from None


def _known(name: str, names: Mapping[str, str], where: str) -> str:
    if name not in names:
        raise ConfigError(f"{where}: {name} is not known; expected one of {', '.join(sorted(names))}")
    return names[name]
