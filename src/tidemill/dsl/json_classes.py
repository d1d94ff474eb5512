"""The schema of a JSON serde as a Python class: a dataclass, a TypedDict or a Pydantic model.

Decides which type of the schema each annotation is, which fields are required (those that neither take None nor have a default),
and how objects of a class are created from JSON. All annotations are resolved where the program is built; what travels to the
workers is a ``Shape``, a value. Pydantic is never imported: a model is recognised by its methods.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

from tidemill.dsl.json_schema import ArrayType, DecimalType, JsonType, MapType, Misfit, ScalarType, StructType, parse_type
from tidemill.errors import TopologyError
from tidemill.printable import said_by
from tidemill.topology.values import Value

Maker = Callable[[Value], Value]

_SCALARS: Mapping[Any, tuple[str, ...]] = {
    str: ("string",), bool: ("boolean",), int: ("bigint", "int", "smallint", "tinyint"), float: ("double", "float"),
    bytes: ("binary",), date: ("date",), datetime: ("timestamp", "timestamp_ntz"), Decimal: ("decimal(38,18)",),
}  # fmt: skip
"""The types that an annotation may be; the first one is meant where nothing says otherwise."""
_OF_PYDANTIC = {"NaiveDatetime": "timestamp_ntz", "AwareDatetime": "timestamp"}
_EXPECTED = (
    "str, bool, int, float, bytes, Decimal, date, datetime, UUID, an Enum or a Literal of texts, list[...], tuple[..., ...],"
    " dict[str, ...], a dataclass, a TypedDict, a Pydantic model, each of them also with | None"
)


# --- converters from parsed JSON to objects: values themselves, so that they can be pickled
# ------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """``name`` in JSON, which is also the argument's; with ``has_default``, a null is not given, so the class's default holds."""

    name: str
    has_default: bool
    inner: Shape | None


@dataclass(frozen=True, slots=True)
class ClassShape:
    """An instance of ``cls`` of an object."""

    cls: type
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class CallShape:
    """``call`` of the text, or of the number."""

    call: Maker


@dataclass(frozen=True, slots=True)
class ItemsShape:
    """Each item, in a ``made``."""

    made: Callable[[list[Value]], Value]
    inner: Shape | None


@dataclass(frozen=True, slots=True)
class ValuesShape:
    """Each value of a map."""

    inner: Shape


Shape = ClassShape | CallShape | ItemsShape | ValuesShape


def with_shape(shape: Shape) -> Maker:
    """A function that makes the value of what a reader has read and is not None; it raises Misfit."""
    match shape:
        case ClassShape(cls, members):
            return _of_class(cls, [(m.name, m.has_default, _maker(m.inner)) for m in members])
        case CallShape(call):
            return lambda value: _called(call, value)
        case ItemsShape(made, inner):
            each = _maker(inner)
            return lambda items: made([_placed(each, item, f"[{at}]") for at, item in enumerate(items)])
        case ValuesShape(inner):
            each = _maker(inner)
            return lambda found: {name: _placed(each, item, f"[{name[:60]!r}]") for name, item in found.items()}


def _maker(shape: Shape | None) -> Maker | None:
    return None if shape is None else with_shape(shape)


def _placed(maker: Maker | None, value: Value, place: str) -> Value:
    if maker is None or value is None:
        return value
    try:
        return maker(value)
    except Misfit as misfit:
        raise misfit.inside(place) from None


def _of_class(cls: Any, members: Sequence[tuple[str, bool, Maker | None]]) -> Maker:
    validate = getattr(cls, "model_validate", None)

    def make(found: dict[str, Value]) -> Value:
        given = {}
        for name, has_default, maker in members:
            value = found[name]
            if value is not None or not has_default:
                given[name] = _placed(maker, value, f".{name}")
        try:
            return cls(**given) if validate is None else validate(given)
        except Exception as problem:
            raise _refused(cls, problem) from None

    return make


def _refused(cls: type, problem: Exception) -> Misfit:
    """The class's own reason; a Pydantic model gives place and reason."""
    errors = getattr(problem, "errors", None)
    if not callable(errors):
        return Misfit(f"is refused by {cls.__name__}: {type(problem).__name__}: {said_by(problem)}")
    first = errors()[0]
    misfit = Misfit(f"is {str(first['input'])[:60]!r}, refused by {cls.__name__}: {first['msg']}")
    for place in reversed(first["loc"]):
        misfit.inside(f"[{place}]" if isinstance(place, int) else f".{place}")
    return misfit


def _called(call: Maker, value: Value) -> Value:
    try:
        return call(value)
    except ValueError as problem:
        raise Misfit(f"is {str(value)[:60]!r}: {problem}") from None


# --- the schema of a class ----------------------------------------------------------------------------------------------


