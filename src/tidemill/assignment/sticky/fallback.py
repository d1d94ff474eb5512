"""FallbackPriorTaskAssignor: for when the lags could not be had.

Decides that every task goes back to whoever ran it before, whatever the load and the lag, and that another rebalance is
to try again; tasks that no one ran, and standbys, follow the sticky rules. Racks are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.assignment.java.iteration import IterationOrder, TaskHash
from tidemill.assignment.java.java_hash import task_hash
from tidemill.assignment.model import ApplicationState, Assignment
from tidemill.assignment.sticky.assignor import assignment_of, place_by_stickiness


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackPriorTaskAssignor:
    """The previous assignment as far as there is one; always asks for a probing rebalance."""

    task_hash: TaskHash = task_hash
    iteration: Callable[[ApplicationState], IterationOrder] | None = None

    def assign(self, state: ApplicationState) -> Assignment:
        placing, order = place_by_stickiness(state, self.task_hash, self.iteration, preserve_active=True)
        placing.place_standbys()
        return assignment_of(placing, order.clients, followup_needed=True)
