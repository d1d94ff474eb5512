"""Instances restarted one after the other under load: what it stops, by protocol, with and without standbys, and read meanwhile.

    make experiment-rolling-bounce                  # or: .venv/bin/python experiments/rolling_bounce.py [--instances 4]

Real instances of the word count on a real broker; they share one Spark driver process. A pause is the time between a partition's
last commit before and its first after, beyond the interval at which partitions were committed before the bounces, the same for
all kinds; paused partition-milliseconds are summed over all partitions, as in the article that compares eager and cooperative
rebalancing. The part in hand-overs is that of gaps in which the owner closed the partition's task; the rest is what restarts
cost the tasks that stay. The moments of commits are the broker's own timestamps. Ten instances are simulated with the costs
measured here.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bounce_simulated import Costs, simulated
from commits import Commits, pauses, quantile
from console import Report, run
from instances import INPUT, LIMIT_S, OUTPUT, Host, Instance, Scene, all_at_work, own_wordcount, until
from readers import Readers, Readings
from rounds import assignments
from traffic import VOCABULARY, Counts, Exactness, Feed

from tidemill.assignment.choice import DEFAULT
from tidemill.embedded.broker_plan import free_port

PARTITIONS = 8
TASKS = 2 * PARTITIONS
LINES_PER_S = 120.0
STATE_WORDS, ACCEPTABLE_LAG, MOST_STALE = 40_000, 2_000, 1_000
"""Each changelog has more records than may be lacking, so a task does not go where its state is not, and a copy that has yet to
be restored answers no reads."""
STEADY_S = 8.0
BETWEEN_S = 1.0
COMMIT_INTERVAL_MS = 500
"""Four instances that commit as often as they can take all of two cores, and a restart then slows down every task: what was
measured would be the machine."""
STORE = "counts-store"
ARTICLE = "the article, 10 instances of Kafka Streams 2.5: eager 37,138 ms, cooperative 3,522 ms, a ratio of 10.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to restart. ``most``: the aim, as a share of what eager costs."""

    name: str
    settings: Mapping[str, object]
    is_static: bool = False
    drains: bool = False
    most: float | None = None