def schema_of(cls: type) -> tuple[StructType, Shape | None]:
    """The fields of a class, and how its instances are made; None where what was read is the value.

    Raises:
        TopologyError: the class is of another kind, or has an annotation that JSON has no form for.
    """
    if not _is_class_of_fields(cls):
        raise TopologyError(
            "json: expected DDL text such as 'user string, amount double', a dataclass, a TypedDict or a Pydantic model,"
            f" got {cls!r}; a list or a map is a field of one of these"
        )
    return _fields_of(cls, ())


@dataclass(frozen=True, slots=True)
class _Found:
    """The JSON type of an annotation."""

    kind: JsonType
    shape: Shape | None = None
    is_nullable: bool = False


def _is_class_of_fields(found: object) -> bool:
    return isinstance(found, type) and (is_dataclass(found) or _is_typed_dict(found) or _is_model(found))


def _is_typed_dict(cls: Any) -> bool:
    return hasattr(cls, "__required_keys__") and hasattr(cls, "__total__")


def _is_model(cls: Any) -> bool:
    return isinstance(getattr(cls, "model_fields", None), dict) and hasattr(cls, "model_validate")


def _fields_of(cls: Any, outer: tuple[type, ...]) -> tuple[StructType, Shape | None]:
    if cls in outer:
        raise TopologyError(f"json: {cls.__name__} contains itself, for which Spark has no type")
    members, typed, required = [], [], set()
    for field in _fields_of_model(cls) if _is_model(cls) else _fields_of_class(cls):
        place = f"{cls.__name__}.{field.name}"
        found = _annotated((field.annotation, *field.notes), place, (*outer, cls))
        if field.has_default and found.is_nullable and field.default is not None:
            raise TopologyError(
                f"json: {place} takes None and has the default {field.default!r}: a missing field and a null one are the same"
                " here, so give it the default None, or a type without None"
            )
        typed.append((field.name, found.kind))
        members.append(Member(field.name, field.has_default, found.shape))
        if not (found.is_nullable or field.has_default):
            required.add(field.name)
    if not typed:
        raise TopologyError(f"json: {cls.__name__} has no fields")
    kind = StructType(tuple(typed), frozenset(required), _forbids_more(cls))
    if not _is_typed_dict(cls):
        return kind, ClassShape(cls, tuple(members))
    if all(member.inner is None for member in members):
        return kind, None
    return kind, ClassShape(dict, tuple(Member(member.name, False, member.inner) for member in members))


def _forbids_more(cls: Any) -> bool:
    return _is_model(cls) and cls.model_config.get("extra") == "forbid"


@dataclass(frozen=True, slots=True)
class _Field:
    """``default``: None where a function makes it, or there is none. ``notes``: as of ``Annotated``."""

    name: str
    annotation: Any
    has_default: bool
    default: Value = None
    notes: tuple[object, ...] = ()


def _fields_of_class(cls: Any) -> list[_Field]:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as problem:
        raise TopologyError(
            f"json: an annotation of {cls.__name__} can't be resolved ({problem}): define what it names at the top of its module"
        ) from None
    except Exception as problem:  # an annotation is any expression
        said = f"{type(problem).__name__}: {said_by(problem)}"
        raise TopologyError(
            f"json: an annotation of {cls.__name__} can't be resolved ({said}); expected one of {_EXPECTED}"
        ) from None
    if _is_typed_dict(cls):
        return [_of_typed_dict(cls, name, hint) for name, hint in hints.items()]
    found = []
    for field in fields(cls):
        if not field.init:
            raise TopologyError(f"json: {cls.__name__}.{field.name} is no argument of the class (init=False): it can't be read")
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        found.append(_Field(field.name, hints[field.name], has_default, None if field.default is MISSING else field.default))
    _require_only(cls, {field.name for field in found})
    return found


def _require_only(cls: type, fields_of_cls: set[str]) -> None:
    """Refuses a class that wants more than its fields (an InitVar, an ``__init__`` of its own): it could make no instance."""
    for argument in inspect.signature(cls).parameters.values():
        is_wanted = argument.default is argument.empty and argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
        if is_wanted and argument.name not in fields_of_cls:
            raise TopologyError(
                f"json: {cls.__name__} wants the argument {argument.name}, which is no field: JSON has nothing for it; give it a"
                " default"
            )


def _of_typed_dict(cls: Any, name: str, hint: Any) -> _Field:
    """A key that may be missing has a default: to be missing."""
    said = str(get_origin(hint)).rpartition(".")[2]
    if said in ("NotRequired", "Required"):
        return _Field(name, get_args(hint)[0], said == "NotRequired")
    return _Field(name, hint, name not in cls.__required_keys__)


def _fields_of_model(cls: Any) -> list[_Field]:
    found = []
    for name, field in cls.model_fields.items():
        alias = field.alias or name
        if (field.validation_alias or alias) != alias or (field.serialization_alias or alias) != alias:
            raise TopologyError(f"json: {cls.__name__}.{name} is read by another name than it is written by: give it one alias")
        default = None if field.is_required() or field.default_factory is not None else field.default
        found.append(_Field(alias, field.annotation, not field.is_required(), default, tuple(field.metadata)))
    return found


