"""Keys and values of a batch as columns for a function, and what it returns as values again.

Decides how each form has them (``BatchForm``): fields of a struct are columns; whole numbers and booleans among which some are
null are pandas' types with nulls, so that no number loses digits; times keep their microseconds. A result is taken by position:
one of pandas whose index is in another order is refused. A NaN of pandas, numpy or Python is a number, except where it can only
be a null: in a type that has no NaN, in JSON, and in a record of which the function got a null (but not where it got a NaN).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidemill.dsl.json_schema import ArrayType, DecimalType, JsonType, MapType, ScalarType, StructType, parse_type
from tidemill.dsl.serdes_json import JsonClassSerde, JsonSerde
from tidemill.printable import repr_of
from tidemill.steps.rows.codecs_wire import fixed_width, in_transit
from tidemill.topology.batch_operations import BatchForm

if TYPE_CHECKING:
    import pandas as pd

_ARROW = {
    "string": pa.string(), "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(),
    "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_WITH_NULLS = {
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64", "bool": "boolean",
}  # fmt: skip
"""pandas' types that have nulls, by Arrow's."""
NanType = JsonType | None
"""A type of which values of ``double`` and ``float`` may be NaN; None: nothing is known of it."""
_WITHOUT_NAN = ScalarType("number")
"""In place of ``double`` and ``float`` where a NaN stands for null."""


_parsed = cache(parse_type)
"""Once for each type of a topology, not for each micro-batch."""


class ResultShapeError(Exception):
    """A function of batches gave something that is no value for each record."""


# --- what a function gets ---------------------------------------------------------------------------------------------


def side_array(table: pa.Table, side: str, serde: Any) -> pa.Array:
    """The keys or values of rows, typed."""
    transit = in_transit(serde)
    fixed = fixed_width(transit.sql_type)
    parsed = _parsed(transit.sql_type)
    kind = arrow_type(parsed)
    if fixed is not None:
        return _one(table.column(side + fixed.kind.value).cast(kind))
    if pa.types.is_struct(kind):
        return pa.array([_for_arrow(transit.deserialize(data), parsed) for data in table.column(side).to_pylist()], kind)
    return _one(table.column(side).cast(kind))


def arrow_type(kind: JsonType) -> pa.DataType:
    """Arrow's type of a Spark type."""
    match kind:
        case StructType(fields):
            return pa.struct([(name, arrow_type(inner)) for name, inner in fields])
        case ArrayType(inner):
            return pa.list_(arrow_type(inner))
        case MapType(inner):
            return pa.map_(pa.string(), arrow_type(inner))
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case _:
            return _ARROW[kind.ddl]


def nan_type(serde: Any) -> NanType:
    """The type of a serde's values, and where they may be NaN."""
    kind = _parsed(in_transit(serde).sql_type)
    return _without_nan(kind) if type(serde) in (JsonSerde, JsonClassSerde) else kind


def _without_nan(kind: JsonType) -> JsonType:
    match kind:
        case StructType(fields):
            return StructType(tuple((name, _without_nan(inner)) for name, inner in fields))
        case ArrayType(inner):
            return ArrayType(_without_nan(inner))
        case MapType(inner):
            return MapType(_without_nan(inner))
        case ScalarType("double" | "float"):
            return _WITHOUT_NAN
        case _:
            return kind


def _for_arrow(value: Any, kind: JsonType) -> Any:
    """With maps as pairs, which is how Arrow takes them."""
    if value is None:
        return None
    match kind:
        case StructType(fields):
            return {name: _for_arrow(value[name], inner) for name, inner in fields}
        case ArrayType(inner):
            return [_for_arrow(item, inner) for item in value]
        case MapType(inner):
            return [(name, _for_arrow(item, inner)) for name, item in value.items()]
        case _:
            return value


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def given(array: pa.Array, form: BatchForm) -> Any:
    """Typed values as a function of this form gets them."""
    is_struct = pa.types.is_struct(array.type)
    if form is BatchForm.ARROW:
        return pa.Table.from_struct_array(array) if is_struct else array
    if form is BatchForm.NUMPY:
        return {name: _ndarray(column) for name, column in _fields(array)} if is_struct else _ndarray(array)
    if not is_struct:
        return _series(array)
    import pandas as pd

    columns = {name: _series(column) for name, column in _fields(array)}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(array)))


def _fields(array: pa.StructArray) -> list[tuple[str, pa.Array]]:
    """With nulls where the struct is null: ``StructArray.field`` has zeros and empty text there."""
    return [(field.name, column) for field, column in zip(array.type, array.flatten(), strict=True)]


