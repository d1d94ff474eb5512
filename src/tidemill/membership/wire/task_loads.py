"""Loads of tasks on their way from a member to the leader: text in a client tag of the subscription (version 11).

Decides the text: ``1_0=14.20 1_1=9`` are the levels (``assignment.task_load``) of records and of state, the latter left out
where it is 0. A tag suits because leaders read all tags and look only at those that they know; Kafka's leader ignores this one. A
text of another form is refused as a whole. Bounds: ``MOST_TASKS`` of one member, levels of 0 to 127.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemill.assignment.task_load import HIGHEST_LEVEL, TaskLoad
from tidemill.errors import WireFormatError
from tidemill.ids import TaskId
from tidemill.printable import printable

TAG = "tidemill.task.loads"
MOST_TASKS = 2_000
"""Limit of one member: some 20 kB, next to some 40 kB of offset sums. The heaviest tasks are sent."""
_ENTRY = re.compile(r"(\d{1,9})_(\d{1,9})=(\d{1,3})(?:\.(\d{1,3}))?", re.ASCII)
_LONGEST = MOST_TASKS * 32


def encode_loads(loads: Mapping[TaskId, TaskLoad]) -> str:
    """The tag's value."""
    heaviest = sorted(loads, key=lambda task: (-max(loads[task]), task))[:MOST_TASKS]
    return " ".join(
        f"{task}={loads[task].records}" + (f".{loads[task].state}" if loads[task].state else "") for task in sorted(heaviest)
    )


def decode_loads(text: str) -> dict[TaskId, TaskLoad]:
    """Inverse of ``encode_loads``; WireFormatError on anything else."""
    entries = text.split(" ") if len(text) <= _LONGEST else []
    if not 0 < len(entries) <= MOST_TASKS:
        raise WireFormatError(f"loads in {len(text):,} characters; expected those of 1 to {MOST_TASKS:,} tasks")
    found: dict[TaskId, TaskLoad] = {}
    for entry in entries:
        matched = _ENTRY.fullmatch(entry)
        load = None if matched is None else TaskLoad(int(matched[3]), int(matched[4] or 0))
        if matched is None or load is None or max(load) > HIGHEST_LEVEL:
            raise WireFormatError(
                f"the load {printable(entry)!r}; expected SUBTOPOLOGY_PARTITION=LEVEL[.LEVEL], levels of 0 to {HIGHEST_LEVEL}"
            )
        found[TaskId(int(matched[1]), int(matched[2]))] = load
    return found
