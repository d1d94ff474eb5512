"""The group (GET /group) as rows of text: instances, what is on its way, rebalances.

Decides which figures `tidemill top` and the demos show and how they are written; where they come from is the instances', how they
are laid out is ``group_screen``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.ids import TaskId
    from tidemill.query.group_documents import (
        ActiveTaskDocument,
        GroupDocument,
        InstanceDocument,
        MemberDocument,
        MoveDocument,
        RebalanceDocument,
        ThreadDocument,
    )

_MANY_TASKS = 12
_NONE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """``trouble``: why it is not at work; empty if it is."""

    name: str
    state: str
    threads: str
    active: str
    copies: str
    records_per_s: float | None
    latency_ms: float | None
    batch_ms: float | None
    behind: int | None
    rebalanced: str
    trouble: str
    leads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """A task on its way: restored, warmed up, or a standby."""

    task: TaskId
    role: str
    where: str
    lag: int | None
    per_s: float | None
    seconds_left: float | None


def instance_rows(group: GroupDocument) -> list[InstanceRow]:
    """One per instance, by address, those that don't answer too; under one with several threads a row for each of them."""
    rows: list[InstanceRow] = []
    for member in group.instances:
        rows.append(_instance(member, leads=_name(member) == group.leader))
        threads = _threads(member)
        rows += [_thread(thread) for thread in threads if len(threads) > 1]
    return rows


def _threads(member: MemberDocument) -> tuple[ThreadDocument, ...]:
    return () if member.reported is None else member.reported.threads


def _name(member: MemberDocument) -> str:
    """The address, else the beginning of the process id."""
    return member.host or ("" if member.reported is None else member.reported.process[:8])


def _thread(thread: ThreadDocument) -> InstanceRow:
    since_s = thread.last_assignment_s
    return InstanceRow(
        name=f"  thread {thread.number}",
        state="",
        threads="",
        active=listed([task.task for task in thread.active]),
        copies=listed([copy.task for copy in thread.standby]),
        records_per_s=thread.records_per_s,
        latency_ms=thread.latency_ms,
        batch_ms=thread.batch_ms,
        behind=_behind(thread.active),
        rebalanced=_NONE if since_s is None else ago(since_s),
        trouble=thread.error or thread.waiting,
        leads=False,
    )


def _instance(member: MemberDocument, *, leads: bool) -> InstanceRow:
    one = member.reported
    if one is None:
        active = f"had {listed(member.assigned)}" if member.assigned else _NONE
        return InstanceRow(
            name=_name(member), state="AWAY", threads=_NONE, active=active, copies=_NONE, records_per_s=None, latency_ms=None,
            batch_ms=None, behind=None, rebalanced=_NONE, trouble=member.away or "", leads=leads,
        )  # fmt: skip
    threads = one.threads
    tasks = [task for thread in threads for task in thread.active]
    ages = [thread.last_assignment_s for thread in threads if thread.last_assignment_s is not None]
    return InstanceRow(
        name=_name(member),
        state=_state(one),
        threads=f"{sum(thread.running for thread in threads)}/{len(threads)}",
        active=listed([task.task for task in tasks]),
        copies=listed([copy.task for thread in threads for copy in thread.standby]),
        records_per_s=sum(thread.records_per_s for thread in threads),
        latency_ms=_largest(thread.latency_ms for thread in threads),
        batch_ms=_largest(thread.batch_ms for thread in threads),
        behind=_behind(tasks),
        rebalanced=ago(min(ages)) if ages else _NONE,
        trouble=one.error or _drain_words(one) or _restoring_words(one) or "; ".join(one.why),
        leads=leads,
    )


def _behind(tasks: Iterable[ActiveTaskDocument]) -> int | None:
    """Records; None if no task's are known."""
    behind = [task.behind for task in tasks if task.behind is not None]
    return sum(behind) if behind else None


def _state(one: InstanceDocument) -> str:
    """Kafka Streams' states, and what an instance in one of them is at."""
    if _drains(one):
        return "DRAINING"
    return "RESTORING" if _restores(one) else one.state


def _drains(one: InstanceDocument) -> bool:
    return one.drain is not None and one.drain.is_under_way


def _drain_words(one: InstanceDocument) -> str:
    if one.drain is None or not _drains(one):
        return ""
    return f"drains: {one.drain.active} active tasks and {one.drain.standby} copies are still here"


def _restores(one: InstanceDocument) -> bool:
    return one.restoring is not None and one.state == "REBALANCING"