def _ndarray(array: pa.Array) -> np.ndarray[Any, Any]:
    if pa.types.is_temporal(array.type):
        return array.to_numpy(zero_copy_only=False)  # null is NaT
    is_plain = pa.types.is_floating(array.type) or pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
    if is_plain and not array.null_count:
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(array.type):
        return array.to_numpy(zero_copy_only=False)  # null is NaN
    found: np.ndarray[Any, Any] = np.empty(len(array), dtype=object)
    found[:] = array.to_pylist(maps_as_pydicts="strict")
    return found


def _series(array: pa.Array) -> pd.Series[Any]:
    import pandas as pd

    with_nulls = _WITH_NULLS.get(str(array.type)) if array.null_count else None
    if with_nulls is not None:
        return pd.Series(array.to_pylist(), dtype=with_nulls)  # the name of a dtype
    if pa.types.is_nested(array.type):
        return pd.Series(array.to_pylist(maps_as_pydicts="strict"), dtype=object)
    found: pd.Series[Any] = array.to_pandas(coerce_temporal_nanoseconds=False)
    return found


# --- what a function gives --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GivenRecords:
    """The records that a function is called with. ``columns``: what it gets of them."""

    count: int
    columns: Sequence[pa.Array] = ()

    def has_null(self, at: int, *path: str) -> bool:
        """True if a NaN in the result of a record, or in its field of that ``path``, may be a null that the function got: what it
        gets of the record is null or contains a null, and is no NaN in the same place."""
        given = [column[at].as_py(maps_as_pydicts="strict") for column in self.columns]
        here = given
        for name in path:
            here = [one.get(name) for one in here if isinstance(one, dict)]
        return not any(one != one for one in here) and any(map(_contains_null, given))


def _contains_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_contains_null, value.values()))
    return value is None or (isinstance(value, (list, tuple)) and any(map(_contains_null, value)))


def result_values(result: Any, records: GivenRecords, kind: NanType) -> list[Any]:
    """The values of this type that a function gave for the records: dicts of a table's columns, else the values of one column.

    Raises:
        ResultShapeError: there are more or fewer values than records, or they are in another order.
    """
    values = _values(result, records, kind)
    if len(values) != records.count:
        raise ResultShapeError(f"it gave {len(values)} results for {records.count} records, expected one for each, in order")
    return values


def _values(result: Any, records: GivenRecords, kind: NanType) -> list[Any]:
    if isinstance(result, (pa.Table, pa.RecordBatch)):
        _check_names(result, result.schema.names)
        return result.to_pylist(maps_as_pydicts="strict")
    if isinstance(result, Mapping):
        _check_names(result, list(map(str, result)))
        columns = {str(name): column for name, column in result.items()}
    elif _is_of_pandas(result, "DataFrame"):
        _check_index(result, records.count)
        _check_names(result, list(map(str, result.columns)))
        columns = {str(name): result[name] for name in result.columns}
    else:
        return _column(result, records, kind)
    fields = {name: _column(column, records, _field(kind, name), name) for name, column in columns.items()}
    return _rows(fields, records.count)


def _check_names(result: Any, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise ResultShapeError(f"it gave a {type(result).__name__} with the columns {names}, expected each name once")


def _field(kind: NanType, name: str) -> NanType:
    """The type of a field or of a map's values; None if there is none."""
    match kind:
        case StructType(fields):
            return dict(fields).get(name)
        case MapType(inner):
            return inner
        case _:
            return None


def _rows(columns: Mapping[str, list[Any]], count: int) -> list[Any]:
    """ResultShapeError if a column is of another length."""
    for name, column in columns.items():
        if len(column) != count:
            raise ResultShapeError(f"its column {name!r} has {len(column)} values for {count} records, expected one for each")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] if columns else [{}] * count