KINDS = (
    Kind(name="eager", settings={"rebalance.protocol": "eager"}),
    Kind(name="cooperative", settings={}, most=1 / 10),
    Kind(
        name="cooperative, 1 standby",
        settings={"num.standby.replicas": 1, "leave.group.on.close": "true"},
        most=1 / 30,
    ),
    Kind(
        name="the same, balanced assignor",
        settings={"num.standby.replicas": 1, "leave.group.on.close": "true", "task.assignor.class": "balanced"},
    ),
    Kind(name="drained", settings={}, drains=True),
    Kind(
        name="drained, balanced assignor",
        settings={"task.assignor.class": "balanced"},
        drains=True,
        most=1 / 30,
    ),
    Kind(
        name="static membership",
        settings={"session.timeout.ms": 60_000, "heartbeat.interval.ms": 1_000},
        is_static=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounce:
    """What one kind of restart has cost. ``away_s``: of each instance, from the call of close, or the end of its drain, until it
    runs again."""

    kind: Kind
    gaps_s: list[list[float]]
    """Between a partition's commits in the bounce."""
    hand_over_gaps_s: list[list[float]]
    """Those of them in which the partition's task had no owner for a while."""
    interval_ms: float
    """Between its commits before: the 99th percentile."""
    rebalances: int
    away_s: list[float]
    took_s: float
    readings: Readings
    exactness: Exactness
    tasks_of_restarted: int
    costs: Costs
    load: float


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--instances", type=int, default=4, help="of the application, 4 or more")
    asked.add_argument("--only", choices=[kind.name for kind in KINDS], action="append", help="of the kinds of restart, these")
    asked.add_argument("--folder", type=Path, default=Path("/tmp/tidemill-rolling-bounce"), help="emptied first")
    options = asked.parse_args()
    report = Report("Rolling bounce: every instance restarted, one after the other, under load")
    report.say(
        f"{options.instances} instances of the word count, 1 thread each, in one Spark driver process; {TASKS} tasks, "
        f"{LINES_PER_S:.0f} lines of 6 words a second, {STATE_WORDS:,} words as state, exactly_once_v2, "
        f"a commit every {COMMIT_INTERVAL_MS} ms"
    )
    kinds = [kind for kind in KINDS if not options.only or kind.name in options.only]
    bounces = []
    with Scene(options.folder, topics={}) as scene:
        host = scene.host("driver", slots=options.instances, heap="1g")
        for number, kind in enumerate(kinds):
            found = _bounce(report, scene, host, kind, number, options.instances)
            bounces.append(found)
            report.say(
                f"  {found.rebalances} rebalances, {found.readings.requests} reads with {found.readings.failed} failures"
            )
            for failure in found.readings.failures:
                report.say(f"  a failure: {failure}")
    _tell(report, bounces)
    _tell_simulated(report, bounces)
    return report.end()


# --- one kind of restart -------------------------------------------------------------------------------------------------


def _bounce(report: Report, scene: Scene, host: Host, kind: Kind, number: int, instances: int) -> Bounce:
    report.headline(kind.name)
    application = f"bounce-{number}"
    program = own_wordcount(scene, application, PARTITIONS)
    members = [_member(host, kind, application, index, program) for index in range(instances)]
    feed = Feed(scene.servers, f"{application}-{INPUT}", partitions=PARTITIONS, seed=number, lines_per_s=LINES_PER_S)
    counts = Counts(scene.servers, f"{application}-{OUTPUT}", partitions=PARTITIONS)
    commits: Commits | None = None
    try:
        with report.step(f"{instances} instances start and share the tasks"):
            for member in members:
                member.start(wait=False)
            until(lambda: _is_shared(members), "all tasks at work, as many on each instance", LIMIT_S, 0.3)
            commits = Commits(scene.servers, application)
        with report.step(f"{STATE_WORDS:,} words are counted"):
            for first in range(0, STATE_WORDS, 50):
                feed.send_line(" ".join(f"state{word}" for word in range(first, first + 50)))
            feed.stop()
            counts.wait_total(feed.total)
            until(lambda: _is_mirrored(members, kind), "standbys to have caught up", LIMIT_S, 0.3)
        return _under_load(report, host, kind, application, members, feed, counts, commits)
    finally:
        feed.stop()
        if commits is not None:
            commits.close()
        counts.close()
        for member in members:
            member.close()


def _under_load(
    report: Report,
    host: Host,
    kind: Kind,
    application: str,
    members: list[Instance],
    feed: Feed,
    counts: Counts,
    commits: Commits,
) -> Bounce:
    feed.send(100)  # every word that is asked for is there
    counts.wait_total(feed.total)
    words = sorted(set(VOCABULARY) & set(counts.latest))
    feed.start()
    servers = {member.name: member.look()["server"] for member in members}
    away_s: list[float] = []
    moved = 0
    with Readers(STORE, words) as readers:
        for server in servers.values():
            readers.into_service(server)
        steady_at = time.time() + 3
        with report.step(f"{STEADY_S:.0f} s of steady work"):
            time.sleep(STEADY_S + 3)
        begins_at = time.time()
        with report.step("the bounce") as tell:
            for member in members:
                tell(f"{member.name} restarts")
                moved += len(member.look()["tasks"])
                readers.out_of_service(servers[member.name])
                if kind.drains:
                    tell(f"{member.name} drains")
                    member.drain()
                away_at = time.monotonic()
                member.close()
                member.start()
                until(lambda: all_at_work(members, TASKS), "all tasks at work", LIMIT_S, 0.1)
                away_s.append(time.monotonic() - away_at)
                until(lambda: _is_mirrored(members, kind), "standbys to have caught up", LIMIT_S, 0.3)
                readers.into_service(servers[member.name])
                time.sleep(BETWEEN_S)
        ends_at, load = time.time(), os.getloadavg()[0]
        time.sleep(1)
    with report.step("input ends, all is counted"):
        feed.stop()
        counts.wait_total(feed.total)
        counts.settle()
    steady = [gap * 1e3 for of_one in commits.gaps(steady_at, begins_at, wholly=True).values() for gap in of_one]
    decided = [one for one in assignments([host.log]) if f"{application}-" in one.leader and begins_at <= one.at_s <= ends_at]
    return Bounce(
        kind=kind,
        gaps_s=list(commits.gaps(begins_at, ends_at).values()),
        hand_over_gaps_s=list(commits.gaps_around(_closings(host, application, begins_at)).values()),
        interval_ms=max(COMMIT_INTERVAL_MS, quantile(steady, 0.99)),
        rebalances=len(decided),
        away_s=away_s,
        took_s=ends_at - begins_at,
        readings=readers.readings,
        exactness=counts.exactness(feed.expected),
        tasks_of_restarted=moved,
        costs=Costs.measured(host, application, begins_at, ends_at, away_s),
        load=load,
    )


def _closings(host: Host, application: str, since_s: float) -> dict[tuple[str, int], list[float]]:
    """When an active task was closed, by the partition that it read."""
    topics = {"0": f"{application}-{INPUT}", "1": f"{application}-counts-store-repartition"}
    found: dict[tuple[str, int], list[float]] = {}
    for event in host.events("task-closed", since_s):
        part, number = event.fields["task"].split("_")
        found.setdefault((topics[part], int(number)), []).append(event.at_s)
    return found


def _member(host: Host, kind: Kind, application: str, index: int, program: Path) -> Instance:
    settings = {
        "application.id": application,
        "commit.interval.ms": COMMIT_INTERVAL_MS,
        "heartbeat.interval.ms": 3_000,
        "session.timeout.ms": 45_000,
        "acceptable.recovery.lag": ACCEPTABLE_LAG,
        "tidemill.http.listen": f"127.0.0.1:{free_port()}",
        "tidemill.http.timeout.ms": 60_000,
        "tidemill.http.max.staleness": MOST_STALE,
        **kind.settings,
    }
    if kind.is_static:
        settings["group.instance.id"] = f"{application}-{index}"
    return host.instance(f"{application}-{index}", settings, program=program)


def _is_shared(members: list[Instance]) -> bool:
    """While there is no state every copy is caught up, so the tasks go where they should at once."""
    held: list[int] = [len(member.look()["tasks"]) for member in members]
    return all_at_work(members, TASKS) and max(held) - min(held) <= 1


def _is_mirrored(members: list[Instance], kind: Kind) -> bool:
    """Every stateful task has as many standbys as are set, and they are near the end."""
    wanted = int(str(kind.settings.get("num.standby.replicas", 0))) * PARTITIONS
    lags: list[int | None] = [lag for member in members for lag in member.look()["standbys"].values()]
    return sum(lag is not None and lag < 1_000 for lag in lags) >= wanted


# --- what came of it -----------------------------------------------------------------------------------------------------


def _tell(report: Report, bounces: list[Bounce]) -> None:
    interval_ms = median(bounce.interval_ms for bounce in bounces)
    paused = {bounce.kind.name: pauses(bounce.gaps_s, interval_ms) for bounce in bounces}
    handed_over = {bounce.kind.name: pauses(bounce.hand_over_gaps_s, interval_ms).total_ms for bounce in bounces}
    eager = paused["eager"].total_ms if "eager" in paused else None
    rows = []
    for bounce in bounces:
        total_ms, longest_ms = paused[bounce.kind.name].total_ms, paused[bounce.kind.name].longest_ms
        share = "-" if eager is None or bounce.kind.name == "eager" else f"1/{eager / max(total_ms, 1):.1f}"
        away = f"{sum(bounce.away_s) / len(bounce.away_s):.1f} s"
        rows.append(
            (
                bounce.kind.name, f"{total_ms:,.0f}", share, f"{handed_over[bounce.kind.name]:,.0f}", f"{longest_ms:,.0f}",
                bounce.rebalances, away, f"{bounce.interval_ms:.0f}", f"{bounce.load:.1f}",
            )
        )  # fmt: skip
    columns = (
        "restarted with",
        "paused partition-ms",
        "of eager",
        "in hand-overs",
        "longest pause ms",
        "rebalances",
        "away each",
        "interval ms",
        "machine's load",
    )
    report.table(f"Real instances: pauses beyond {interval_ms:.0f} ms", columns, rows)
    report.say(f"for comparison, {ARTICLE}")
    report.table(
        "Reads over HTTP during all of it",
        ("restarted with", "requests", "failures", "of a standby that is behind", "p99 ms", "slowest ms"),
        [
            (name, read.requests, read.failed, read.stale, f"{read.p99_ms:.0f}", f"{read.longest_ms:.0f}")
            for name, read in ((bounce.kind.name, bounce.readings) for bounce in bounces)
        ],
    )
    for bounce in bounces:
        report.must(bounce.exactness.is_exact, f"{bounce.kind.name}: {bounce.exactness}")
        report.must(
            bounce.readings.failed == 0 and bounce.readings.requests > 0,
            f"{bounce.kind.name}: {bounce.readings.requests} reads, {bounce.readings.failed} failed",
        )
        if bounce.kind.is_static:
            own_ms = 1e3 * sum(away * bounce.tasks_of_restarted / len(bounce.away_s) for away in bounce.away_s)
            report.must(bounce.rebalances == 0, f"{bounce.kind.name}: {bounce.rebalances} rebalances")
            report.say(
                f"          its own downtime: {own_ms:,.0f} partition-ms (tasks of the restarted, times how long it was away)"
            )
        elif bounce.kind.most is not None and eager:
            share_of_eager = paused[bounce.kind.name].total_ms / eager
            report.target(
                share_of_eager <= bounce.kind.most,
                f"{bounce.kind.name}: {share_of_eager:.3f} of eager's pause, aim: at most {bounce.kind.most:.3f}",
            )
            share_in_hand_overs = handed_over[bounce.kind.name] / handed_over["eager"]
            report.target(
                share_in_hand_overs <= bounce.kind.most,
                f"{bounce.kind.name}: {share_in_hand_overs:.3f} of eager's in hand-overs alone, aim: the same",
            )


def _tell_simulated(report: Report, bounces: list[Bounce]) -> None:
    rows = []
    eager_ms: float | None = None
    for bounce in bounces:
        kind = bounce.kind
        found = simulated(
            kind.name,
            bounce.costs,
            standbys=int(str(kind.settings.get("num.standby.replicas", 0))),
            is_eager=kind.settings.get("rebalance.protocol") == "eager",
            is_static=kind.is_static,
            drains=kind.drains,
            assignor=str(kind.settings.get("task.assignor.class", DEFAULT)),
        )
        eager_ms = found.paused_ms if bounce.kind.name == "eager" else eager_ms
        share = "-" if not eager_ms or bounce.kind.name == "eager" else f"1/{eager_ms / max(found.paused_ms, 1):.1f}"
        rows.append(
            (bounce.kind.name, f"{found.paused_ms:,.0f}", share, found.rebalances, f"{found.longest_ms:,.0f}", bounce.costs)
        )
    report.table(
        "10 instances, 40 tasks, simulated with these costs",
        ("restarted with", "paused partition-ms", "of eager", "rebalances", "longest pause ms", "costs"),
        rows,
    )


if __name__ == "__main__":
    sys.exit(run(main))
