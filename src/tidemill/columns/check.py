"""Functions of Columns, called once while a program is built, with Columns that need no JVM: mistakes are found before a start.

Never a false alarm: what can't be judged without a session waits for the plan, whose error says the same (``called``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column

from tidemill.columns.functions import ColumnFunction, column_functions
from tidemill.columns.mistakes import of_error, of_result
from tidemill.columns.recorded import Undecided, recorded_columns
from tidemill.columns.sentences import error_of, where
from tidemill.errors import TopologyError
from tidemill.topology.nodes import Topology


def check_column_functions(topology: Topology) -> None:
    """Calls each function of Columns of a program's topology once.

    Raises:
        ColumnMistakeError: one takes a Column for a value.
    """
    uses = list(column_functions(topology))
    if not uses:
        return
    try:
        with recorded_columns() as column_of:
            for use in uses:
                _check(use, column_of)
    except Undecided:
        return


def _check(use: ColumnFunction, column_of: Callable[[str], Column]) -> None:
    if hasattr(use.function, "evalType"):  # a UDF
        return
    try:
        result = use.function(*map(column_of, use.names))
    except Exception as error:
        mistake = of_error(use, error)
        if mistake is not None:
            raise error_of(use, mistake) from error
        return
    mistake = of_result(use, result)
    if mistake is not None:
        raise error_of(use, mistake)


def called(use: ColumnFunction, *arguments: Column) -> Any:
    """The result of the function, called while the plan is made.

    Raises:
        ColumnMistakeError: it takes a Column for a value. TopologyError: it fails otherwise.
    """
    try:
        result = use.function(*arguments)
    except TopologyError:
        raise
    except Exception as error:
        mistake = of_error(use, error)
        if mistake is not None:
            raise error_of(use, mistake) from error
        said = f"{type(error).__name__}: {_without_java(str(error))}" if str(error) else type(error).__name__
        raise TopologyError(f"{where(use)}: the function failed while the plan was made: {said}") from error
    mistake = of_result(use, result)
    if mistake is not None:
        raise error_of(use, mistake)
    return result


def _without_java(said: str) -> str:
    """An error's text on one line, without the query and the stack that Spark and Py4J write below theirs."""
    return " ".join(re.split(r"\n== |\n\tat |\. Trace:", said)[0].split())
