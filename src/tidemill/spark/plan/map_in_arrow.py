"""Spark's ``mapInArrow`` without pandas, which PySpark's own requires before it calls the JVM, and which no step of ours needs.

Decides nothing: the call of the JVM is PySpark's own. A PySpark that calls it otherwise fails in ``tests/spark``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


def map_in_arrow(
    frame: DataFrame, step: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], ddl: str
) -> DataFrame:
    """``frame.mapInArrow(step, ddl)``."""
    function = UserDefinedFunction(step, ddl, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[frame[name] for name in frame.columns])
    mapped = cast("Any", frame)._jdf.mapInArrow(cast("Any", column)._jc, False, None)
    return DataFrame(mapped, frame.sparkSession)
