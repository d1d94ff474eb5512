"""Programs that are too long for Spark: what it runs out of while it makes the plan, as an error of the program.

Decides from which number of functions of Columns in a row on these are to blame. Each is a projection on top of the one before
it; Catalyst walks them by recursion, and writes Java code that is longer with each.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from tidemill.columns.functions import column_functions
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import Runs, functions_of, runs
from tidemill.topology.nodes import ProcessorNode, Topology, parents_first

_MANY = 50
"""Spark has planned 150 of ``F.when`` and 250 of ``v + 1`` within the JVM's usual heap and stack, so what fails with fewer than
these is taken to fail for another reason."""

_IN_JVM = (Runs.COLUMNS, Runs.FORWARDS)
_EXHAUSTED = re.compile(r"java\.lang\.(OutOfMemoryError|StackOverflowError)")


@contextlib.contextmanager
def planning(topology: Topology) -> Iterator[None]:
    """Within it Spark makes a plan of the program ``topology``.

    Raises:
        TopologyError: heap or stack was not enough, and the program has many functions of Columns in a row.
    """
    try:
        yield
    except (RecursionError, Py4JJavaError, CapturedException) as problem:
        found = _EXHAUSTED.search(str(problem))
        if found is None and not isinstance(problem, RecursionError):
            raise
        longest = longest_chain(topology)
        if longest.length < _MANY:
            raise
        what = "RecursionError" if found is None else found[0]
        raise TopologyError(
            f"the program has {longest.length} functions of Columns in a row, from {longest.first} to {longest.last}, which are"
            f" more than Spark could plan ({what}): compute several in one function, or wrap some next to each other in"
            f" per_record(...), so that at most {2 * _MANY} in a row are functions of Columns."
            " spark.sql.codegen.wholeStage=false and a larger spark.driver.memory plan more"
        ) from problem


class Chain(NamedTuple):
    """Functions of Columns that run one behind the other in the JVM."""

    length: int
    first: str
    last: str


_NONE = Chain(0, "", "")


def longest_chain(topology: Topology) -> Chain:
    """The longest one; a node that runs in Python ends it."""
    of_columns = {use.node for use in column_functions(topology)}
    chains: dict[str, Chain] = {}
    longest = _NONE
    for name in parents_first(topology):
        above = max((chains[parent] for parent in topology.parents.get(name, ())), default=_NONE)
        node = topology.nodes[name]
        if name in of_columns:
            chains[name] = Chain(above.length + 1, above.first or name, name)
        elif isinstance(node, ProcessorNode) and runs(node.operation) in _IN_JVM and not functions_of(node.operation):
            chains[name] = above
        else:
            chains[name] = _NONE
        longest = max(longest, chains[name])
    return longest
