"""The steps of a micro-batch's commit, in their order: the list that the last step follows and that fault tests cut.

Decides the order and what a crash behind each step leaves; how a step is done is the last step's. A crash anywhere before
COMMIT leaves nothing, but for what functions of ``foreach_batch`` have done; between COMMIT and APPLY it leaves stores one
batch behind their changelogs, which they replay.
"""

from __future__ import annotations

from enum import Enum


class CommitStep(Enum):
    REQUEST = "request"
    """The driver's request is read; nothing was looked at."""
    GATHER = "gather"
    """All rows and the marker are here, the batch is whole (rule 1)."""
    RESTORE = "restore"
    """Changelog records are in the stores, with their positions."""
    CONTINUITY = "continuity"
    """The batch begins exactly where the last commit ended (rule 2)."""
    RUN = "run"
    """Every node has run; results and writes are in memory only."""
    FOREACH_BATCH = "foreach-batch"
    """Functions of ``foreach_batch`` have had what the batch brings them: what they did stays, whatever becomes of it."""
    PRODUCE = "produce"
    """Outputs, repartition and changelog records are with the producer, in an open transaction."""
    ROOM = "room"
    """Whatever the stores could refuse was checked (rule 14)."""
    MEMBERSHIP = "membership"
    """The group still knows the thread as owner of every partition (rule 5)."""
    COMMIT = "commit"
    """Offsets are sent and the transaction is committed: the batch counts."""
    APPLY = "apply"
    """The stores hold the batch's writes and their new changelog positions, each task in one transaction (rule 15)."""


ORDER: tuple[CommitStep, ...] = tuple(CommitStep)
