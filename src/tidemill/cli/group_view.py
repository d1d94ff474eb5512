"""The group's document (GET /group) as rows of text: instances, what is on its way, rebalances.

Decides which figures `tidemill top` and the demos show and how they are written; where they come from is the instances', how they
are laid out is ``group_screen``'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from tidemill.documents import Document

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

    task: str
    role: str
    where: str
    lag: int | None
    per_s: float | None
    seconds_left: float | None


def instance_rows(group: Document) -> list[InstanceRow]:
    """One per instance, by address, those that don't answer too; under one with several threads a row for each of them."""
    rows: list[InstanceRow] = []
    for one in group["instances"]:
        rows.append(_instance(one, group))
        threads = one.get("threads", ())
        rows += [_thread(thread) for thread in threads if len(threads) > 1]
    return rows


def _thread(thread: Document) -> InstanceRow:
    behind = [task["behind"] for task in thread["active"] if task["behind"] is not None]
    since_s = thread["last_assignment_s"]
    return InstanceRow(
        name=f"  thread {thread['number']}",
        state="",
        threads="",
        active=listed([task["task"] for task in thread["active"]]),
        copies=listed([copy["task"] for copy in thread["standby"]]),
        records_per_s=thread["records_per_s"],
        latency_ms=thread["latency_ms"],
        batch_ms=thread["batch_ms"],
        behind=sum(behind) if behind else None,
        rebalanced=_NONE if since_s is None else ago(since_s),
        trouble=thread["error"] or thread["waiting"],
        leads=False,
    )


def _instance(one: Document, group: Document) -> InstanceRow:
    name = one["host"] or one["process"][:8]
    leads = name == group["leader"]
    if one["away"] is not None:
        return InstanceRow(
            name=name, state="AWAY", threads=_NONE, active=_assigned(one), copies=_NONE, records_per_s=None, latency_ms=None,
            batch_ms=None, behind=None, rebalanced=_NONE, trouble=one["away"], leads=leads,
        )  # fmt: skip
    threads = one["threads"]
    active = [task for thread in threads for task in thread["active"]]
    copies = [copy["task"] for thread in threads for copy in thread["standby"]]
    behind = [task["behind"] for task in active if task["behind"] is not None]
    ages = [thread["last_assignment_s"] for thread in threads if thread["last_assignment_s"] is not None]
    return InstanceRow(
        name=name,
        state=_state(one),
        threads=f"{sum(thread['running'] for thread in threads)}/{len(threads)}",
        active=listed([task["task"] for task in active]),
        copies=listed(copies),
        records_per_s=sum(thread["records_per_s"] for thread in threads),
        latency_ms=_largest(thread["latency_ms"] for thread in threads),
        batch_ms=_largest(thread["batch_ms"] for thread in threads),
        behind=sum(behind) if behind else None,
        rebalanced=ago(min(ages)) if ages else _NONE,
        trouble=one["error"] or _drain_words(one) or _restoring_words(one) or "; ".join(one["why"]),
        leads=leads,
    )


def _state(one: Document) -> str:
    """Kafka Streams' states, and what an instance in one of them is at."""
    if _drains(one):
        return "DRAINING"
    return "RESTORING" if _restores(one) else str(one["state"])


def _drains(one: Document) -> bool:
    return bool(one.get("drain")) and one["drain"]["phase"] == "draining"


def _drain_words(one: Document) -> str:
    drain = one.get("drain") or {}
    return f"drains: {drain['active']} active tasks and {drain['standby']} copies are still here" if _drains(one) else ""


def _restores(one: Document) -> bool:
    return bool(one.get("restoring")) and one["state"] == "REBALANCING"


def _restoring_words(one: Document) -> str:
    """The tasks, the offsets left, the speed and the time left, as far as they are known."""
    if not _restores(one):
        return ""
    restoring = one["restoring"]
    offsets = restoring["offsets_left"]
    left = "how much is left is not known yet" if offsets is None else f"{offsets:,} offsets left"
    speed = "" if restoring["offsets_per_s"] is None else f", {restoring['offsets_per_s']:,.0f}/s"
    return f"restores {listed(restoring['tasks'])}: {left}{speed}, time left {duration(restoring['seconds_left'])}"


