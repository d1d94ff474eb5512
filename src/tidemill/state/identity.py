"""Whose state a directory holds: an application's task. Kept in its meta database, since a directory can be copied or put back
in the wrong place, and its name then says nothing of what is in it.

Decides when a state is somebody else's. A state that version 0.1.0 has made does not say whose it is; the partitions of its
changelogs do. What is done with one that is another's is its opener's matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.ids import TaskId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StateIdentity:
    application_id: str
    task: TaskId

    def __str__(self) -> str:
        return f"task {self.task} of application {self.application_id}"


def other_owner(
    wanted: StateIdentity, found: StateIdentity | None, changelogs: Iterable[TopicPartition]
) -> str | None:
    """Whose the state is if not ``wanted``'s; ``found``: whose it says it is, ``changelogs``: what its stores follow."""
    if found is not None:
        return None if found == wanted else str(found)
    elsewhere = sorted(log for log in changelogs if log.partition != wanted.task.partition)
    return f"the task that has the changelog {elsewhere[0]}" if elsewhere else None
