"""`tidemill assign explain`: why each copy of each task is where it is, and what must happen before it moves.

Decides which assignment is explained (a round of a recorded run or of a simulated scenario, or a running group's) and how
it is shown. The reasons are the assignor's own Decision records; nothing is worked out here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidemill.cli.assign_replay import UNUSABLE, Record, one_of, read_records
from tidemill.cli.files import read_scenario, run_scenario
from tidemill.cli.settings import outside_settings
from tidemill.errors import ConfigError
from tidemill.ids import ProcessId, TaskId
from tidemill.text_table import table_lines

if TYPE_CHECKING:
    from tidemill.assignment.kip441.high_availability import Compatibility
    from tidemill.assignment.model import ApplicationState, Decision

SCENARIO = ".toml"


def explain(
    file: Path | None = typer.Argument(
        None, help="A scenario (.toml), or recorded assignments (JSON Lines, optionally gzipped); without it use --group."
    ),
    group: str | None = typer.Option(None, "--group", "--application-id", help="Explain a running group: the application.id."),
    bootstrap_server: str | None = typer.Option(
        None,
        "--bootstrap-server",
        "--bootstrap",
        help="Running group: its brokers; by default bootstrap.servers, else localhost:9092.",
    ),
    app: Path | None = typer.Option(None, help="Running group: the application file, for its topology and settings."),
    settings: list[str] = typer.Option([], "--set", help="Running group: a setting, key=value; may be repeated."),
    config: Path | None = typer.Option(None, metavar="FILE.toml", help="Running group: its settings; --set overrides them."),
    task: str | None = typer.Option(None, help="Only this task, such as 1_2."),
    round_: int | None = typer.Option(
        None, "--round", help="Scenario: the round as `simulate` numbers it (default 1). Record with rounds: the round's "
        "number, from 1."
    ),
    identity: str | None = typer.Option(None, "--id", help="Id of the record in the file; by default the first record."),
    compatibility: str | None = typer.Option(None, help="2.7 or 4.3; by default that of the file, else 4.3."),
    assignor: str | None = typer.Option(None, help="Another assignor to explain: HighAvailabilityTaskAssignor, balanced ..."),
    as_json: bool = typer.Option(False, "--json", help="Print the decisions as JSON."),
) -> None:
    """Explain an assignment: a table, and the reasons for each task."""
    if file is None:
        found = _of_group(group, app, outside_settings(settings, config, bootstrap_server), assignor, compatibility)
    elif group or bootstrap_server or app or settings or config:
        raise ConfigError(
            f"{file}: --group, --bootstrap-server, --app, --set and --config are about a running group; give no file"
        )
    else:
        wanted = _Wanted(file, round_, identity, compatibility, assignor)
        found = _of_scenario(wanted) if file.suffix == SCENARIO else _of_record(wanted)
    decisions = _about(found, task)
    if as_json:
        typer.echo(json.dumps(_as_json(found, decisions), ensure_ascii=False))
    else:
        typer.echo("\n".join(_lines(found, decisions)))


@dataclass(frozen=True, slots=True)
class _Wanted:
    file: Path
    round_number: int | None
    identity: str | None
    compatibility: str | None
    assignor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """``due``: when the n-th rebalance after this one is expected, in words."""

    title: str
    state: ApplicationState
    decisions: Sequence[Decision]
    due: Callable[[int], str]
    names: dict[ProcessId, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def _of_group(
    group: str | None,
    app: Path | None,
    settings: Mapping[str, object],
    assignor: str | None,
    compatibility: str | None,
) -> _Explained:
    from tidemill.cli.assign_live_group import Question, live_explanation

    if group is None:
        raise ConfigError("expected a FILE to explain, or --group (and --bootstrap-server) of a running application")
    version = None if compatibility is None else _compatibility_of(compatibility).value
    live = live_explanation(
        Question(
            application_id=group, app=app, settings=settings, assignor=assignor, compatibility=version
        )
    )
    return _Explained(
        title=live.title,
        state=live.state,
        decisions=live.assignment.explain(),
        due=live.due,
        names=live.names,
        remarks=live.remarks,
    )


def _of_scenario(wanted: _Wanted) -> _Explained:
    from tidemill.sim.report import clock
    from tidemill.sim.variants import with_values

    if wanted.identity is not None:
        raise ConfigError(f"{wanted.file}: a scenario has no ids; choose one of its rounds with --round")
    chosen = {"compatibility": wanted.compatibility, "assignor": wanted.assignor}
    scenario = with_values(
        read_scenario(wanted.file), {name: value for name, value in chosen.items() if value is not None}
    )
    run = run_scenario(scenario)
    phases = run.phases()
    number = 1 if wanted.round_number is None else wanted.round_number
    if not 1 <= number <= len(phases):
        raise ConfigError(f"{wanted.file}: --round {number}; expected 1 to {len(phases)}, as `assign simulate` numbers them")
    last = phases[number - 1][-1]
    interval_ms = last.state.config.probing_rebalance_interval_ms
    return _Explained(
        title=f"{scenario.name}, round {number}, {clock(run, phases[number - 1][0].time_ms)} (Kafka "
        f"{scenario.compatibility.value}, {scenario.assignor})",
        state=last.state,
        decisions=last.assignment.explain(),
        due=lambda rebalances: clock(run, last.time_ms + rebalances * interval_ms),
        names={client.process_id: run.name(client.process_id) for client in last.state.clients},
    )


def _of_record(wanted: _Wanted) -> _Explained:
    from tidemill.assignment.choice import choose_assignor
    from tidemill.replay.records import application_state
    from tidemill.sim.report import duration

    record = _record(wanted)
    name = str(record.get("id", "the first record"))
    try:
        compatibility = _compatibility(wanted, record)
        assignor = wanted.assignor or _assignor_of(record)
        rounds = record.get("rounds")
        at = 1 if wanted.round_number is None else wanted.round_number
        if rounds is not None and not 1 <= at <= len(rounds):
            raise ConfigError(f"{wanted.file}, {name}: --round {at}; expected 1 to {len(rounds)}")
        if rounds is None and at != 1:
            raise ConfigError(f"{wanted.file}, {name}: --round {at}; this record has one round")
        state = application_state(record, None if rounds is None else rounds[at - 1])
        assignment = choose_assignor(assignor, compatibility).assignor.assign(state)
    except UNUSABLE as error:
        raise ConfigError(
            f"{wanted.file}, {name}: not an assignment that can be explained: {type(error).__name__} {error}; expected the "
            "inputs of an assignor (configs, tasks, clients)"
        ) from error
    interval_ms = state.config.probing_rebalance_interval_ms
    return _Explained(
        title=f"{name}{'' if rounds is None else f', round {at}'} (Kafka {compatibility.value}, {assignor})",
        state=state,
        decisions=assignment.explain(),
        due=lambda rebalances: f"in {duration(rebalances * interval_ms)}",
    )


def _record(wanted: _Wanted) -> Record:
    ids = []
    for _, record in read_records(wanted.file):
        if wanted.identity is None or record.get("id") == wanted.identity:
            return record
        ids.append(str(record.get("id")))
    if wanted.identity is None:
        raise ConfigError(f"{wanted.file}: empty; expected recorded assignments, one JSON object a line")
    shown = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    raise ConfigError(f"{wanted.file}: no record {wanted.identity!r}; it has {shown}")


def _assignor_of(record: Record) -> str:
    """The assignor that answers this record."""
    from tidemill.assignment.choice import DEFAULT
    from tidemill.replay.record_kinds import Kind, kind_of

    match kind_of(record, Kind.HIGH_AVAILABILITY):
        case Kind.HIGH_AVAILABILITY | Kind.CONVERGENCE | Kind.EXPERIMENT:
            return DEFAULT
        case Kind.RACK:
            return DEFAULT if record.get("assignor", "ha") == "ha" else "StickyTaskAssignor"
        case Kind.STICKY:
            return "StickyTaskAssignor"
        case Kind.FALLBACK:
            return "FallbackPriorTaskAssignor"
        case other:
            raise ConfigError(
                f"record {record.get('id')}: of kind {other.value}, which is no assignment of tasks to clients; expected one "
                "of ha, convergence, rack or the WordCount experiment"
            )


def _compatibility(wanted: _Wanted, record: Record) -> Compatibility:
    return _compatibility_of(
        wanted.compatibility or ("2.7" if str(record.get("kafka", "")).startswith("2.7") else "4.3")
    )


def _compatibility_of(said: str) -> Compatibility:
    from tidemill.assignment.kip441.high_availability import Compatibility

    return one_of(Compatibility, said, "--compatibility")


def _about(found: _Explained, task: str | None) -> list[Decision]:
    if not found.decisions:
        raise ConfigError(f"{found.title}: no reasons are given; --assignor HighAvailabilityTaskAssignor or balanced give them")
    if task is None:
        return list(found.decisions)
    try:
        wanted = TaskId.parse(task)
    except ValueError as error:
        raise ConfigError(f"--task: {error}") from None
    about = [decision for decision in found.decisions if decision.task == wanted]
    if not about:
        tasks = sorted(found.state.tasks)
        raise ConfigError(f"--task {task}: {found.title} has no such task; it has {tasks[0]} to {tasks[-1]}")
    return about


def _lines(found: _Explained, decisions: Sequence[Decision]) -> Iterator[str]:
    short = _short_ids(found.state)
    yield found.title
    if found.names:
        yield "clients: " + ", ".join(f"{short[p]} = {found.names[p]}" for p in sorted(found.names))
    yield from found.remarks
    yield ""
    rows = [("task", "copy", "on", "target", "moves", "rule")]
    rows += [
        (
            str(decision.task),
            decision.role.value,
            "-" if decision.chosen is None else short[decision.chosen],
            "-" if decision.target is None else short[decision.target],
            "-" if decision.rebalances_to_go is None else found.due(decision.rebalances_to_go),
            decision.rule,
        )
        for decision in decisions
    ]
    yield from table_lines(rows)
    before: TaskId | None = None
    for decision in decisions:
        if decision.task != before:
            yield ""
            before = decision.task
        yield f"- {decision.reason}"
        if decision.rebalances_to_go is not None and decision.role.value == "warm-up":
            yield f"  Expected on its target {found.due(decision.rebalances_to_go)}. [{decision.source}]"


def _short_ids(state: ApplicationState) -> dict[ProcessId, str]:
    """The first digits where they distinguish clients, as in the sentences."""
    ids = {client.process_id: str(client.process_id) for client in state.clients}
    short = {process_id: text[:8] for process_id, text in ids.items()}
    return short if len(set(short.values())) == len(ids) else ids


def _as_json(found: _Explained, decisions: Sequence[Decision]) -> dict[str, object]:
    return {
        "round": found.title,
        **({"remarks": list(found.remarks)} if found.remarks else {}),
        "decisions": [
            {
                "task": str(decision.task),
                "copy": decision.role.value,
                "rule": decision.rule,
                "on": None if decision.chosen is None else str(decision.chosen),
                "target": None if decision.target is None else str(decision.target),
                "rebalances_to_go": decision.rebalances_to_go,
                "candidates": [
                    {"client": str(process_id), "lag": lag, "rank": rank} for process_id, lag, rank in decision.candidates
                ],
                "reason": decision.reason,
                "source": decision.source,
            }
            for decision in decisions
        ],
    }
