"""A program's topology as the plan sees it: nodes that the plan has in other forms, under the names that they have."""

from __future__ import annotations

from tidemill.spark.plan.batch_sinks import with_batch_sinks
from tidemill.spark.plan.column_reduce import with_column_reduces
from tidemill.steps.vector.column_join import with_column_joins
from tidemill.topology.nodes import Topology


def planned(topology: Topology) -> Topology:
    """The same if nothing has another form; a planned topology stays as it is."""
    return with_column_joins(with_column_reduces(with_batch_sinks(topology)))
