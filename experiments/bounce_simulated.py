"""The rolling bounce with ten instances in the simulator, with costs that were measured on real ones.

The simulator runs the same assignor, leader and member code in virtual time; what it can't know, how long things take, is read
from the log of the real bounce. A static member's restart is a pause of its process that ends before its session does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from commits import quantile
from instances import Host

from tidemill.assignment.choice import DEFAULT
from tidemill.config.values import RebalanceProtocol
from tidemill.sim.cluster import simulate
from tidemill.sim.scenario import Happening, Scenario
from tidemill.sim.scenario_file import scenario_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCENARIO = Path(__file__).parent.parent / "examples" / "scenarios" / "rolling-bounce.toml"
PROBING_MS = 600_000
_USUAL_RATE = 50_000.0
_FEW_RECORDS = 1_000
_WORK_GOES_ON = ("first join", "it is about to leave")
"""Cooperative joins that nobody stands still for, however late the others notice."""
Events = Callable[[str], list[tuple[float, dict[str, str]]]]
"""The moment and fields of each log line of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Medians. ``notice_ms``: from a rebalance's first join to its last where something waits for it; ``release_ms``: until a
    revoked task is given up; ``open_ms``: until a task whose state is here runs; ``records_per_s`` of restoring; ``away_ms`` of
    a restarted instance."""

    notice_ms: int
    release_ms: int
    open_ms: int
    records_per_s: float
    away_ms: int

    def __str__(self) -> str:
        return (
            f"notice {self.notice_ms}, release {self.release_ms}, open {self.open_ms}, away {self.away_ms} ms, "
            f"restore {self.records_per_s:,.0f}/s"
        )

    @classmethod
    def measured(cls, host: Host, application: str, from_s: float, to_s: float, away_s: Sequence[float]) -> Costs:
        """From the log of a bounce of ``application``."""

        def own(name: str) -> list[tuple[float, dict[str, str]]]:
            found = [(event.at_s, dict(event.fields)) for event in host.events(name, from_s) if event.at_s <= to_s]
            return [
                (at_s, of) for at_s, of in found if f"{application}-" in of.get("thread", "") or of.get("group") == application
            ]

        running = [(at_s, of) for at_s, of in own("task-running") if not of["task"].startswith("0_")]
        restored = {of["task"]: float(of["offsets"]) for _, of in own("restored") if application in of["changelog"]}
        opened = [float(of["after_ms"]) for _, of in running if restored.get(of["task"], 0.0) < _FEW_RECORDS]
        rates = [
            restored[of["task"]] / (float(of["after_ms"]) / 1e3)
            for _, of in running
            if restored.get(of["task"], 0.0) >= _FEW_RECORDS and float(of["after_ms"]) > 0
        ]
        return cls(
            notice_ms=max(1, round(2 * quantile(notices(own("join"), own("assign"), bool(own("revoking-all"))), 0.5) * 1e3)),
            release_ms=round(quantile(_releases(own), 0.5) * 1e3),
            open_ms=round(quantile(opened, 0.5)),
            records_per_s=quantile(rates, 0.5) or _USUAL_RATE,
            away_ms=round(quantile(away_s, 0.5) * 1e3),
        )


def notices(
    joins: Sequence[tuple[float, Mapping[str, str]]], decided: Sequence[tuple[float, Mapping[str, str]]], is_eager: bool
) -> list[float]:
    """How long a rebalance has waited for each member that had to be told of it by a heartbeat's answer.

    Cooperative: since the join that began it. Eager: since the first that was told, which is when tasks begin to stand still;
    heartbeats are in step, since all members were assigned at once, so the others follow soon.
    """
    found: list[float] = []
    began: float | None = None
    counts = True
    events = [(at_s, of["reason"]) for at_s, of in joins] + [(at_s, "") for at_s, _ in decided]
    for at_s, reason in sorted(events):
        is_told = "Heartbeat" in reason
        if not reason:
            began, counts = None, True
        elif began is not None and is_told and counts:
            found.append(at_s - began)
        elif is_told == is_eager:
            began = at_s if began is None else began
            counts = counts and (is_eager or not any(why in reason for why in _WORK_GOES_ON))
    return found


def _releases(own: Events) -> list[float]:
    """Of each thread, from an assignment (cooperative) or the wish to join (eager) to the last task that it gave up for that."""
    assigned = [(at_s, "told", of["member"].split("-consumer-")[0], of) for at_s, of in own("assigned") if "member" in of]
    names = ("revoking-all", "task-closed", "task-demoted")
    acted = [(at_s, name, of["thread"], of) for name in names for at_s, of in own(name)]
    began: dict[str, float] = {}
    took: dict[tuple[str, float], float] = {}
    for at_s, name, thread, of in sorted(assigned + acted, key=lambda event: event[0]):
        if name in ("told", "revoking-all"):
            began[thread] = at_s
        elif thread in began and of.get("cause", "'revoked'") == "'revoked'":
            took[thread, began[thread]] = at_s - began[thread]
    return list(took.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    paused_ms: float
    longest_ms: float
    rebalances: int


def simulated(
    kind: str,
    costs: Costs,
    *,
    standbys: int,
    is_eager: bool,
    is_static: bool,
    drains: bool = False,
    assignor: str = DEFAULT,
) -> Simulated:
    """Ten instances, each restarted once; ``kind`` names the run."""
    scenario = replace(scenario_of(tomllib.loads(SCENARIO.read_text(encoding="utf-8")), kind), assignor=assignor)
    run = simulate(_with(scenario, costs, standbys, is_eager, is_static, drains), Random(scenario.seed))
    pauses = [outage.to_ms - outage.from_ms for outage in run.outages]
    return Simulated(
        paused_ms=sum(pauses),
        longest_ms=max(pauses, default=0),
        rebalances=sum(round_.time_ms >= run.scenario.disturbed_ms for round_ in run.rounds),
    )


def _with(scenario: Scenario, costs: Costs, standbys: int, is_eager: bool, is_static: bool, drains: bool) -> Scenario:
    protocol = RebalanceProtocol.EAGER if is_eager else RebalanceProtocol.COOPERATIVE
    what = Happening.PAUSE if is_static else Happening.DRAIN if drains else Happening.RESTART
    return replace(
        scenario,
        settings=replace(scenario.settings, num_standby_replicas=standbys, probing_rebalance_interval_ms=PROBING_MS),
        events=tuple(replace(event, what=what, for_ms=costs.away_ms) for event in scenario.events),
        surroundings=replace(
            scenario.surroundings,
            notice_ms=costs.notice_ms,
            release_ms=costs.release_ms,
            restore_start_ms=costs.open_ms,
            restore_records_per_s=costs.records_per_s,
            rebalance_protocol=protocol,
        ),
    )
