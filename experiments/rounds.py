"""What leaders have decided, read from the instances' logs: each assignment, as the log tells it, and what followed it.

Reads Kafka Streams' own sentences (`tidemill.membership.leader_log`), so it would read a Java instance's log as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_TASKS = re.compile(r"^([0-9a-f-]{36})=\[activeTasks: \(\[([^\]]*)\]\) standbyTasks: \(\[([^\]]*)\]\)\]\.?$")
_LEADER = re.compile(r"^(\d+\.\d+) \S+ stream-thread \[(.*?)\] (.*)$")


@dataclass(slots=True, kw_only=True)
class Assignment:
    """One rebalance as its leader logged it. ``active`` and ``standby`` by process id, as text, tasks in order."""

    at_s: float
    leader: str
    active: dict[str, tuple[str, ...]] = field(default_factory=dict)
    standby: dict[str, tuple[str, ...]] = field(default_factory=dict)
    withheld: list[str] = field(default_factory=list)
    probing_at_ms: int | None = None
    is_at_once: bool = False
    is_stable: bool = False

    @property
    def decided(self) -> tuple[object, object]:
        return self.active, self.standby

    @property
    def follow_up(self) -> str:
        """What comes next, in a few words."""
        if self.is_at_once:
            return f"at once: {len(self.withheld)} tasks are to be given up first"
        if self.probing_at_ms is not None:
            return f"a probe {(self.probing_at_ms / 1e3 - self.at_s):.0f} s later"
        return "none: stable"


def assignments(logs: Iterable[str]) -> list[Assignment]:
    """In the order of time, over all members' logs."""
    found = [assignment for log in logs for assignment in _of_one(log)]
    return sorted(found, key=lambda assignment: assignment.at_s)


def _of_one(log: str) -> list[Assignment]:
    found: list[Assignment] = []
    open_: dict[str, Assignment] = {}
    reading: Assignment | None = None
    for line in log.splitlines():
        tasks = _TASKS.match(line)
        if tasks and reading is not None:
            process, active, standby = tasks.groups()
            reading.active[process] = _split(active)
            reading.standby[process] = _split(standby)
            continue
        said = _LEADER.match(line)
        if said is None:
            continue
        at_s, member, sentence = float(said[1]), said[2], said[3]
        if "to clients as:" in sentence:
            reading = open_[member] = Assignment(at_s=at_s, leader=member)
            found.append(reading)
        elif member in open_:
            _what_follows(open_[member], sentence)
    return found


def _what_follows(of: Assignment, sentence: str) -> None:
    if sentence.startswith("Removing task "):
        of.withheld.append(sentence.split()[2])
    elif "followup rebalance be scheduled immediately" in sentence:
        of.is_at_once = True
    elif sentence.startswith("Requesting followup rebalance be scheduled by "):
        of.probing_at_ms = int(sentence.split(" for ")[1].split()[0])
    elif sentence.startswith("Finished stable assignment"):
        of.is_stable = True


def _split(tasks: str) -> tuple[str, ...]:
    return tuple(task.strip() for task in tasks.split(",") if task.strip())


def shown(assignment: Assignment, names: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, active tasks and standby tasks of each process in the order of the log."""
    return [
        (names.get(process, process), " ".join(assignment.active[process]), " ".join(assignment.standby[process]) or "-")
        for process in assignment.active
    ]
