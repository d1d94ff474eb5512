"""How fast the high-availability assignor is, compared with Kafka's own class, with the answers checked.

    python benchmarks/assignor.py [--runs 5] [--large]

The groups are those that the Java class was timed on: the process ids of java.util.Random(7), 4 threads each, 10
sub-topologies, everything stateful with 100,000 offsets, one standby, two warm-ups. ``fresh`` has no state, ``steady``
is what a fresh assignment leads to, ``scale_out_10pct`` has a tenth of the clients new. Times are medians by the clock
and of the processor; the targets are held against the latter, since the clock also counts what else a machine does.
Prints a table and, last, one JSON line with the ratios. ``--large`` adds 10,000 clients and 100,000 tasks.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ha_reference import SlowAssignor

from tidemill.assignment.invariants import violations
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import LATEST_OFFSET, ApplicationState, Assignment, AssignmentConfig, ClientState
from tidemill.ids import ProcessId, TaskId

END_OFFSET_SUM = 100_000
KINDS = ("fresh", "steady", "scale_out_10pct")
SHAPES = ((100, 1_000), (1_000, 10_000))
SMALL = ((10, 100), (30, 300))
TARGET_MS = {(100, 1_000): 60.0, (1_000, 10_000): 1_500.0}

TIMING = Path(__file__).with_name("assignor_timing.json")
"""kafka-streams 4.3.0 on Java 17.0.15 and two cores, assign() only, client states and lags built before."""


def java_figures() -> dict[tuple[int, int, str], dict[str, Any]]:
    results = json.loads(TIMING.read_text())["results"]
    return {(result["clients"], result["tasks"], result["kind"]): result for result in results}


class JavaRandom:
    """java.util.Random: the ids depend on it."""

    def __init__(self, seed: int) -> None:
        self._seed = (seed ^ 0x5DEECE66D) & ((1 << 48) - 1)

    def _next(self, bits: int) -> int:
        self._seed = (self._seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        value = self._seed >> (48 - bits)
        return value - (1 << bits) if value >> (bits - 1) else value

    def next_int(self) -> int:
        return self._next(32)

    def next_long(self) -> int:
        value = (self._next(32) << 32) + self._next(32)
        return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def process_ids(count: int) -> list[ProcessId]:
    """As the Java generator draws them: two longs, then an int that picks the thread count (always 4 here)."""
    random = JavaRandom(7)
    ids = []
    for _ in range(count):
        ids.append(ProcessId(random.next_long(), random.next_long()))
        random.next_int()
    return ids


def group(clients: int, tasks: int, kind: str) -> ApplicationState:
    fresh = _fresh(process_ids(clients), tasks)
    if kind == "fresh":
        return fresh
    known = clients if kind == "steady" else clients - clients // 10
    before = HighAvailabilityTaskAssignor().assign(_fresh(process_ids(clients)[:known], tasks))
    return replace(fresh, clients=tuple(_after(client, before) for client in fresh.clients))


def _fresh(ids: list[ProcessId], tasks: int) -> ApplicationState:
    all_tasks = tuple(TaskId(subtopology, partition) for subtopology in range(10) for partition in range(tasks // 10))
    return ApplicationState(
        clients=tuple(ClientState(process_id=process_id, capacity=4) for process_id in ids),
        tasks=all_tasks,
        stateful_tasks=frozenset(all_tasks),
        end_offset_sums=dict.fromkeys(all_tasks, END_OFFSET_SUM),
        config=AssignmentConfig(num_standby_replicas=1, max_warmup_replicas=2, acceptable_recovery_lag=10_000),
    )


def _after(client: ClientState, before: Assignment) -> ClientState:
    held = before.clients.get(client.process_id)
    if held is None:
        return client
    return replace(
        client,
        previous_active=held.active,
        previous_standby=held.standby,
        lags={**dict.fromkeys(held.active, LATEST_OFFSET), **dict.fromkeys(held.standby, 0)},
    )


class Took(NamedTuple):
    """Medians in ms: by the clock, and of the processor (which another program's load does not lengthen)."""

    wall_ms: float
    cpu_ms: float


def time_assign(state: ApplicationState, runs: int) -> tuple[Took, Assignment]:
    assignor = HighAvailabilityTaskAssignor()
    assignment = assignor.assign(state)
    took = []
    for _ in range(runs):
        begin = time.perf_counter(), time.process_time()
        assignment = assignor.assign(state)
        took.append(((time.perf_counter() - begin[0]) * 1_000, (time.process_time() - begin[1]) * 1_000))
    return Took(*map(statistics.median, zip(*took, strict=True))), assignment


def check(state: ApplicationState, assignment: Assignment, expected: dict[str, Any]) -> list[str]:
    """What is wrong with the answer: against Java's own figures, and against what must hold of any answer."""
    wrong = violations(state, assignment)
    held = [len(client.active) + len(client.standby) for client in assignment.clients.values()]
    got = {
        "followup_needed": assignment.followup_needed,
        "max_tasks_on_a_client": max(held),
        "standby_and_warmup_tasks": sum(len(client.standby) for client in assignment.clients.values()),
    }
    return wrong + [f"{key} is {got[key]}, Java's {expected[key]}" for key in got if got[key] != expected[key]]


def measure(runs: int) -> tuple[list[dict[str, Any]], list[str]]:
    rows, wrong = [], []
    figures = java_figures()
    for clients, tasks in SHAPES:
        for kind in KINDS:
            state = group(clients, tasks, kind)
            took, assignment = time_assign(state, runs)
            java = figures[clients, tasks, kind]
            faults = check(state, assignment, java)
            wrong += [f"{clients} x {tasks} {kind}: {fault}" for fault in faults]
            rows.append(
                {
                    "clients": clients,
                    "tasks": tasks,
                    "kind": kind,
                    "median_ms": round(took.wall_ms, 2),
                    "cpu_ms": round(took.cpu_ms, 2),
                    "java_median_ms": round(java["median_ms"], 2),
                    "times_faster_than_java": round(java["median_ms"] / took.wall_ms, 1),
                    "target_ms": TARGET_MS[clients, tasks],
                    "target_met": took.cpu_ms < TARGET_MS[clients, tasks],
                    "answer_checked": not faults,
                }
            )
    return rows, wrong


def compare_with_reference(runs: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Small groups, answered by the plain algorithm too: every copy must be the same."""
    rows, wrong = [], []
    for clients, tasks in SMALL:
        for kind in KINDS:
            state = group(clients, tasks, kind)
            took, assignment = time_assign(state, runs)
            begin = time.perf_counter()
            slow, followup = SlowAssignor(state).run()
            slow_took = (time.perf_counter() - begin) * 1_000
            fast = {client: (set(held.active), set(held.standby)) for client, held in assignment.clients.items()}
            same = (fast, assignment.followup_needed) == (slow, followup)
            if not same:
                wrong.append(f"{clients} x {tasks} {kind}: not the answer of the plain algorithm")
            rows.append(
                {
                    "clients": clients,
                    "tasks": tasks,
                    "kind": kind,
                    "median_ms": round(took.wall_ms, 2),
                    "plain_algorithm_ms": round(slow_took, 2),
                    "same_answer": same,
                }
            )
    return rows, wrong


def table(rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    texts = [[str(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [columns, *texts]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each group, after one that is not counted")
    parser.add_argument("--large", action="store_true", help="also 10,000 clients and 100,000 tasks (no Java figure)")
    chosen = parser.parse_args()

    rows, wrong = measure(chosen.runs)
    print(table(rows))
    small, wrong_small = compare_with_reference(chosen.runs)
    print("\n" + table(small))
    growth = {
        kind: round(
            next(row["cpu_ms"] for row in rows if row["kind"] == kind and row["tasks"] == 10_000)
            / next(row["cpu_ms"] for row in rows if row["kind"] == kind and row["tasks"] == 1_000),
            1,
        )
        for kind in KINDS
    }
    large = {}
    if chosen.large:
        large = {kind: round(time_assign(group(10_000, 100_000, kind), 1)[0].cpu_ms, 1) for kind in KINDS}
        print(f"\n10000 x 100000, ms of the processor: {large}")
    for fault in wrong + wrong_small:
        print(f"WRONG: {fault}", file=sys.stderr)
    summary = {
        "python": platform.python_version(),
        "results": rows,
        "reference": small,
        "growth_for_ten_times_the_tasks": growth,
        "large_ms": large,
    }
    print(json.dumps(summary))
    met = all(row["target_met"] for row in rows)
    return 0 if met and not wrong and not wrong_small else 1


if __name__ == "__main__":
    sys.exit(main())
