"""Variants of a scenario: one value changed, several at once, or all combinations.

Decides which names can be varied: settings by their Kafka names, ``assignor``, ``compatibility``, ``seed``, the surroundings,
and ``threads`` (of every client).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from tidemill.assignment.kip441.high_availability import Compatibility
from tidemill.errors import ConfigError
from tidemill.sim.scenario import Scenario, Variant, checked
from tidemill.sim.scenario_file import SETTINGS, SURROUNDINGS, setting_value, surroundings_value

MOST_VALUES = 1_000_000
PLAIN = ("assignor", "compatibility", "seed", "threads")


def with_value(scenario: Scenario, name: str, value: str) -> Scenario:
    """The scenario with one value changed; ConfigError if there is no such name or it can't have the value."""
    if name in SETTINGS:
        changed = replace(scenario.settings, **{SETTINGS[name]: setting_value(name, value)})
        return replace(scenario, settings=changed)
    if name in SURROUNDINGS:
        return replace(
            scenario, surroundings=replace(scenario.surroundings, **{name: surroundings_value(name, value)})
        )
    try:
        match name:
            case "assignor":
                return replace(scenario, assignor=value)
            case "compatibility":
                return replace(scenario, compatibility=Compatibility(value))
            case "seed":
                return replace(scenario, seed=int(value))
            case "threads":
                threads = int(value)
                return checked(
                    replace(scenario, clients=tuple(replace(client, threads=threads) for client in scenario.clients))
                )
    except ValueError as error:
        raise ConfigError(f"{name}={value} can't be read: {error}") from None
    known = ", ".join([*PLAIN, *sorted(SETTINGS), *sorted(SURROUNDINGS)])
    raise ConfigError(f"{name} can't be varied; expected one of {known}")


def with_values(scenario: Scenario, values: Mapping[str, str]) -> Scenario:
    for name, value in values.items():
        scenario = with_value(scenario, name, value)
    return scenario


def parse_axis(text: str) -> tuple[str, list[str]]:
    """``name=1,2,6`` or ``name=1..16`` or ``name=0..100..20`` (first, last, step) as a name and its values."""
    name, separator, values = text.partition("=")
    if not separator or not name or not values:
        raise ConfigError(f"{text!r}: expected NAME=VALUE,VALUE... or NAME=FIRST..LAST or NAME=FIRST..LAST..STEP")
    found = [value for part in values.split(",") for value in _expanded(part)]
    if len(set(found)) < len(found):
        raise ConfigError(f"{text!r}: a value is there twice")
    return name.strip(), found


def combinations(axes: Sequence[tuple[str, Sequence[str]]]) -> Iterator[Variant]:
    """All combinations of the axes' values, the last axis changing fastest."""
    names = [name for name, _ in axes]
    if len(set(names)) < len(names):
        raise ConfigError(f"{', '.join(names)}: a name is there twice; give all its values at once")
    for values in product(*(values for _, values in axes)):
        chosen = dict(zip(names, values, strict=True))
        yield Variant(name=" ".join(f"{name}={value}" for name, value in chosen.items()), values=chosen)


def _expanded(part: str) -> list[str]:
    ends = part.split("..")
    if len(ends) == 1:
        return [part.strip()]
    try:
        first, last, step = (*map(int, ends), 1) if len(ends) == 2 else map(int, ends)
    except ValueError:
        raise ConfigError(f"{part!r}: expected whole numbers FIRST..LAST or FIRST..LAST..STEP") from None
    if step < 1 or last < first:
        raise ConfigError(f"{part!r}: expected FIRST at most LAST, and a STEP of at least 1")
    if (last - first) // step >= MOST_VALUES:
        raise ConfigError(f"{part!r}: {(last - first) // step + 1:,} values, expected at most {MOST_VALUES:,}")
    return [str(number) for number in range(first, last + 1, step)]


