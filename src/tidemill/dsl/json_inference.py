"""Inference of a schema from a sample of JSON objects, with a note for each conflict.

Decides the narrowest type of a schema that all values of a field fit: whole numbers are bigint, text is a date or a time where
all of it is, an object with very many names a map. Where values are of several kinds that no type holds, the most frequent one is
taken and a note says how many records such a serde would refuse. Fields that are not in the sample are not in the schema.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidemill.dsl.json_reading import MAX_BYTES, parsed_text
from tidemill.dsl.json_schema import (
    ArrayType,
    DecimalType,
    JsonType,
    MapType,
    Misfit,
    ScalarType,
    StructType,
    declared,
    quoted_name,
)
from tidemill.dsl.json_times import read_date, read_instant, read_local_time
from tidemill.errors import ConfigError, SerdeError

_MOST_NAMES = 200
"""An object with more, few of which are in each record, is a map: its names are data."""
_LONG = 1 << 63
_DIGITS = 38
_TEXT_FORMS = (("date", read_date), ("timestamp", read_instant), ("timestamp_ntz", read_local_time))
_FAMILIES = {
    "whole": "numbers", "large": "numbers", "number": "numbers", "string": "texts", "date": "texts", "timestamp": "texts",
    "timestamp_ntz": "texts", "boolean": "booleans", "object": "objects", "array": "arrays",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """``read``: how many objects it is of; ``notes``: sentences on what it does not hold."""

    type: StructType
    read: int
    notes: tuple[str, ...]

    @property
    def ddl(self) -> str:
        """A field a line."""
        required = self.type.required
        return ",\n".join(
            f"{quoted_name(name)} {declared(kind)}{' NOT NULL' if name in required else ''}" for name, kind in self.type.fields
        )

    def as_dataclass(self, name: str) -> str:
        """Python source of a dataclass ``name`` with the same fields, and of one for each struct in it. A name that is taken gets
        a number.

        Raises:
            ConfigError: a field has a name that Python does not take.
        """
        classes = _Classes()
        classes.add(name, self.type)
        return "\n\n\n".join([_imports(classes.sources), *classes.sources])


def infer_schema(texts: Iterable[bytes], *, is_required: bool = False) -> InferredSchema:
    """The schema of JSON objects. ``is_required``: fields that every one of them has are NOT NULL.

    Raises:
        ConfigError: there is no JSON object among them.
    """
    root, read, others = _Tally(), 0, list[str]()
    for text in texts:
        try:
            found = parsed_text(text, MAX_BYTES)
            if not isinstance(found, dict):
                what = _kind_of(found)
                raise SerdeError(f"json: found {'number' if what in ('whole', 'large') else what}, expected an object")
        except SerdeError as problem:
            others.append(str(problem))
            continue
        read += 1
        root.add(found)
    if not read:
        raise ConfigError(f"no JSON object among {len(others)} records; the first: {others[0]}" if others else "no records")
    notes: list[str] = []
    if others:
        notes.append(f"{len(others)} of {len(others) + read} records are no JSON objects, the first: {others[0]}")
    kind = root.resolved("value", notes, is_required=is_required)
    if not isinstance(kind, StructType) or not kind.fields:
        raise ConfigError(f"the {read} objects have no fields in common: read them as text or as a map")
    return InferredSchema(kind, read, tuple(notes))


@dataclass(slots=True)
class _Tally:
    """Counts of the values that a place has held."""

    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    members: dict[str, _Tally] = field(default_factory=dict)
    items: _Tally | None = None

    def add(self, value: Any) -> None:
        kind = _kind_of(value)
        self.kinds[kind] += 1
        self.examples.setdefault(_FAMILIES.get(kind, kind), str(value)[:40])
        if isinstance(value, dict):
            for name, inner in value.items():
                self.members.setdefault(name, _Tally()).add(inner)
        elif isinstance(value, list):
            self.items = self.items or _Tally()
            for item in value:
                self.items.add(item)

    def merge(self, other: _Tally) -> None:
        self.kinds += other.kinds
        self.examples = other.examples | self.examples
        for name, inner in other.members.items():
            self.members.setdefault(name, _Tally()).merge(inner)
        if other.items is not None:
            self.items = self.items or _Tally()
            self.items.merge(other.items)

    def resolved(self, place: str, notes: list[str], *, is_required: bool) -> JsonType:
        """The type; what does not fit it is noted."""
        families: Counter[str] = Counter()
        for kind, count in self.kinds.items():
            if kind != "null":
                families[_FAMILIES[kind]] += count
        if not families:
            notes.append(f"{place}: {'always null' if self.kinds else 'no item in any array'}, taken as string")
            return ScalarType("string")
        family = min(families, key=lambda name: (-families[name], name))
        found = self._of_family(family, place, notes, is_required=is_required)
        for other, count in sorted(families.items()):
            if other != family:
                example = self.examples[other]
                taken = f"{place}: {families[family]} {family}, taken as {found.ddl[:60]}"
                notes.append(f"{taken}; {count} {other} (such as {example!r}) would be refused")
        return found

    def _of_family(self, family: str, place: str, notes: list[str], *, is_required: bool) -> JsonType:
        match family:
            case "numbers":
                return self._number()
            case "texts":
                forms = [name for name, _ in (*_TEXT_FORMS, ("string", None)) if self.kinds[name]]
                return ScalarType(forms[0] if len(forms) == 1 else "string")
            case "booleans":
                return ScalarType("boolean")
            case "arrays":
                items = self.items or _Tally()
                return ArrayType(items.resolved(f"{place}[]", notes, is_required=is_required))
            case _:
                return self._object(place, notes, is_required=is_required)

    def _number(self) -> JsonType:
        if self.kinds["number"]:
            return ScalarType("double")
        return DecimalType(_DIGITS, 0) if self.kinds["large"] else ScalarType("bigint")

    def _object(self, place: str, notes: list[str], *, is_required: bool) -> JsonType:
        objects, present = self.kinds["object"], sum(inner.kinds.total() for inner in self.members.values())
        if not self.members or (len(self.members) > _MOST_NAMES and present < objects * len(self.members) / 10):
            values = _Tally()
            for inner in self.members.values():
                values.merge(inner)
            if self.members:
                notes.append(f"{place}: {len(self.members)} names in {objects} objects, taken as those of a map")
            return MapType(values.resolved(f"{place}[]", notes, is_required=is_required))
        fields = [
            (name, inner.resolved(f"{place}.{name}", notes, is_required=is_required)) for name, inner in self.members.items()
        ]
        always = (name for name, inner in self.members.items() if inner.kinds.total() - inner.kinds["null"] == objects)
        return StructType(tuple(fields), frozenset(always) if is_required else frozenset())


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "whole" if -_LONG <= value < _LONG else "large" if abs(value) < 10**_DIGITS else "number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else _form_of(value)


def _form_of(text: str) -> str:
    for name, read in _TEXT_FORMS:
        try:
            read(text)
        except Misfit:
            continue
        return name
    return "string"


# --- Python source ------------------------------------------------------------------------------------------------------

_PYTHON = {
    "string": "str", "boolean": "bool", "bigint": "int", "double": "float", "date": "date", "timestamp": "datetime",
    "timestamp_ntz": 'Annotated[datetime, "timestamp_ntz"]',
}  # fmt: skip


_IMPORTED = ("Annotated", "Decimal")
_BUILTINS = ("bool", "dict", "float", "int", "list", "str")
"""Types that annotations name: a field that is called so has its default in their place where they are looked up."""


def _imports(classes: Iterable[str]) -> str:
    """The import lines for the types that the classes name."""
    used = {word for source in classes for word in _words_of_annotations(source)}
    lines = ["from dataclasses import dataclass"]
    for module, names in (("datetime", ("date", "datetime")), ("decimal", ("Decimal",)), ("typing", ("Annotated",))):
        if found := [name for name in names if name in used]:
            lines.append(f"from {module} import {', '.join(found)}")
    return "from __future__ import annotations\n\n" + "\n".join(lines)


def _words_of_annotations(source: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(re.findall(r": (.*)", source))))


class _Classes:
    """The sources of classes, each behind those of the structs in it."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self._taken = set(_IMPORTED)

    def add(self, wanted: str, kind: StructType) -> str:
        """Adds the class of a struct and gives its name, which no other one has: those of "item.price" and of "item_price"
        would be alike."""
        numbered = (f"{wanted}{number}" for number in itertools.count(2))
        name = next(free for free in itertools.chain([wanted], numbered) if free not in self._taken)
        self._taken.add(name)
        required, optional = list[str](), list[str]()
        for field_name, inner in kind.fields:
            if not field_name.isidentifier() or keyword.iskeyword(field_name) or field_name.startswith("__"):
                raise ConfigError(f"the field {field_name!r} has no name that a dataclass can have: print the schema as DDL")
            annotation = self._annotation(inner, wanted + _camel(field_name))
            if field_name in kind.required:
                required.append(f"    {field_name}: {annotation}")
            else:
                optional.append(f"    {field_name}: {annotation} | None = None")
        for field_name, _ in kind.fields:
            if field_name in _BUILTINS and field_name in _words_of_annotations("\n".join((*required, *optional))):
                raise ConfigError(f"the field {field_name!r} would hide Python's type of that name: print the schema as DDL")
        self.sources.append("\n".join(["@dataclass", f"class {name}:", *required, *optional]))
        return name

    def _annotation(self, kind: JsonType, name: str) -> str:
        match kind:
            case StructType():
                return self.add(name, kind)
            case ArrayType(inner):
                return f"list[{self._annotation(inner, name)} | None]"
            case MapType(inner):
                return f"dict[str, {self._annotation(inner, name)} | None]"
            case DecimalType():
                return f'Annotated[Decimal, "{kind.ddl}"]'
            case ScalarType(ddl):
                return _PYTHON[ddl]


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
