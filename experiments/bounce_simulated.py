"""The rolling bounce with ten instances in the simulator, with costs that were measured on real ones.

The simulator runs the same assignor, leader and member code in virtual time; what it can't know, how long things take, is read from
the log of the real bounce. A static member's restart is a pause of its process that ends before its session does.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from commits import quantile
from instances import Host

from tidemill.config_values import RebalanceProtocol
from tidemill.sim.cluster import simulate
from tidemill.sim.scenario import Happening, Scenario
from tidemill.sim.scenario_file import scenario_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCENARIO = Path(__file__).parent.parent / "examples" / "scenarios" / "rolling-bounce.toml"
_USUAL_RATE = 50_000.0
_FEW_RECORDS = 1_000
_ONE_REBALANCE_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Medians. ``notice_ms``: from a rebalance's first join to its last; ``release_ms``: until a revoked task is given up;
    ``open_ms``: until a task whose state is here runs; ``records_per_s`` of restoring; ``away_ms`` of a restarted instance."""

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

        running = own("task-running")
        restored = {of["task"]: float(of["offsets"]) for _, of in own("restored") if application in of["changelog"]}
        opened = [float(of["after_ms"]) for _, of in running if restored.get(of["task"], 0.0) < _FEW_RECORDS]
        rates = [
            restored[of["task"]] / (float(of["after_ms"]) / 1e3)
            for _, of in running
            if restored.get(of["task"], 0.0) >= _FEW_RECORDS and float(of["after_ms"]) > 0
        ]
        return cls(
            notice_ms=max(1, round(quantile(_spreads([at_s for at_s, _ in own("join")]), 0.5) * 1e3)),
            release_ms=round(quantile(_releases(own), 0.5) * 1e3),
            open_ms=round(quantile(opened, 0.5)),
            records_per_s=quantile(rates, 0.5) or _USUAL_RATE,
            away_ms=round(quantile(away_s, 0.5) * 1e3),
        )


def _spreads(joins: list[float]) -> list[float]:
    """Of each run of joins that are close to each other, how long it took."""
    runs: list[list[float]] = []
    for at_s in sorted(joins):
        if runs and at_s - runs[-1][0] < _ONE_REBALANCE_S:
            runs[-1].append(at_s)
        else:
            runs.append([at_s])
    return [run[-1] - run[0] for run in runs if len(run) > 1]


def _releases(own) -> list[float]:  # type: ignore[no-untyped-def]
    """Of each thread, from an assignment (cooperative) or the wish to join (eager) to the last task that it closed for that."""
    began: dict[str, float] = {}
    ended: dict[tuple[str, float], float] = defaultdict(float)
    events = [(at_s, name, of) for name in ("assigned", "revoking-all", "task-closed", "task-demoted") for at_s, of in own(name)]
    for at_s, name, of in sorted(events, key=lambda event: event[0]):
        thread = of.get("thread", "")
        if name in ("assigned", "revoking-all"):
            began[thread] = at_s
        elif thread in began:
            ended[thread, began[thread]] = at_s - began[thread]
    return list(ended.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    paused_ms: float
    longest_ms: float
    rebalances: int


def simulated(kind: str, costs: Costs, *, standbys: int, is_eager: bool, is_static: bool) -> Simulated:
    """Ten instances, each restarted once; ``kind`` names the run."""
    scenario = scenario_of(tomllib.loads(SCENARIO.read_text(encoding="utf-8")), kind)
    run = simulate(_with(scenario, costs, standbys, is_eager, is_static), Random(scenario.seed))
    pauses = [outage.to_ms - outage.from_ms for outage in run.outages]
    return Simulated(
        paused_ms=sum(pauses),
        longest_ms=max(pauses, default=0),
        rebalances=sum(round_.time_ms >= run.scenario.disturbed_ms for round_ in run.rounds),
    )


def _with(scenario: Scenario, costs: Costs, standbys: int, is_eager: bool, is_static: bool) -> Scenario:
    protocol = RebalanceProtocol.EAGER if is_eager else RebalanceProtocol.COOPERATIVE
    what = Happening.PAUSE if is_static else Happening.RESTART
    return replace(
        scenario,
        settings=replace(scenario.settings, num_standby_replicas=standbys),
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
