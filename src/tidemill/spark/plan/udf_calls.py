"""PySpark UDFs in functions of Columns: each is called only with the rows of its own node.

A layer has the rows of all nodes in one frame, control rows among them, and Spark computes a UDF for each row, whatever condition
its result is under. So while a function builds its expressions, a call of a UDF gets one more argument, which says whether a row
is asked about, and the UDF is wrapped in a function that passes on no other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, DataType, IntegralType, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from tidemill.errors import TopologyError
from tidemill.spark.batch_failures import errors_unlogged
from tidemill.spark.plan.pinned_workers import own_workers
from tidemill.spark.plan.user_columns import type_of

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "tidemill."
_LOCK = threading.RLock()


@contextlib.contextmanager
def udf_calls(frame: DataFrame, is_asked: Column) -> Iterator[list[UserDefinedFunction]]:
    """Within it UDFs are called with the rows of ``frame`` for which ``is_asked`` is true; gives those that are. Their
    names in the plan begin with ``PREFIX``."""
    calls: list[UserDefinedFunction] = []
    building = threading.get_ident()

    def call(udf: UserDefinedFunction, *arguments: Any, **named: Any) -> Column:
        wrapper = _WRAPPERS.get(udf.evalType)
        if threading.get_ident() != building:  # the application's own plans, of foreach_batch for one
            return original(udf, *arguments, **named)
        if udf.evalType in _OF_ITERATORS:
            raise TopologyError(f"the UDF {udf._name} takes an iterator of batches: expected one that is called with a batch")
        if wrapper is None:
            return original(udf, *arguments, **named)
        calls.append(udf)
        function = partial(wrapper, udf.func, udf.returnType)
        wrapped = UserDefinedFunction(function, udf.returnType, PREFIX + udf._name, udf.evalType, udf.deterministic)
        is_of_pandas = udf.evalType in _OF_PANDAS
        mine = partial(_mine, frame, is_asked, is_of_pandas=is_of_pandas)
        with own_workers(frame.sparkSession):
            return original(wrapped, is_asked, *map(mine, arguments), **{name: mine(given) for name, given in named.items()})

    with _LOCK:
        original: Callable[..., Column] = UserDefinedFunction.__call__
        UserDefinedFunction.__call__ = call  # type: ignore[method-assign, assignment]
        try:
            yield calls
        finally:
            UserDefinedFunction.__call__ = original  # type: ignore[method-assign]


def _mine(frame: DataFrame, is_asked: Column, given: Column | str, *, is_of_pandas: bool) -> Column:
    """An argument, of other rows null. Of these pandas gets a number, since with nulls its whole numbers would be floats."""
    column = F.col(given) if isinstance(given, str) else given
    mine = F.when(is_asked, column)
    if not is_of_pandas:
        return mine
    try:
        with errors_unlogged():
            other = _number(type_of(frame, column))
    except AnalysisException:  # a lambda's variable, or a mistake: Spark refuses the whole expression
        return mine
    return mine if other is None else mine.otherwise(other)


def _number(kind: DataType) -> Column | None:
    if isinstance(kind, (BooleanType, IntegralType)):
        return F.lit(0).cast(kind)
    fields = {field.name: (field.dataType, _number(field.dataType)) for field in kind} if isinstance(kind, StructType) else {}
    if all(number is None for _, number in fields.values()):
        return None
    numbers = [(F.lit(None).cast(of) if number is None else number).alias(name) for name, (of, number) in fields.items()]
    return F.struct(*numbers)


# --- in Spark's worker ------------------------------------------------------------------------------------------------


def _of_values(function: Callable[..., Any], _kind: DataType, is_asked: bool, /, *values: Any, **named: Any) -> Any:
    return function(*values, **named) if is_asked else None


def _of_series(
    function: Callable[..., Any], kind: DataType, is_asked: pd.Series[bool], /, *columns: Any, **named: Any
) -> pd.Series[Any] | pd.DataFrame:
    import pandas as pd

    mine = np.flatnonzero(is_asked)
    if not len(mine):
        nothing = pd.Series([None] * len(is_asked), dtype=object)
        return pd.DataFrame(dict.fromkeys(kind.names, nothing)) if isinstance(kind, StructType) else nothing

    def part(column: Any) -> Any:
        return column if len(mine) == len(is_asked) else column.iloc[mine].reset_index(drop=True)

    made = _checked(function(*map(part, columns), **{name: part(column) for name, column in named.items()}), len(mine))
    return made if len(mine) == len(is_asked) else made.iloc[_places(mine, len(is_asked))].reset_index(drop=True)


def _of_arrays(function: Callable[..., Any], kind: DataType, is_asked: pa.Array, /, *arrays: Any, **named: Any) -> pa.Array:
    mine = np.flatnonzero(is_asked.to_numpy(zero_copy_only=False))
    if not len(mine):
        return pa.nulls(len(is_asked), to_arrow_type(kind, timezone="UTC"))

    def part(array: pa.Array) -> pa.Array:
        return array.take(pa.array(mine))

    made = _checked(function(*map(part, arrays), **{name: part(array) for name, array in named.items()}), len(mine))
    return made.take(pa.array(_places(mine, len(is_asked))))


def _checked(made: Any, count: int) -> Any:
    if len(made) != count:
        raise ValueError(f"the UDF gave {len(made)} results for {count} records, expected one for each")
    return made


def _places(mine: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """For each row the place of its result; of others, whose result is not read, the first."""
    places = np.zeros(count, np.int64)
    places[mine] = np.arange(len(mine))
    return places


_OF_ITERATORS = (PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF, PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
_OF_PANDAS = (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF)
"""Their arguments pass pandas; of the second kind with ``spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled``."""
_WRAPPERS: dict[int, Callable[..., Any]] = {
    PythonEvalType.SQL_BATCHED_UDF: _of_values,
    PythonEvalType.SQL_ARROW_BATCHED_UDF: _of_values,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF: _of_series,
    PythonEvalType.SQL_SCALAR_ARROW_UDF: _of_arrays,
}