def _column(column: Any, records: GivenRecords, kind: NanType, *path: str) -> list[Any]:
    """``path``: the name of the field that the column is."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column.to_pylist(maps_as_pydicts="strict")
    is_time = isinstance(kind, ScalarType) and kind.ddl == "timestamp"
    if is_time and isinstance(column, np.ndarray) and column.dtype.kind == "M" and column.ndim == 1:
        return pa.array(column.astype("datetime64[us]"), _ARROW["timestamp"], from_pandas=True).to_pylist()  # UTC, as given
    found = _items(column, records.count)
    if len(found) != records.count:
        return found
    return [_settled(item, kind, partial(records.has_null, at, *path)) for at, item in enumerate(found)]


def _items(column: Any, count: int) -> list[Any]:
    """What a column of pandas, numpy or Python has, with its NaN."""
    if _is_of_pandas(column, "Series"):
        _check_index(column, count)
        if column.dtype.name.startswith("Sparse"):
            column = column.sparse.to_dense()
        if column.dtype != object and not column.dtype.name.startswith("period"):  # a period is a number to pyarrow
            return pa.array(column, from_pandas=column.dtype.kind != "f").to_pylist()
        return [_plain(item) for item in column.tolist()]
    if isinstance(column, np.ndarray):
        if column.ndim != 1:
            raise ResultShapeError(f"it gave an array of the shape {column.shape}, expected one dimension")
        if column.dtype == object:
            return [_plain(item) for item in column]
        return pa.array(column, from_pandas=True).to_pylist() if column.dtype.kind in "mM" else column.tolist()
    if isinstance(column, (list, tuple)):
        return [_plain(item) for item in column]
    raise ResultShapeError(
        f"it gave a {type(column).__name__}, expected a pandas DataFrame or Series, a pyarrow Table or Array, a numpy array,"
        " a list, or a dict of columns"
    )


def _settled(value: Any, kind: NanType, came_with_null: Callable[..., bool]) -> Any:
    """``value`` with null for each NaN that stands for one: pandas and numpy write both alike. ``came_with_null``: of a path."""
    if isinstance(value, float):
        if value == value or (isinstance(kind, ScalarType) and kind.ddl in ("double", "float") and not came_with_null()):
            return value
        return None
    if isinstance(value, dict):
        return {name: _settled(item, _field(kind, name), partial(came_with_null, name)) for name, item in value.items()}
    if isinstance(value, list):
        inner = kind.element if isinstance(kind, ArrayType) else None
        return [_settled(item, inner, came_with_null) for item in value]
    return value


def _is_of_pandas(found: Any, name: str) -> bool:
    """Without importing pandas for functions that do not need it."""
    return any(cls.__name__ == name and cls.__module__.partition(".")[0] == "pandas" for cls in type(found).__mro__)


def _check_index(found: Any, count: int) -> None:
    """A sorted or filtered frame keeps the old places in its index."""
    if len(found) == count and found.index.dtype.kind == "i" and not (found.index == np.arange(count)).all():
        raise ResultShapeError(
            "its rows are in another order than it got them; sort them by their index (sort_index), or give them a new one"
            " (reset_index)"
        )


def _plain(value: Any) -> Any:
    """A value out of a column of objects."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def result_pairs(result: Any, records: GivenRecords, kinds: tuple[NanType, NanType]) -> list[tuple[Any, Any]]:
    """Like ``result_values``, for a pair of keys and values."""
    sides = zip(_pair(result), kinds, strict=True)
    return list(zip(*(result_values(side, records, kind) for side, kind in sides), strict=True))


def result_lists(result: Any, records: GivenRecords, kind: NanType) -> list[list[Any]]:
    """Like ``result_values``, with a list of such values for each record; null counts as an empty one, and what is no list is a
    ResultShapeError."""
    if isinstance(result, np.ndarray) and result.ndim > 1:
        result = list(result)
    lists = result_values(result, records, None if kind is None else ArrayType(kind))
    for found in lists:
        if found is not None and not isinstance(found, list):
            raise ResultShapeError(
                f"it gave {repr_of(found):.200} of type {type(found).__name__} for a record, expected a list of what becomes"
                " of it"
            )
    return [found or [] for found in lists]


def result_list_pairs(result: Any, records: GivenRecords, kinds: tuple[NanType, NanType]) -> list[list[tuple[Any, Any]]]:
    """Like ``result_lists``, for a pair of keys and values; a record's lists of different lengths are a ResultShapeError."""
    sides = zip(_pair(result), kinds, strict=True)
    found = list(zip(*(result_lists(side, records, kind) for side, kind in sides), strict=True))
    for keys, values in found:
        if len(keys) != len(values):
            raise ResultShapeError(f"it gave {len(keys)} keys and {len(values)} values for a record, expected one for one")
    return [list(zip(keys, values, strict=True)) for keys, values in found]


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ResultShapeError(f"it gave a {type(result).__name__}, expected a pair (keys, values)")
    return result


def truths(result: Any, records: GivenRecords) -> list[bool]:
    """Like ``result_values``, for a predicate: null counts as false, and what is no boolean is a ResultShapeError, too."""
    values = result_values(result, records, ScalarType("boolean"))
    for value in values:
        if value is not None and not isinstance(value, bool):
            raise ResultShapeError(f"it gave {repr_of(value)} of type {type(value).__name__}, expected a boolean")
    return [bool(value) for value in values]
