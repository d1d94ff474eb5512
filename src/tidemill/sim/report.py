"""A run as text, round by round, and as JSON values.

Decides what of a run is shown and in which words; a round that was decided once and then only handed over is shown once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

from tidemill.ids import TaskId
from tidemill.sim.history import Round, ScaleLook, SimulatedRun
from tidemill.text_table import table_lines

CLIENTS_SHOWN = 12
"""Clients listed; of a larger group only those whose tasks change."""
TASKS_SHOWN = 24


def lines(run: SimulatedRun) -> Iterator[str]:
    """The whole run for people."""
    scenario = run.scenario
    yield f"{scenario.name}: {scenario.description}" if scenario.description else scenario.name
    yield f"assignor {scenario.assignor}, Kafka {scenario.compatibility.value}, seed {scenario.seed}"
    before: Round | None = next(
        (round_ for round_ in reversed(run.rounds) if round_.time_ms < scenario.disturbed_ms), None
    )
    for number, phase in enumerate(run.phases(), 1):
        yield ""
        yield from _phase_lines(run, number, phase, before)
        before = phase[-1]
    if run.scale:
        yield ""
        yield from scale_lines(run)
    yield ""
    yield from summary_lines(run)


def scale_lines(run: SimulatedRun) -> Iterator[str]:
    """The wanted number of instances over time."""
    rows = [("at", "instances", "wanted", "why")]
    rows += [(clock(run, one.time_ms), str(one.advice.present), str(one.advice.wanted), one.advice.why) for one in run.scale]
    yield from table_lines(rows)


def summary_lines(run: SimulatedRun) -> Iterator[str]:
    """Costs of the run."""
    longest = run.longest_outage
    balanced = run.time_to_balanced_ms
    yield (
        "never balanced within the time given"
        if balanced is None
        else f"balanced after {duration(balanced)}, {len(run.rounds_after_start)} rebalances"
    )
    yield (
        "no task was ever down"
        if longest is None
        else f"longest unavailability: {duration(longest.length_ms)}, of {longest.task} from {clock(run, longest.from_ms)}"
    )
    yield f"restored: {sum(run.restored_records.values()):,} records, {size(run.restored_bytes)}"
    yield (
        f"moves of running tasks: {run.moved_tasks}; most extra copies at once: {run.most_extra_copies}; most stateful tasks "
        f"on one client: {run.most_loaded}"
    )
    if run.busiest is not None:
        yield f"the busiest client gets {run.busiest:.2f} times its share of the records per second"
    for wrong in run.violations:
        yield f"AUDITOR: {wrong}"


def comparison_lines(runs: Sequence[tuple[str, SimulatedRun]]) -> Iterator[str]:
    """A table with one row for each variant."""
    rows = [("variant", *(title for title, _ in COLUMNS))]
    rows += [(name, *(show(run) for _, show in COLUMNS)) for name, run in runs]
    yield from table_lines(rows)


def as_json(run: SimulatedRun) -> dict[str, object]:
    """Everything, as JSON values; times in ms from the start."""
    return {
        "scenario": run.scenario.name,
        "assignor": run.scenario.assignor,
        "compatibility": run.scenario.compatibility.value,
        "seed": run.scenario.seed,
        "summary": summary(run),
        "rounds": [_round_json(run, round_) for round_ in run.rounds],
        "outages": [{"task": str(o.task), "from_ms": o.from_ms, "to_ms": o.to_ms} for o in run.outages],
        "restored_records": {str(task): records for task, records in run.restored_records.items()},
        "violations": list(run.violations),
        **({"scale": [_scale_json(run, one) for one in run.scale]} if run.scale else {}),
    }


def summary(run: SimulatedRun) -> dict[str, int | None]:
    """One row of numbers."""
    longest = run.longest_outage
    return {
        "time_to_balanced_ms": run.time_to_balanced_ms,
        "rebalances": len(run.rounds_after_start),
        "phases": len(run.phases()),
        "moved_tasks": run.moved_tasks,
        "longest_outage_ms": 0 if longest is None else longest.length_ms,
        "total_outage_ms": sum(outage.length_ms for outage in run.outages),
        "restored_records": sum(run.restored_records.values()),
        "restored_bytes": run.restored_bytes,
        "most_extra_copies": run.most_extra_copies,
        "most_loaded": run.most_loaded,
        "violations": len(run.violations),
    }


COLUMNS: tuple[tuple[str, Callable[[SimulatedRun], str]], ...] = (
    ("balanced after", lambda run: "never" if run.time_to_balanced_ms is None else duration(run.time_to_balanced_ms)),
    ("rebalances", lambda run: str(len(run.rounds_after_start))),
    ("moves", lambda run: str(run.moved_tasks)),
    ("longest down", lambda run: duration(run.longest_outage.length_ms) if run.longest_outage else "-"),
    ("restored", lambda run: size(run.restored_bytes)),
    ("extra copies", lambda run: str(run.most_extra_copies)),
    ("most loaded", lambda run: str(run.most_loaded)),
    ("busiest", lambda run: "-" if run.busiest is None else f"{run.busiest:.2f} x"),
    ("auditors", lambda run: f"{len(run.violations)} found" if run.violations else "ok"),
)


def duration(ms: int) -> str:
    """Milliseconds in words that people read."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 120_000:
        return f"{ms / 1_000:.1f} s"
    return f"{ms / 60_000:.1f} min" if ms < 7_200_000 else f"{ms / 3_600_000:.1f} h"


