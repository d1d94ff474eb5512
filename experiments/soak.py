"""Random joins, leaves, kills, freezes and broker restarts under load, from a seed; auditors judge it in the end.

    make soak MINUTES=10             # or: .venv/bin/python experiments/soak.py [--minutes 10] [--seed 1] [--program windows]

Up to three instances, each with a process and a JVM of its own, one standby for each task or as many as asked for, exactly
once or at least once. They count words, or run a program of windows, joins and processors. After each fault all tasks must be
at work again within a limit. In the end the results must be exact (at least once: lack nothing), no task may have been active in
two places, no process be left, and neither memory nor open files have grown. A seed gives the same faults in the same order.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker_cluster import BrokerCluster
from console import Report, run
from instances import HEAP, ExperimentError, Instance, Scene, all_at_work, until
from soak_auditors import ENDS, Active, Blind, ProcessAudit, active_times, overlaps
from soak_loads import LOADS, Load

RECOVERY_LIMIT_S = 150.0
_REST_S = (1.0, 6.0)
_FREEZE_S: Mapping[str, tuple[float, float]] = {"exactly_once_v2": (1.0, 12.0), "at_least_once": (1.0, 4.0)}
"""By guarantee. At least once, an owner that was frozen for longer than its session is not fenced: what it writes when it goes on
may replace newer rows in a changelog."""
_BROKER_AWAY_S = (0.5, 6.0)
_BROKER_FREEZE_S = (3.0, 30.0)
"""Up to well above broker.session.timeout.ms, after which others lead."""
_SETTINGS = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "probing.rebalance.interval.ms": 4_000,
    "state.cleanup.delay.ms": 5_000,
}


@dataclass
class Group:
    """The instances, which of them run, and what was done to them."""

    scene: Scene
    random: random.Random
    anchor: Instance
    others: list[Instance]
    tasks: int
    freeze_s: tuple[float, float]
    running: list[Instance] = field(default_factory=list)
    deaths: dict[str, list[float]] = field(default_factory=dict)
    blind: list[Blind] = field(default_factory=list)

    @property
    def movable(self) -> list[Instance]:
        return [instance for instance in self.running if instance is not self.anchor]

    def is_at_work(self) -> bool:
        return all_at_work(self.running, self.tasks)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--minutes", type=float, default=10.0, help="how long faults go on")
    asked.add_argument("--seed", type=int, default=None, help="of the faults; drawn and shown if not given")
    asked.add_argument("--folder", type=Path, default=Path("/tmp/tidemill-soak"), help="emptied first; the logs stay there")
    asked.add_argument("--brokers", type=int, default=1, help="of several, one at a time is killed, stopped or frozen")
    asked.add_argument("--program", choices=sorted(LOADS["exactly_once_v2"]), default="wordcount", help="what the instances run")
    asked.add_argument("--threads", type=int, default=1, help="stream threads of each instance")
    asked.add_argument("--standbys", type=int, default=1, help="num.standby.replicas; 0: every move and every death restores")
    asked.add_argument("--guarantee", choices=sorted(LOADS), default="exactly_once_v2", help="at_least_once: --program windows")
    options = asked.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    among = f"{options.guarantee}, {options.standbys} standbys, {options.brokers} brokers"
    report = Report(f"Soak: {options.minutes:g} minutes of faults on {options.program}, seed {seed}, {among}")
    kind = LOADS[options.guarantee].get(options.program)
    if kind is None:
        asked.error(f"--guarantee {options.guarantee} with --program {options.program}: its results could not be judged")
    settings = {
        **_SETTINGS,
        "num.stream.threads": options.threads,
        "num.standby.replicas": options.standbys,
        "processing.guarantee": options.guarantee,
    }
    with Scene(options.folder, topics=kind.topics, keeps_broker=True, brokers=options.brokers) as scene:
        anchor, *others = [scene.own(name, kind.program, settings=settings) for name in ("anchor", "b", "c")]
        group = Group(scene, random.Random(seed), anchor, others, kind.tasks, _FREEZE_S[options.guarantee])
        audit = ProcessAudit(list(scene.hosts.values()), float(HEAP.removesuffix("m")))
        load = kind(scene.servers, seed)
        try:
            with report.step("two instances start"):
                for instance in (group.anchor, others[0]):
                    _start(group, instance)
                until(group.is_at_work, "all tasks at work", pause_s=0.3)
            load.feed.start()
            taken = _soak(report, group, options.minutes * 60, load)
            _tell_faults(report, taken)
            with report.step("all that was sent comes out"):
                load.finish()
            with report.step("all instances close"):
                for instance in group.running:
                    instance.close()
            ended_s = time.time()
        finally:
            audit.close()
            load.close()
        for host in scene.hosts.values():
            host.kill()
        report.headline("Audit")
        load.judge(report)
        _audit_tasks(report, group, ended_s)
        _audit_processes(report, audit)
    again = f"PROGRAM={options.program} MINUTES={options.minutes:g} SEED={seed} BROKERS={options.brokers}"
    again += f" THREADS={options.threads} STANDBYS={options.standbys} GUARANTEE={options.guarantee}"
    report.say(f"Again: make soak {again}; logs in {options.folder}")
    return report.end()


# --- faults ----------------------------------------------------------------------------------------------------------------


def _soak(report: Report, group: Group, seconds: float, load: Load) -> list[tuple[str, float]]:
    """(fault, seconds until it was over) of each: all tasks run, and what was sent until it had happened has come out."""
    began, taken = time.monotonic(), []
    while time.monotonic() - began < seconds:
        time.sleep(group.random.uniform(*_REST_S))
        name = group.random.choice([fault for fault, (is_possible, _) in FAULTS.items() if is_possible(group)])
        at_s = time.monotonic() - began
        what = FAULTS[name][1](group)
        recovered_s = _recovered(group, what, load)
        taken.append((name, recovered_s))
        report.say(f"  {at_s:6.1f} s  {what}: over after {recovered_s:.1f} s, {len(group.running)} instances")
    return taken


def _recovered(group: Group, what: str, load: Load) -> float:
    sent = load.sent

    def is_over() -> bool:
        return load.done >= sent and group.is_at_work()

    try:
        return until(is_over, "", RECOVERY_LIMIT_S, 0.2)
    except ExperimentError:
        stands = {instance.name: instance.look() for instance in group.running}
        raise ExperimentError(
            f"{what}: not over after {RECOVERY_LIMIT_S:.0f} s; {load.done} of {sent} have come out; the feed: "
            f"{load.feed.stands()}; {stands}"
        ) from None


def _join(group: Group) -> str:
    instance = group.random.choice([other for other in group.others if other not in group.running])
    _start(group, instance)
    return f"{instance.name} joins"


def _start(group: Group, instance: Instance) -> None:
    instance.start(wait=False, leave_group_on_close=group.random.random() < 0.5)
    group.running.append(instance)


def _leave(group: Group) -> str:
    instance = group.random.choice(group.movable)
    group.running.remove(instance)
    instance.close()
    _end(group, instance)
    return f"{instance.name} leaves"


def _kill(group: Group) -> str:
    instance = group.random.choice(group.movable)
    group.running.remove(instance)
    _end(group, instance)
    return f"kill -9 of {instance.name}"


def _end(group: Group, instance: Instance) -> None:
    """The time is taken before: what is killed runs nothing afterwards."""
    group.deaths.setdefault(instance.host.name, []).append(time.time())
    instance.host.kill()


def _kill_worker(group: Group) -> str:
    instance = group.random.choice(group.running)
    workers = [pid for thread in instance.look()["threads"].values() for pid in thread["workers"].values()]
    if workers:
        os.kill(group.random.choice(workers), signal.SIGKILL)
    return f"kill -9 of a worker of {instance.name}"


def _freeze(group: Group) -> str:
    instance, frozen_s = group.random.choice(group.running), group.random.uniform(*group.freeze_s)
    began_s = time.time()
    instance.host.freeze()
    time.sleep(frozen_s)
    instance.host.thaw()
    group.blind.append(Blind(host=instance.host.name, begin_s=began_s, end_s=time.time()))
    return f"{instance.name} frozen for {frozen_s:.1f} s"


def _restart_broker(group: Group) -> str:
    away_s, is_crash = group.random.uniform(*_BROKER_AWAY_S), group.random.random() < 0.5
    began_s = time.time()
    if is_crash:
        group.scene.broker.kill()
    else:
        group.scene.broker.stop()
    time.sleep(away_s)
    group.scene.broker.start()
    group.blind.append(Blind(host=None, begin_s=began_s, end_s=time.time()))
    return f"broker {'killed' if is_crash else 'stopped'} and started after {away_s:.1f} s"


def _freeze_broker(group: Group) -> str:
    cluster, frozen_s = group.scene.broker, group.random.uniform(*_BROKER_FREEZE_S)
    assert isinstance(cluster, BrokerCluster)
    began_s = time.time()
    cluster.freeze(frozen_s)
    cluster.start()  # waits for its replicas
    group.blind.append(Blind(host=None, begin_s=began_s, end_s=time.time()))
    return f"broker frozen for {frozen_s:.1f} s"


def _has_brokers(group: Group) -> bool:
    return isinstance(group.scene.broker, BrokerCluster)


def _always(group: Group) -> bool:
    return bool(group.running)


FAULTS: Mapping[str, tuple[Callable[[Group], bool], Callable[[Group], str]]] = {
    "join": (lambda group: any(other not in group.running for other in group.others), _join),
    "leave": (lambda group: bool(group.movable), _leave),
    "kill": (lambda group: bool(group.movable), _kill),
    "kill of a worker": (_always, _kill_worker),
    "freeze": (_always, _freeze),
    "broker restart": (_always, _restart_broker),
    "broker freeze": (_has_brokers, _freeze_broker),
}


def _tell_faults(report: Report, taken: list[tuple[str, float]]) -> None:
    rows = []
    for name in FAULTS:
        times = sorted(seconds for fault, seconds in taken if fault == name)
        if times:
            rows.append((name, len(times), f"{times[len(times) // 2]:.1f} s", f"{times[-1]:.1f} s"))
    report.table("Until all tasks ran again, and what was sent had come out", ("fault", "times", "median", "longest"), rows)


# --- audit -----------------------------------------------------------------------------------------------------------------


def _audit_tasks(report: Report, group: Group, ended_s: float) -> None:
    times: list[Active] = []
    for host in group.scene.hosts.values():
        events = [(name, event) for name in ("task-running", *ENDS) for event in host.events(name)]
        times += active_times(host.name, events, group.deaths.get(host.name, ()), group.blind, ended_s)
    found = overlaps(times)
    report.must(not found, f"one active per task at any time: {len(times)} times of activity, {len(found)} overlap")
    for one, other in found[:5]:
        span = f"{one.who} from {one.begin_s:.3f} to {one.end_s:.3f}"
        report.say(f"    task {one.task}: {span}, {other.who} from {other.begin_s:.3f}")


def _audit_processes(report: Report, audit: ProcessAudit) -> None:
    left = audit.left()
    report.must(not left, f"no process is left: {', '.join(left) or 'none'}")
    growths = audit.growths()
    report.table(
        "Processes that lived for more than 90 s: medians early and late",
        ("process", "lived", "memory, MiB", "open files"),
        [
            (
                growth.name, f"{growth.seconds:.0f} s", "{:.0f} -> {:.0f}".format(*growth.memory_mib),
                "{:.0f} -> {:.0f}".format(*growth.files),
            )
            for growth in growths
        ],
    )  # fmt: skip
    grown = [growth.name for growth in growths if not growth.is_bounded]
    report.must(not grown, f"no memory or open files grow: {', '.join(grown) or 'none of ' + str(len(growths))}")


if __name__ == "__main__":
    sys.exit(run(main))
