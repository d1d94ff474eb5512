"""The load of a group and the number of instances that it should have (GET /scale), from the group's document.

Decides what counts as load and as capacity. The capacity of an instance is the most records per second that its threads have
processed while more of their input was waiting. Tasks that are restored, warm up or are handed over, and missing instances, delay
a change. ``assignment.scale`` computes the number.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.assignment import scale
from tidemill.assignment.scale import GroupLoad, ScaleAdvice, ScaleWish
from tidemill.query.group_documents import GroupDocument, InstanceDocument

RUNNING = "RUNNING"
WARM_UP = "warm-up"
_LEAST_PER_S, _MOST_PER_S = 0.05, 1e12
"""Instances round their rates to a tenth."""


def advice(group: GroupDocument, wish: ScaleWish) -> ScaleAdvice:
    """The wanted number of instances."""
    return scale.advice(load_of(group), wish)


def load_of(group: GroupDocument) -> GroupLoad:
    reported = [one.reported for one in group.instances if one.reported is not None]
    threads = [thread for one in reported for thread in one.threads]
    return GroupLoad(
        present=len(group.instances) + len(group.silent),
        records_per_s=sum(_known(thread.records_per_s) for thread in threads),
        lag=sum(task.behind or 0 for thread in threads for task in thread.active),
        measured_per_s=_measured(reported),
        tasks=sum(len(thread.active) for thread in threads),
        threads=max((len(one.threads) for one in reported), default=0),
        held_up=next(_held_up(group, reported), ""),
    )


def _measured(reported: list[InstanceDocument]) -> float | None:
    """Records per second of one instance: of a thread that was seen at its limit, times the threads of an instance."""
    seen = [known for one in reported for thread in one.threads if (known := _known(thread.capacity_per_s))]
    threads = sum(len(one.threads) for one in reported)
    return sum(seen) / len(seen) * threads / len(reported) if seen else None


def _known(per_s: float | None) -> float:
    """A rate as an instance tells it; 0 for none, and for what is none, such as NaN: no number of instances follows from that."""
    return per_s if per_s is not None and _LEAST_PER_S <= per_s <= _MOST_PER_S else 0.0


def _held_up(group: GroupDocument, reported: list[InstanceDocument]) -> Iterator[str]:
    """The reasons why the number should not change now."""
    for one in group.instances:
        if one.away is not None:
            yield f"{one.host} does not answer, and its tasks may be moving"
    if group.silent:
        yield f"{len(group.silent)} instances have no address (--serve HOST:PORT), so their load is not known"
    for instance in reported:
        name = instance.host or instance.process[:8]
        if instance.drain is not None and instance.drain.is_under_way:
            yield f"{name} drains"
        if instance.restoring is not None:
            yield scale.restores(name, len(instance.restoring.tasks))
        if instance.state != RUNNING:
            yield f"{name} is {instance.state}"
        warm_ups = [copy for thread in instance.threads for copy in thread.standby if copy.role == WARM_UP]
        if warm_ups:
            yield scale.warms_up(name, len(warm_ups))