def _restoring_words(one: InstanceDocument) -> str:
    """The tasks, the offsets left, the speed and the time left, as far as they are known."""
    restoring = one.restoring
    if restoring is None or not _restores(one):
        return ""
    offsets = restoring.offsets_left
    left = "how much is left is not known yet" if offsets is None else f"{offsets:,} offsets left"
    speed = "" if restoring.offsets_per_s is None else f", {restoring.offsets_per_s:,.0f}/s"
    return f"restores {listed(restoring.tasks)}: {left}{speed}, time left {duration(restoring.seconds_left)}"


def copy_rows(group: GroupDocument) -> list[CopyRow]:
    """Restoring tasks, then warm-ups, then standbys; by task."""
    rows: list[CopyRow] = []
    for member in group.instances:
        where = _name(member)
        for thread in _threads(member):
            rows += [
                CopyRow(
                    task=task.task, role=task.phase, where=where, lag=task.lag, per_s=None, seconds_left=task.seconds_left
                )
                for task in thread.active
                if task.phase != "running"
            ]
            rows += [
                CopyRow(
                    task=copy.task, role=copy.role, where=where, lag=copy.lag, per_s=copy.offsets_per_s,
                    seconds_left=copy.seconds_left,
                )
                for copy in thread.standby
            ]  # fmt: skip
    order = {"created": 0, "restoring": 0, "warm-up": 1, "standby": 2}  # last what another version calls otherwise
    return sorted(rows, key=lambda row: (order.get(row.role, len(order)), row.task, row.where))


def rebalances(group: GroupDocument, most: int) -> list[tuple[str, str]]:
    """When, and what; the newest first. Follow-ups, in which nothing new was decided, are left out."""
    return [(shown_time(led.at_ms), rebalance_words(led)) for led in group.rebalances[::-1] if is_news(led)][:most]


def is_news(led: RebalanceDocument) -> bool:
    """False for a follow-up, in which nothing new was decided."""
    return bool(led.moves or led.joined or led.left or led.remarks)


def rebalance_words(led: RebalanceDocument) -> str:
    """Who joined and left, the first moves, and what comes next."""
    parts = [*(f"{name} joined" for name in led.joined), *(f"{name} left" for name in led.left)]
    parts += [move_words(move) for move in led.moves[:4]]
    more = max(0, len(led.moves) - 4) + led.more_moves
    if more:
        parts.append(f"{more} more {'move' if more == 1 else 'moves'}")
    parts += led.remarks
    if led.hands_over:
        parts.append("once the old owners have let go")
    elif led.next_ms is not None:
        parts.append(f"next rebalance at {shown_time(led.next_ms)}")
    return "; ".join(parts)


def shown_time(at_ms: int, form: str = "%H:%M:%S", zone: tzinfo | None = None) -> str:
    """The time in this zone, the machine's own if None; the number itself if it is no time: members send any 64 bits."""
    try:
        return datetime.fromtimestamp(at_ms / 1e3, zone).strftime(form)
    except (ValueError, OverflowError, OSError):  # what a calendar or the C library has no date for
        return f"{at_ms} ms"


def move_words(move: MoveDocument) -> str:
    """``1_0 from a to b``."""
    task, source, target = move.task, move.from_, move.to
    if move.role != "active":
        return f"{move.role} of {task} on {target}" if target else f"no copy of {task} on {source} any more"
    promoted = ", which had a copy" if move.had_copy else ""
    return f"{task} from {source} to {target}{promoted}" if source else f"{task} to {target}{promoted}"


def summary(group: GroupDocument) -> str:
    """One line on the whole."""
    present = [member.reported for member in group.instances if member.reported is not None]
    running = sum(one.state == "RUNNING" for one in present)
    threads = [thread for one in present for thread in one.threads]
    tasks = sum(len(thread.active) for thread in threads)
    copies = sum(len(thread.standby) for thread in threads)
    per_s = sum(thread.records_per_s for thread in threads)
    away = f", {len(group.instances) - len(present)} away" if len(present) < len(group.instances) else ""
    unknown = "the leader does not answer" if tasks else "no assignment yet"
    leader = f"led by {group.leader}" if group.leader else unknown
    return (
        f"{group.application}: {running} of {len(group.instances)} instances running{away} · {tasks} active tasks, "
        f"{copies} copies · {per_s:,.0f} records/s · {leader}"
    )


def listed(tasks: Sequence[TaskId]) -> str:
    """Task ids in order; only counted beyond a dozen."""
    ordered = [str(task) for task in sorted(tasks)]
    if not ordered:
        return _NONE
    if len(ordered) <= _MANY_TASKS:
        return " ".join(ordered)
    return f"{' '.join(ordered[:_MANY_TASKS])} +{len(ordered) - _MANY_TASKS}"


def ago(seconds: float) -> str:
    return f"{duration(seconds)} ago"


def duration(seconds: float | None) -> str:
    """In the largest unit that says something."""
    if seconds is None:
        return "unknown"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6_000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