# --- annotations --------------------------------------------------------------------------------------------------------


def _type_of(annotation: Any, place: str, outer: tuple[type, ...]) -> _Found:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(arguments, place, outer)
    if origin in (Union, types.UnionType):
        others = [one for one in arguments if one is not type(None)]
        if len(others) == 1 and len(arguments) == 2:
            inner = _type_of(others[0], place, outer)
            return _Found(inner.kind, inner.shape, is_nullable=True)
        raise _no_form(annotation, place)
    if origin is Literal:
        kinds = {type(one) for one in arguments}
        if len(kinds) == 1 and kinds <= {str, int, bool}:
            return _Found(ScalarType(_SCALARS[kinds.pop()][0], arguments), CallShape(_OneOf(arguments)))
        raise _no_form(annotation, place)
    if origin is not None:
        return _container(annotation, place, outer)
    return _plain_type(annotation, place, outer)


def _container(annotation: Any, place: str, outer: tuple[type, ...]) -> _Found:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (list, Sequence) or (origin is tuple and arguments[1:] == (...,)):
        inner = _type_of(arguments[0], f"{place}[]", outer)
        made = tuple if origin is tuple else list
        shape = None if inner.shape is None and made is list else ItemsShape(made, inner.shape)
        return _Found(ArrayType(inner.kind), shape)
    if origin in (dict, Mapping) and arguments[0] is str:
        inner = _type_of(arguments[1], f"{place}[]", outer)
        return _Found(MapType(inner.kind), None if inner.shape is None else ValuesShape(inner.shape))
    raise _no_form(annotation, place)


def _plain_type(annotation: Any, place: str, outer: tuple[type, ...]) -> _Found:
    annotation = getattr(annotation, "__supertype__", annotation)  # a NewType
    if annotation in _SCALARS:
        return _Found(parse_type(_SCALARS[annotation][0]))
    if annotation is UUID:
        return _Found(ScalarType("string"), CallShape(UUID))
    if isinstance(annotation, type) and issubclass(annotation, Enum) and all(isinstance(one.value, str) for one in annotation):
        return _Found(ScalarType("string", _values_of(annotation)), CallShape(annotation))
    if _is_class_of_fields(annotation):
        return _Found(*_fields_of(annotation, outer))
    special = _OF_PYDANTIC.get(getattr(annotation, "__name__", ""))
    if special is not None and annotation.__module__.startswith("pydantic"):
        return _Found(ScalarType(special))
    raise _no_form(annotation, place)


def _values_of(annotation: type[Enum]) -> tuple[object, ...]:
    """The texts that it takes; none if it makes members of others (``_missing_``)."""
    takes_others = getattr(annotation._missing_, "__func__", None) is not getattr(Enum._missing_, "__func__", None)
    return () if takes_others else tuple(one.value for one in annotation)


def _annotated(arguments: tuple[object, ...], place: str, outer: tuple[type, ...]) -> _Found:
    """``Annotated[Decimal, "decimal(12,2)"]``, or what Pydantic knows of a Decimal's digits."""
    inner, *notes = arguments
    found = _type_of(inner, place, outer)
    for note in notes:
        if isinstance(note, str):
            return _Found(_said(note, found.kind, place), found.shape, found.is_nullable)
    digits = {name: value for note in notes for name in ("max_digits", "decimal_places") if (value := getattr(note, name, None))}
    if isinstance(found.kind, DecimalType) and "max_digits" in digits:
        kind = parse_type(f"decimal({digits['max_digits']},{digits.get('decimal_places', 0)})")
        return _Found(kind, found.shape, found.is_nullable)
    return found


def _said(ddl: str, kind: JsonType, place: str) -> JsonType:
    """The type that an annotation names in DDL, which must be one of the same Python values."""
    said = parse_type(ddl)
    if isinstance(said, DecimalType) and isinstance(kind, DecimalType):
        return said
    if any(kind.ddl in allowed and said.ddl in allowed for allowed in _SCALARS.values()):
        return said
    raise TopologyError(f"json: {place} is annotated with the type {ddl}, whose values are of another Python type; leave it out")


def _no_form(annotation: Any, place: str) -> TopologyError:
    name = annotation.__name__ if isinstance(annotation, type) and get_origin(annotation) is None else str(annotation)
    return TopologyError(f"json: {place} is annotated with {name}, expected one of {_EXPECTED}")


@dataclass(frozen=True, slots=True)
class _OneOf:
    """Check of a Literal: one of its values."""

    values: tuple[object, ...]

    def __call__(self, value: Value) -> Value:
        if value not in self.values:
            raise ValueError(f"expected one of {', '.join(map(repr, self.values))}")
        return value
