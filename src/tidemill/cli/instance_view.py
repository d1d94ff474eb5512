"""View of a running instance from outside, at one moment, and as one line of text.

Decides which figures are shown and how the line is written; `tidemill run` prints it where no terminal is, and
`tidemill demo` reads it back from its instances. The callers decide when a line is printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.ids import TaskId

if TYPE_CHECKING:
    from tidemill.runtime.instance.application import KafkaStreams

_LINE = re.compile(
    r"state=(\w+) tasks=(-|[\d_,]+) restoring=(\d+) in=(\d+) restored=(\d+) out=(\d+) skipped=(\d+) lost=(\d+) behind=(\d+)\n?\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance's state, its active tasks and running totals of records since it started.

    ``restoring``: how many of the tasks don't run yet. ``skipped``: records that an exception handler skipped. ``lost``:
    micro-batches that were run again. ``behind``: records that wait in the tasks' inputs, as of the last fetch.
    """

    state: str
    tasks: tuple[TaskId, ...] = ()
    restoring: int = 0
    records_in: int = 0
    records_restored: int = 0
    records_out: int = 0
    skipped: int = 0
    lost: int = 0
    behind: int = 0
    seconds_left: float | None = None
    """Until the last of those that are restored runs; None if none is, or that is not known. Not in the line."""

    @property
    def is_at_work(self) -> bool:
        """Has tasks, and all of them are past restoring."""
        return self.state == "RUNNING" and bool(self.tasks) and not self.restoring


def view_of(streams: KafkaStreams) -> InstanceView:
    """The instance as it is now; may be called from any thread."""
    from tidemill.task.lifecycle import Phase

    tasks = {name: task for thread in streams.threads for name, task in thread.tasks.items()}
    totals = [thread.metrics for thread in streams.threads]
    ends = {tp: end for metrics in totals for tp, end in dict(metrics.ends).items()}
    high = {tp: mark for metrics in totals for tp, mark in dict(metrics.high_watermarks).items()}
    left_s = [copy.seconds_left for thread in streams.threads for copy in thread.copies if copy.is_active]
    inputs = [tp for task in tasks.values() for tp in task.inputs]
    return InstanceView(
        state=streams.state.value,
        tasks=tuple(sorted(tasks)),
        restoring=sum(task.phase is not Phase.RUNNING for task in tasks.values()),
        records_in=sum(metrics.records_in for metrics in totals),
        records_restored=sum(metrics.records_restored for metrics in totals),
        records_out=sum(metrics.records_out for metrics in totals),
        skipped=sum(metrics.skipped for metrics in totals),
        lost=sum(metrics.lost for metrics in totals),
        behind=sum(max(0, high[tp] - ends[tp]) for tp in inputs if tp in high and tp in ends),
        seconds_left=max((seconds for seconds in left_s if seconds is not None), default=None),
    )


def to_line(view: InstanceView) -> str:
    tasks = ",".join(map(str, view.tasks)) or "-"
    return (
        f"state={view.state} tasks={tasks} restoring={view.restoring} in={view.records_in} restored={view.records_restored} "
        f"out={view.records_out} skipped={view.skipped} lost={view.lost} behind={view.behind}"
    )


def from_line(line: str) -> InstanceView | None:
    """The view that `to_line` wrote; None for any other line."""
    found = _LINE.match(line)
    if found is None:
        return None
    tasks = () if found[2] == "-" else tuple(map(TaskId.parse, found[2].split(",")))
    restoring, records_in, restored, out, skipped, lost, behind = map(int, found.groups()[2:])
    return InstanceView(
        state=found[1],
        tasks=tasks,
        restoring=restoring,
        records_in=records_in,
        records_restored=restored,
        records_out=out,
        skipped=skipped,
        lost=lost,
        behind=behind,
    )


def to_text(view: InstanceView) -> str:
    """For people: only what there is to say."""
    parts = [view.state]
    if view.tasks:
        parts.append("tasks " + " ".join(map(str, view.tasks)))
    counts = {
        "restoring": view.restoring, "restored": view.records_restored, "in": view.records_in, "out": view.records_out,
        "behind": view.behind, "skipped": view.skipped, "batches run again": view.lost,
    }  # fmt: skip
    parts += [f"{count:,} {what}" for what, count in counts.items() if count or (view.tasks and what in ("in", "out"))]
    if view.seconds_left:
        parts.append(f"{view.seconds_left:.0f} s left to restore")
    return " · ".join(parts)
