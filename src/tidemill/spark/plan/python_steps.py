"""Python steps in Spark's plans: put into one, and replaced in copies of it, in ways that PySpark has no call for.

Decides what a stream thread's copy of the one physical plan replaces: in each Python step the function, which names the thread
and pins its worker (rule 20); the plan's own do nothing. All else (expressions, their ids, the source of the generated code) is
the same, so that nothing is analysed, optimised or compiled twice. What it knows of Spark: PySpark's own call of ``mapInArrow``;
a plan's nodes can be copied with other children or other arguments, a Python step's first argument is its function as an
expression, and that one's second is the function itself (``tests/spark/plan/test_python_steps.py``).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction, _wrap_function
from pyspark.util import PythonEvalType

from tidemill.errors import StopError
from tidemill.spark.java import JavaObject, array_of, class_of, sequence_of

ArrowStep = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Record batches in, record batches out, both as iterators."""
_ROW = -(1 << 62)
"""The ``id`` of a leaf's one row. Not 0: where the application has cached ``range(1)``, Spark would read the cached rows in its
place."""
_PYTHON_STEP = "MapInArrow"
_EXPRESSION, _FUNCTION = 0, 1


def one_row(session: SparkSession) -> DataFrame:
    """The leaf of a plan, which sets off its source step: a bigint ``id``."""
    return session.range(_ROW, _ROW + 1, 1, 1)


def idle(_rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stands for a step in a plan of which each thread gets a copy with its own (``copied``)."""
    return iter(())


def map_in_arrow(frame: DataFrame, step: ArrowStep, schema: pa.Schema) -> DataFrame:
    """``frame.mapInArrow(step, schema)`` without pandas, which PySpark's own requires before it calls the JVM, and which no step
    of ours needs."""
    function = UserDefinedFunction(step, from_arrow_schema(schema), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[frame[name] for name in frame.columns])
    mapped = cast("JavaObject", frame)._jdf.mapInArrow(cast("JavaObject", column)._jc, False, None)
    return DataFrame(mapped, frame.sparkSession)


class SharedPlan:
    """One physical plan for the threads of one instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._built: JavaObject | None = None

    def of_thread(self, build: Callable[[], JavaObject], copy: Callable[[JavaObject], JavaObject]) -> JavaObject:
        """A copy of the plan, which the first caller builds. Others wait for it: two that are built at once take as long as one
        after the other."""
        with self._lock:
            if self._built is None:
                self._built = build()
        return copy(self._built)


def copied(session: SparkSession, plan: JavaObject, steps: Mapping[str, ArrowStep], pin: Callable[[str], None]) -> JavaObject:
    """``plan`` with other Python functions, by the names of their workers and in the order in which rows pass them.

    Raises:
        StopError: the plan is no such chain.
    """
    # A node asks for the session of its thread.
    class_of(session, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session._jsparkSession)
    path = _from_its_leaf(plan)
    python_steps = [node for node in path if _PYTHON_STEP in node.nodeName()]
    if len(python_steps) != len(steps):
        raise StopError(f"a plan with {len(python_steps)} Python steps can't be copied for {len(steps)} functions")
    functions = iter(steps.items())
    made: JavaObject = None
    for node in path:
        made = node if made is None else node.withNewChildren(sequence_of(session, [made]))
        if _PYTHON_STEP in node.nodeName():
            name, function = next(functions)
            pin(name)
            made = _with_function(session, made, function)
    return made


def _from_its_leaf(plan: JavaObject) -> list[JavaObject]:
    path = [plan]
    while children := path[-1].children().size():
        if children != 1:
            raise StopError(f"a plan that branches at {path[-1].nodeName()} can't be copied")
        path.append(path[-1].children().apply(0))
    return path[::-1]


def _with_function(session: SparkSession, step: JavaObject, function: ArrowStep) -> JavaObject:
    expression = step.productElement(_EXPRESSION)
    returns = StructType.fromJson(json.loads(expression.dataType().json()))
    wrapped = _wrap_function(session.sparkContext, function, returns)
    return _remade(session, step, _EXPRESSION, _remade(session, expression, _FUNCTION, wrapped))


def _remade(session: SparkSession, node: JavaObject, place: int, value: object) -> JavaObject:
    arguments = array_of(session, node.productIterator().toSeq())
    arguments[place] = value
    return node.makeCopy(arguments)
