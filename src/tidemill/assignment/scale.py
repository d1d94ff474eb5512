"""The number of instances that a group should have, by its lag, its rate and what an instance can do.

Decides the number from figures; they come from a running group (``query.scale``) or from a simulated one (``sim.scaling``). While
something holds a change up (tasks that are restored, warm up or are handed over, an instance that is away) the number stays what
it is: one more instance would only begin that again. Fewer instances are asked for one at a time, and never fewer than keep the
lag away with the headroom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


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
class GroupLoad:
    """Load of a group of ``present`` instances. ``lag``: records that wait; ``measured_per_s``: records per second that one
    instance can process, as far as was seen, None: not known yet; ``tasks``: active ones; ``threads``: of the instance with the
    most; ``held_up``: why the number should not change now, empty if it may."""

    present: int
    records_per_s: float
    lag: int
    measured_per_s: float | None
    tasks: int
    threads: int
    held_up: str


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


def restores(instance: str, tasks: int) -> str:
    """Why the number should not change now."""
    return f"{instance} restores {tasks} {'task' if tasks == 1 else 'tasks'}"


def warms_up(instance: str, tasks: int) -> str:
    """Likewise."""
    return f"{tasks} {'task warms' if tasks == 1 else 'tasks warm'} up on {instance}"


def advice(load: GroupLoad, wish: ScaleWish) -> ScaleAdvice:
    """The wanted number of instances; at most as many as there are tasks for threads, within ``least`` and ``most``."""
    capacity = float(wish.capacity_per_s) if wish.capacity_per_s else load.measured_per_s
    if load.held_up:
        wanted, why = load.present, f"waits: {load.held_up}"
    else:
        wanted, why = _needed(load, capacity, wish)
        wanted, why = _limited(wanted, why, load, wish)
    return ScaleAdvice(
        wanted=wanted, present=load.present, waits=bool(load.held_up), why=why, records_per_s=round(load.records_per_s, 1),
        lag=load.lag, capacity_per_s=None if capacity is None else round(capacity, 1),
    )  # fmt: skip


def _needed(load: GroupLoad, capacity: float | None, wish: ScaleWish) -> tuple[int, str]:
    present, rate, lag = load.present, load.records_per_s, load.lag
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


def _limited(wanted: int, why: str, load: GroupLoad, wish: ScaleWish) -> tuple[int, str]:
    """Instances without a task are of no use."""
    useful = max(1, math.ceil(load.tasks / load.threads)) if load.tasks else wanted
    if wanted > useful:
        wanted, why = useful, f"{why}; there are {load.tasks} tasks for threads, so more than {useful} have nothing to do"
    if not wish.least <= wanted <= wish.most:
        wanted = min(max(wanted, wish.least), wish.most)
        why = f"{why}; limited to {wish.least} to {wish.most}"
    return wanted, why