def _assigned(one: Document) -> str:
    return f"had {listed(one['assigned'])}" if one["assigned"] else _NONE


def copy_rows(group: Document) -> list[CopyRow]:
    """Restoring tasks, then warm-ups, then standbys; by task."""
    rows: list[CopyRow] = []
    for one in group["instances"]:
        for thread in one.get("threads", ()):
            rows += [
                CopyRow(
                    task=task["task"], role=task["phase"], where=one["host"] or one["process"][:8], lag=task["lag"],
                    per_s=None, seconds_left=task["seconds_left"],
                )
                for task in thread["active"]
                if task["phase"] != "running"
            ]  # fmt: skip
            rows += [
                CopyRow(
                    task=copy["task"], role=copy["role"], where=one["host"] or one["process"][:8], lag=copy["lag"],
                    per_s=copy["offsets_per_s"], seconds_left=copy["seconds_left"],
                )
                for copy in thread["standby"]
            ]  # fmt: skip
    order = {"created": 0, "restoring": 0, "warm-up": 1, "standby": 2}  # last what another version calls otherwise
    return sorted(rows, key=lambda row: (order.get(row.role, len(order)), _number(row.task), row.where))


def rebalances(group: Document, most: int) -> list[tuple[str, str]]:
    """When, and what; the newest first. Follow-ups, in which nothing new was decided, are left out."""
    return [(shown_time(led["at_ms"]), rebalance_words(led)) for led in list(group["rebalances"])[::-1] if is_news(led)][:most]


def is_news(led: Document) -> bool:
    return bool(led["moves"] or led["joined"] or led["left"] or led["remarks"])


def rebalance_words(led: Document) -> str:
    parts = [*(f"{name} joined" for name in led["joined"]), *(f"{name} left" for name in led["left"])]
    parts += [move_words(move) for move in led["moves"][:4]]
    more = max(0, len(led["moves"]) - 4) + led["more_moves"]
    if more:
        parts.append(f"{more} more moves")
    parts += led["remarks"]
    if led["hands_over"]:
        parts.append("once the old owners have let go")
    elif led["next_ms"] is not None:
        parts.append(f"next rebalance at {shown_time(led['next_ms'])}")
    return "; ".join(parts)


def shown_time(at_ms: int, form: str = "%H:%M:%S", zone: tzinfo | None = None) -> str:
    """The time in this zone, the machine's own if None; the number itself if it is no time: members send any 64 bits."""
    try:
        return datetime.fromtimestamp(at_ms / 1e3, zone).strftime(form)
    except (ValueError, OverflowError, OSError):  # what a calendar or the C library has no date for
        return f"{at_ms} ms"


def move_words(move: Document) -> str:
    """``1_0 from a to b``."""
    task, source, target = move["task"], move["from"], move["to"]
    if move["role"] != "active":
        return f"{move['role']} of {task} on {target}" if target else f"no copy of {task} on {source} any more"
    promoted = ", which had a copy" if move["had_copy"] else ""
    return f"{task} from {source} to {target}{promoted}" if source else f"{task} to {target}{promoted}"


def summary(group: Document) -> str:
    """One line on the whole."""
    instances = group["instances"]
    present = [one for one in instances if one["away"] is None]
    running = sum(one["state"] == "RUNNING" for one in present)
    threads = [thread for one in present for thread in one["threads"]]
    tasks = sum(len(thread["active"]) for thread in threads)
    copies = sum(len(thread["standby"]) for thread in threads)
    per_s = sum(thread["records_per_s"] for thread in threads)
    away = f", {len(instances) - len(present)} away" if len(present) < len(instances) else ""
    unknown = "the leader does not answer" if tasks else "no assignment yet"
    leader = f"led by {group['leader']}" if group["leader"] else unknown
    return (
        f"{group['application']}: {running} of {len(instances)} instances running{away} · {tasks} active tasks, "
        f"{copies} copies · {per_s:,.0f} records/s · {leader}"
    )


def listed(tasks: Sequence[str]) -> str:
    """Task ids in order; only counted beyond a dozen."""
    ordered = sorted(tasks, key=_number)
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


def _number(task: str) -> tuple[int, int]:
    subtopology, _, partition = task.partition("_")
    return int(subtopology), int(partition)


def _largest(values: Iterator[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
