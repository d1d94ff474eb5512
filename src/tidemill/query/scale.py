"""The number of instances that a group should have, by its lag, its rate and what an instance can do (GET /scale).

Decides the number from the group's document. What an instance can do is given, or measured: the most records per second that its
threads have processed while more of their input was waiting. While tasks are restored, warm up or are handed over, and while an
instance is away, the number stays what it is: one more instance would only begin that again. Fewer instances are asked for one at
a time, and never fewer than keep the lag away with the headroom.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.query.group_documents import GroupDocument, InstanceDocument

RUNNING = "RUNNING"
WARM_UP = "warm-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWish:
    """The operator's wishes. ``catch_up_s``: in how many seconds a lag is to be gone; ``headroom``: a share on top of what is
    needed; ``capacity_per_s``: records per second of one instance, None: as measured."""

    least: int = 1
    most: int = 100
    catch_up_s: int = 300
    headroom: float = 0.3
    capacity_per_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleAdvice:
    """``wanted`` instances, where ``present`` are in the group, those that are away or silent too; ``why`` in one sentence.

    ``waits``: a change is not advised now, whatever is needed. ``capacity_per_s``: of one instance; None: not known yet.
    """

    wanted: int
    present: int
    waits: bool
    why: str
    records_per_s: float
    lag: int
    capacity_per_s: float | None


def advice(group: GroupDocument, wish: ScaleWish) -> ScaleAdvice:
    """The wanted number of instances; at most as many as there are tasks for threads, within ``least`` and ``most``."""
    reported = [one.reported for one in group.instances if one.reported is not None]
    present = len(group.instances) + len(group.silent)
    threads = [thread for one in reported for thread in one.threads]
    rate = sum(thread.records_per_s for thread in threads)
    lag = sum(task.behind or 0 for thread in threads for task in thread.active)
    capacity = float(wish.capacity_per_s) if wish.capacity_per_s else _measured(reported)
    held_up = next(_held_up(group, reported), "")
    if held_up:
        wanted, why = present, f"waits: {held_up}"
    else:
        wanted, why = _needed(present, rate, lag, capacity, wish)
        wanted, why = _limited(wanted, why, reported, wish)
    return ScaleAdvice(
        wanted=wanted, present=present, waits=bool(held_up), why=why, records_per_s=round(rate, 1), lag=lag,
        capacity_per_s=None if capacity is None else round(capacity, 1),
    )  # fmt: skip


def _measured(reported: list[InstanceDocument]) -> float | None:
    """Records per second of one instance: of a thread that was seen at its limit, times the threads of an instance."""
    seen = [thread.capacity_per_s for one in reported for thread in one.threads if thread.capacity_per_s]
    threads = sum(len(one.threads) for one in reported)
    return sum(seen) / len(seen) * threads / len(reported) if seen else None


def _held_up(group: GroupDocument, reported: list[InstanceDocument]) -> Iterator[str]:
    """The reasons why the number should not change now."""
    for one in group.instances:
        if one.away is not None:
            yield f"{one.host} does not answer, and its tasks may be moving"
    if group.silent:
        yield f"{len(group.silent)} instances have no address (--serve HOST:PORT), so their load is not known"
    for instance in reported:
        name = instance.host or instance.process[:8]
        if instance.drain is not None and instance.drain.phase == "draining":
            yield f"{name} drains"
        if instance.restoring is not None:
            yield f"{name} restores {len(instance.restoring.tasks)} tasks"
        if instance.state != RUNNING:
            yield f"{name} is {instance.state}"
        warm_ups = [copy for thread in instance.threads for copy in thread.standby if copy.role == WARM_UP]
        if warm_ups:
            yield f"{len(warm_ups)} tasks warm up on {name}"


def _needed(present: int, rate: float, lag: int, capacity: float | None, wish: ScaleWish) -> tuple[int, str]:
    catching_up = lag / wish.catch_up_s
    if capacity is None:
        if catching_up > wish.headroom * rate and lag > 0:
            return present + 1, (
                f"what an instance can do is not known yet, and the lag of {lag:,} records needs {catching_up:,.0f} more a second"
            )
        return present, "the group keeps up, and what an instance can do is not known yet"
    needed = max(1, math.ceil((rate + catching_up) * (1 + wish.headroom) / capacity))
    sum_of = f"{rate:,.0f} records/s and {catching_up:,.0f}/s to catch up, with {wish.headroom:.0%} headroom"
    why = f"{sum_of}, need {needed} instances of {capacity:,.0f}/s"
    if needed < present - 1:
        return present - 1, f"{why}; one less at a time"
    return needed, why


def _limited(wanted: int, why: str, reported: list[InstanceDocument], wish: ScaleWish) -> tuple[int, str]:
    """Instances without a task are of no use."""
    tasks = sum(len(thread.active) for one in reported for thread in one.threads)
    threads = max((len(one.threads) for one in reported), default=1) or 1
    useful = max(1, math.ceil(tasks / threads)) if tasks else wanted
    if wanted > useful:
        wanted, why = useful, f"{why}; there are {tasks} tasks for threads, so more than {useful} have nothing to do"
    if not wish.least <= wanted <= wish.most:
        wanted = min(max(wanted, wish.least), wish.most)
        why = f"{why}; limited to {wish.least} to {wish.most}"
    return wanted, why
