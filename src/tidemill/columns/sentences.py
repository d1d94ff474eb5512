"""The sentence of a Column mistake: operator, file and line, what the function got, and the two ways out, with code."""

from __future__ import annotations

import ast

from tidemill.columns.functions import ColumnFunction, Expected, Otherwise
from tidemill.columns.mistakes import Mistake, parameters_of
from tidemill.columns.source_code import SourcePlace, text_of, where_defined
from tidemill.errors import ColumnMistakeError

_LONGEST = 100


def error_of(use: ColumnFunction, mistake: Mistake) -> ColumnMistakeError:
    """The error for it, with its fields."""
    code = f"`{_cut(mistake.code)}` " if mistake.code else "the function "
    return ColumnMistakeError(
        f"{where(use, mistake.place)}: {code}{mistake.what}; {_got(use)}, part of an expression for Spark and not one"
        f" record's value. {_ways_out(use, mistake)}",
        node=use.node,
        operator=use.operator,
        file=None if mistake.place is None else mistake.place.file,
        line=None if mistake.place is None else mistake.place.line,
    )


def where(use: ColumnFunction, place: SourcePlace | None = None) -> str:
    """``map_values KSTREAM-MAPVALUES-0000000001 (orders.py, line 12)``."""
    place = place or where_defined(use.function)
    return f"{use.operator} {use.node}" + ("" if place is None else f" ({place})")


def _got(use: ColumnFunction) -> str:
    names = parameters_of(use)
    typed = [f"{name} ({_cut(kind, 40)})" if kind else name for name, kind in zip(names, use.types, strict=False)]
    listed = " and ".join((", ".join(typed[:-1]), typed[-1])) if len(typed) > 1 else typed[0]
    return f"{listed} {'are PySpark Columns' if len(typed) > 1 else 'is a PySpark Column'}"


def _ways_out(use: ColumnFunction, mistake: Mistake) -> str:
    if mistake.advice is not None:
        columns = mistake.advice
    elif mistake.instead is not None:
        columns = f"Write {mistake.instead}"
    elif use.gives is Expected.BOOLEAN:
        columns = "Write a boolean Column, with & | ~ and pyspark.sql.functions"
    else:
        columns = "Write it with pyspark.sql.functions, such as F.when(condition, one).otherwise(other)"
    if mistake.is_of_columns:
        return f"{columns}."
    match use.otherwise:
        case Otherwise.NOT_AT_ALL:
            return f"{columns}; values are to be had in a map_values(per_record(...)) behind the join only."
        case Otherwise.PLAIN:
            return f"{columns}, or leave of_columns(...) away to get values."
    return f"{columns}, or to get values {_per_record(use)}."


def _per_record(use: ColumnFunction) -> str:
    if use.gives is Expected.BOOLEAN:
        return f"per_record({_function(use)})"
    serde = "(key serde, value serde)" if use.is_pair_of_serdes else "..."
    return f"per_record({_function(use)}, serde={serde})"


def _function(use: ColumnFunction) -> str:
    place = where_defined(use.function)
    node = place.node if place is not None else None
    if isinstance(node, ast.Lambda) and len(text := text_of(node)) <= _LONGEST:
        return text
    name = getattr(use.function, "__qualname__", "")
    return name if name and "<" not in name else "the function"


def _cut(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
