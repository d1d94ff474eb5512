"""Functions of a program, as operations have them: of PySpark Columns, or of Python values.

Functions of Columns run in the JVM; a ``PerRecord`` runs in a Python worker. How they are called is the operations'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.topology.values import Serde, Value

UserFunction = Callable[..., Value]
"""A function of the program, of the arguments that its operation says."""


@dataclass(frozen=True, slots=True)
class PerRecord:
    """A plain Python function, called with decoded values for each record. ``serde`` writes what it returns, where known."""

    function: UserFunction
    serde: Serde | tuple[Serde | None, Serde | None] | None = None

    def __call__(self, *arguments: object) -> Value:
        return self.function(*arguments)


@dataclass(frozen=True, slots=True)
class OfColumns:
    """A function of PySpark Columns, where an operator's functions get Python values otherwise."""

    function: UserFunction


JoinFunction = UserFunction | OfColumns
"""A joiner; one of Columns runs in the JVM, behind the join."""