def size(count: int) -> str:
    """Bytes with a unit."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1_000
    return f"{value:.1f} TB"


def clock(run: SimulatedRun, time_ms: int) -> str:
    """A moment of the run: the time of day if the scenario has one, else seconds from the start."""
    if run.scenario.start is None:
        return f"{time_ms / 1_000:.3f} s"
    return (run.scenario.start + timedelta(milliseconds=time_ms)).strftime("%H:%M:%S.%f")[:-3]


def _phase_lines(run: SimulatedRun, number: int, phase: tuple[Round, ...], before: Round | None) -> Iterator[str]:
    first, last = phase[0], phase[-1]
    yield f"{clock(run, first.time_ms)}  round {number}: {_cause(run, first)}"
    shown = sorted(last.assignment.clients)
    if len(shown) > CLIENTS_SHOWN and before is not None:
        had = before.assignment.clients
        shown = [process_id for process_id in shown if had.get(process_id) != last.assignment.clients[process_id]]
    width = max((len(run.name(process_id)) for process_id in shown), default=0)
    for process_id in shown:
        held = last.assignment.clients[process_id]
        standby = tasks_text(held.standby - held.warmup)
        yield (
            f"  {run.name(process_id):{width}}  active {tasks_text(held.active)}; standby {standby}; "
            f"warm-up {tasks_text(held.warmup)}"
        )
        yield from _thread_lines(last, str(process_id), width)
    if len(shown) < len(last.assignment.clients):
        yield f"  {len(last.assignment.clients) - len(shown)} other clients keep what they have"
    moves = [move for move in first.moves if move.before is not None]
    if moves:
        named = [f"{m.task} {run.name(m.before)} -> {run.name(m.after)}" for m in moves if m.before is not None]
        more = f", and {len(named) - TASKS_SHOWN} more" if len(named) > TASKS_SHOWN else ""
        yield f"  moves: {', '.join(named[:TASKS_SHOWN])}{more}"
    for wrong in last.unbalanced():
        yield f"  unbalanced: {_with_names(run, wrong)}"
    if len(phase) > 1:
        yield f"  handed over in {len(phase) - 1} further rebalances, the last at {clock(run, last.time_ms)}"
    if last.is_stable:
        yield "  stable: no further rebalance is asked for"
    else:
        interval = last.state.config.probing_rebalance_interval_ms
        yield f"  the next probing rebalance is due at {clock(run, last.time_ms + interval)}"


def _thread_lines(round_: Round, process_id: str, width: int) -> Iterator[str]:
    """Lines of the threads of a client with several."""
    own = {member: tasks for member, tasks in round_.threads.items() if process_id in member}
    if len(own) < 2 or len(round_.threads) > 2 * CLIENTS_SHOWN:
        return
    for member, tasks in own.items():
        number = member.partition("-StreamThread-")[2].partition("-")[0]
        yield f"  {'':{width}}    thread {number}: active {tasks_text(tasks.active)}; standby {tasks_text(tasks.standby)}"


def _cause(run: SimulatedRun, round_: Round) -> str:
    """The first cause; of a follow-up only that it is one."""
    cause = round_.cause
    if "Triggering the followup rebalance" in cause:
        return "probing rebalance"
    return _with_names(run, cause)


def _with_names(run: SimulatedRun, text: str) -> str:
    for process_id, name in run.names.items():
        text = text.replace(str(process_id), name)
    return text


def tasks_text(tasks: Iterable[TaskId]) -> str:
    """Tasks in order; the first of many."""
    named = [str(task) for task in sorted(tasks)]
    if len(named) > TASKS_SHOWN:
        named = [*named[:TASKS_SHOWN], f"and {len(named) - TASKS_SHOWN} more"]
    return " ".join(named) or "-"


def _scale_json(run: SimulatedRun, look: ScaleLook) -> dict[str, object]:
    advice = look.advice
    return {
        "time_ms": look.time_ms, "clock": clock(run, look.time_ms), "present": advice.present, "wanted": advice.wanted,
        "waits": advice.waits, "why": advice.why, "records_per_s": advice.records_per_s, "lag": advice.lag,
    }  # fmt: skip


def _round_json(run: SimulatedRun, round_: Round) -> dict[str, object]:
    return {
        "number": round_.number,
        "time_ms": round_.time_ms,
        "clock": clock(run, round_.time_ms),
        "cause": round_.cause,
        "leader": round_.leader,
        "is_stable": round_.is_stable,
        "followup_needed": round_.assignment.followup_needed,
        "clients": {
            str(process_id): {
                "name": run.name(process_id),
                "active": [str(task) for task in sorted(held.active)],
                "standby": [str(task) for task in sorted(held.standby - held.warmup)],
                "warm_up": [str(task) for task in sorted(held.warmup)],
                **({} if held.followup_deadline_ms is None else {"followup_deadline_ms": held.followup_deadline_ms}),
            }
            for process_id, held in sorted(round_.assignment.clients.items())
        },
        "threads": {
            member: {"active": [str(task) for task in tasks.active], "standby": [str(task) for task in tasks.standby]}
            for member, tasks in round_.threads.items()
        },
        "withheld": [str(task) for task in round_.withheld],
        "moves": [
            {"task": str(m.task), "from": None if m.before is None else str(m.before), "to": str(m.after)}
            for m in round_.moves
        ],
        "unbalanced": round_.unbalanced(),
    }
