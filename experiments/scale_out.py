"""A third instance joins two: what the group's leader decides round by round, and what that costs tasks under load.

    make experiment-scale-out                       # or: .venv/bin/python experiments/scale_out.py [--probing-s 60]

Part A repeats the published WordCount experiment on Kafka Streams 2.7.2: the same process ids, settings and the one line a to z.
First with tidemill.compatibility=2.7, which has to give the published rounds, then without, which has to give those of Kafka
Streams 4.3 (and probes four times as often, since that changes no decision). Part B lets the third instance join under load, with
state that is worth warming up, exactly_once_v2 and the default lag. Part C does the same with probing every minute, once with
KIP-441's promotion at the next probing rebalance and once with tidemill.promote.when.caught.up. The log and the state are left in
--folder.
"""

from __future__ import annotations

import argparse
import string
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from console import Report, run
from instances import INPUT, LIMIT_S, OUTPUT, Host, Instance, Scene, all_at_work, own_wordcount, until
from rounds import Assignment, assignments, shown
from traffic import Counts, Exactness, Feed

from tidemill.ids import TopicPartition

PARTS = ("2.7", "4.3", "load", "promotion")
PARTITIONS = 6
TASKS = 2 * PARTITIONS
PROCESS_IDS = {
    "7156": "7156cef1-307e-49c0-a5bb-0f11d26a4933",
    "4b61": "4b61083e-57d0-457d-951f-d06556c148ca",
    "bbb8": "bbb83e43-b1af-4b2d-a60a-94a7091684d0",
}
NAMES = {process: name for name, process in PROCESS_IDS.items()}
ARTICLES_LINE = " ".join(string.ascii_lowercase)
ARTICLES_OFFSETS = (2, 2, 8, 6, 4, 4)
Round = Mapping[str, tuple[str, str]]
"""By client: its active tasks, and its standby tasks, warm-ups among them."""

PUBLISHED: Sequence[Round] = (
    {"bbb8": ("0_0 0_1 0_2 0_3", "1_0"), "4b61": ("0_4 1_0 1_2 1_4", "-"), "7156": ("0_5 1_1 1_3 1_5", "1_2")},
    {"bbb8": ("0_0 0_2 0_4 1_0", "1_3"), "4b61": ("0_1 0_3 0_5 1_4", "1_1"), "7156": ("1_1 1_2 1_3 1_5", "-")},
    {"bbb8": ("0_0 0_3 1_0 1_3", "-"), "4b61": ("0_1 0_4 1_1 1_4", "-"), "7156": ("0_2 0_5 1_2 1_5", "-")},
)
OF_4_3: Sequence[Round] = (
    {"bbb8": ("0_0 0_1 0_2 0_3", "1_0"), "4b61": ("0_4 1_0 1_2 1_4", "1_1"), "7156": ("0_5 1_1 1_3 1_5", "-")},
    {"bbb8": ("0_0 0_1 0_3 1_0", "1_3"), "4b61": ("0_4 1_1 1_2 1_4", "-"), "7156": ("0_2 0_5 1_3 1_5", "1_2")},
    PUBLISHED[-1],
)
PUBLISHED_THREADS = {
    "1_0": ("4b61/1", "4b61/1", "bbb8/1", "bbb8/1"),
    "1_1": ("7156/2", "7156/2", "7156/2", "4b61/2"),
    "1_2": ("4b61/2", "4b61/2", "7156/1", "7156/1"),
    "1_3": ("7156/1", "7156/1", "7156/1", "bbb8/2"),
    "1_4": ("4b61/1", "4b61/1", "4b61/1", "4b61/1"),
    "1_5": ("7156/2", "7156/2", "7156/2", "7156/2"),
}
COPIES_WAIT_S = 3.0
"""The article's warm-ups took longer to be restored than the hand-over after a round; ours of two records would not."""
COMMIT_INTERVAL_MS = 500
"""Of part B: six threads whose batches follow each other at once keep two cores busy, and then hand-overs wait for those."""
STATE_WORDS, LINES_PER_S = 150_000, 300.0
QUIET_TARGET_S = 1.0
MOVED_AT_LEAST = 4
_LOAD = (
    f"{LINES_PER_S:.0f} lines a second, exactly_once_v2, default lag (10,000), {STATE_WORDS:,} words as state, 2 threads, "
    f"commits every {COMMIT_INTERVAL_MS} ms, heartbeats every 200 ms"
)


@dataclass(frozen=True, slots=True)
class Group:
    """One application on the three processes; ``members`` in the order of the hosts."""

    name: str
    members: dict[str, Instance]

    def logs(self) -> list[str]:
        """Only this application's lines: its leader's names begin with its id."""
        return [self._own(member.host.log) for member in self.members.values()]

    def _own(self, log: str) -> str:
        """A leader's list of clients belongs to the sentence above it."""
        kept, is_own = [], False
        for line in log.splitlines():
            if "stream-thread [" in line:
                is_own = f"stream-thread [{self.name}-" in line
            if is_own:
                kept.append(line)
        return "\n".join(kept)

    def threads(self) -> dict[str, str]:
        """Which client and thread runs each stateful task."""
        found = {}
        for name, member in self.members.items():
            for thread, held in member.look().get("threads", {}).items():
                found.update({task: f"{name}/{thread.rpartition('-')[2]}" for task in held["tasks"] if task.startswith("1_")})
        return found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--probing-s", type=int, default=60, help="probing.rebalance.interval.ms of part A, in seconds")
    asked.add_argument("--folder", type=Path, default=Path("/tmp/tidemill-scale-out"), help="emptied first")
    asked.add_argument("--only", choices=PARTS, action="append", help="part A with this version, part B or part C")
    options = asked.parse_args()
    report = Report("Scale-out: a third instance joins two")
    with Scene(options.folder, topics={}) as scene:
        parts = options.only or PARTS
        hosts = {name: scene.host(f"{name}-article", slots=2, copies_wait_s=COPIES_WAIT_S) for name in PROCESS_IDS}
        if "2.7" in parts:
            _article(report, scene, hosts, "2.7", PUBLISHED, options.probing_s)
        if "4.3" in parts:
            _article(report, scene, hosts, "4.3", OF_4_3, max(options.probing_s // 4, 5))
        for host in hosts.values():
            host.kill()
        if "load" in parts:
            report.headline(f"B. Under load: {_LOAD}, probing every 5 s")
            joined = _under_load(report, scene, "load", probing_s=5)
            _must_be_whole(report, joined)
            report.target(
                joined.longest_gap_s < QUIET_TARGET_S,
                f"the longest time a stateful task was without a running active: {joined.longest_gap_s:.3f} s (target on a quiet "
                f"machine: under {QUIET_TARGET_S:.0f} s)",
            )
        if "promotion" in parts:
            _promotion(report, scene, options.probing_s)
    return report.end()


# --- part A ------------------------------------------------------------------------------------------------------------


def _article(
    report: Report, scene: Scene, hosts: Mapping[str, Host], version: str, expected: Sequence[Round], probing_s: int
) -> None:
    """One group from its start to its last round."""
    source = "as published" if version == "2.7" else "as Kafka Streams 4.3 decides"
    report.headline(
        f'A. compatibility="{version}": one line, at_least_once, acceptable.recovery.lag=0, probing every {probing_s} s'
    )
    group = _group(scene, hosts, version, probing_s)
    feed = Feed(scene.servers, f"{group.name}-{INPUT}", partitions=PARTITIONS, seed=1, lines_per_s=1)
    started: list[Instance] = []
    for name in ("7156", "4b61"):  # in this order 7156 leads, and its threads have the tasks that the article shows
        with report.step(f"{name} starts"):
            started.append(group.members[name].start(wait=False))
            until(lambda: all_at_work(started, TASKS) and _have_alike(started), "all tasks at work, as many on each")
    with report.step("the line a b c ... z is processed and committed"):
        feed.send_line(ARTICLES_LINE)
        feed.stop()
        until(lambda: _offsets(scene, group)[0] == ARTICLES_OFFSETS, "offsets as published", 90)
    _show_offsets(report, scene, group)
    seen = [group.threads()]
    joins_at = time.time()
    with report.step("bbb8 starts, and the group probes until it is stable") as tell:
        group.members["bbb8"].start(wait=False)

        def is_over() -> bool:
            decided = _rounds(group, joins_at)
            tell(f"round {len(decided)}")
            if len(decided) >= len(seen) and time.time() > decided[-1].at_s + 5:
                seen.append(group.threads())
            return len(seen) > len(expected)

        until(is_over, "three rounds", 3 * probing_s + LIMIT_S, pause_s=0.5)
    found = _rounds(group, joins_at)
    _show_rounds(report, version, found, joins_at)
    report.must([_as_round(one) for one in found] == list(expected), f"{version}: the three rounds are {source}")
    follow_ups = _with_follow_up(group, joins_at)
    report.must(follow_ups >= 1, f"{version}: {follow_ups} rounds in which tasks move are followed by a rebalance at once")
    if version == "2.7":
        _show_threads(report, seen)
    with report.step("closing"):
        for member in group.members.values():
            member.close()


def _have_alike(members: Sequence[Instance]) -> bool:
    held = [len(member.look()["tasks"]) for member in members]
    return max(held) == min(held)


def _group(scene: Scene, hosts: Mapping[str, Host], version: str, probing_s: int) -> Group:
    application = f"streams-wordcount-{version.replace('.', '-')}"
    settings: dict[str, object] = {
        "application.id": application,
        "num.stream.threads": 2,
        "processing.guarantee": "at_least_once",
        "commit.interval.ms": 1_000,
        "acceptable.recovery.lag": 0,
        "probing.rebalance.interval.ms": probing_s * 1_000,
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 300,
        "tidemill.compatibility": version,
        "tidemill.presum": "false",
    }
    program = own_wordcount(scene, application, PARTITIONS)
    members = {
        name: host.instance(f"{name}-{version}", settings, process_id=PROCESS_IDS[name], program=program)
        for name, host in hosts.items()
    }
    return Group(application, members)


def _rounds(group: Group, since_s: float) -> list[Assignment]:
    """Without those that decide the same again: the follow-up, in which withheld tasks reach their new owners."""
    kept: list[Assignment] = []
    for one in assignments(group.logs()):
        if one.at_s >= since_s and len(one.active) == len(PROCESS_IDS) and (not kept or kept[-1].decided != one.decided):
            kept.append(one)
    return kept


def _with_follow_up(group: Group, since_s: float) -> int:
    decided = [one for one in assignments(group.logs()) if one.at_s >= since_s]
    return sum(first.is_at_once and second.at_s - first.at_s < 10 for first, second in pairwise(decided))


def _as_round(one: Assignment) -> Round:
    return {name: (active, standby) for name, active, standby in shown(one, NAMES)}


def _offsets(scene: Scene, group: Group) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Committed, and ends, of the repartition topic."""
    topic = f"{group.name}-counts-store-repartition"
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    committed = scene.admin.committed_offsets(group.name, partitions)
    ends = scene.admin.end_offsets(partitions)
    return tuple(committed.get(p, 0) for p in partitions), tuple(ends[p] for p in partitions)


def _show_offsets(report: Report, scene: Scene, group: Group) -> None:
    rows = []
    threads = group.threads()
    committed, ends = _offsets(scene, group)
    for number in range(PARTITIONS):
        rows.append((number, committed[number], ends[number], ends[number] - committed[number], threads[f"1_{number}"]))
    report.table("counts-store-repartition, before bbb8 joins", ("partition", "current", "end", "lag", "client/thread"), rows)


def _show_rounds(report: Report, version: str, found: Sequence[Assignment], since_s: float) -> None:
    rows: list[tuple[object, ...]] = []
    for number, one in enumerate(found, start=1):
        for line, (name, active, standby) in enumerate(shown(one, NAMES)):
            first = (number, f"{one.at_s - since_s:.1f} s") if line == 0 else ("", "")
            rows.append((*first, name, active, standby, one.follow_up if line == 0 else ""))
    columns = ("round", "after", "client", "active", "standby or warm-up", "next")
    report.table(f'What the leader decided, tidemill.compatibility="{version}"', columns, rows, left=len(columns))


def _show_threads(report: Report, seen: Sequence[Mapping[str, str]]) -> None:
    rows = [(task, *(threads.get(task, "-") for threads in seen)) for task in PUBLISHED_THREADS]
    columns = ("task", "before", "round 1", "round 2", "round 3")
    report.table("Which client/thread runs each stateful task, 2.7", columns, rows, left=len(columns))
    report.must({task: tuple(where) for task, *where in rows} == PUBLISHED_THREADS, "2.7: the threads are the published ones")


# --- part B ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """What came of an instance that joined under load."""

    balanced_s: float
    """From its start until each instance has as many stateful tasks."""
    moved: int
    longest_gap_s: float
    exactness: Exactness


def _under_load(report: Report, scene: Scene, name: str, *, probing_s: int, **more: object) -> Joined:
    """Two instances work, the third joins. ``more``: settings of all of them, underscores for dots."""
    hosts = {member: scene.host(f"{member}-{name}", slots=2) for member in PROCESS_IDS}
    application = f"wordcount-{name}"
    settings = {
        "application.id": application,
        "num.stream.threads": 2,
        "probing.rebalance.interval.ms": probing_s * 1_000,
        "commit.interval.ms": COMMIT_INTERVAL_MS,
        "heartbeat.interval.ms": 200,
        **{setting.replace("_", "."): value for setting, value in more.items()},
    }
    program = own_wordcount(scene, application, PARTITIONS)
    feed = Feed(scene.servers, f"{application}-{INPUT}", partitions=PARTITIONS, seed=1, lines_per_s=LINES_PER_S)
    members = {
        member: host.instance(f"{member}-{name}", settings, process_id=PROCESS_IDS[member], program=program)
        for member, host in hosts.items()
    }
    first, third = [members["7156"], members["4b61"]], members["bbb8"]
    with report.step(f"two instances start and count {STATE_WORDS:,} words"):
        for number in range(0, STATE_WORDS, 50):
            feed.send_line(" ".join(f"state{word}" for word in range(number, number + 50)))
        feed.stop()
        for member in first:
            member.start()
        until(lambda: all_at_work(first, TASKS), "all tasks at work")
        counts = Counts(scene.servers, f"{application}-{OUTPUT}", partitions=PARTITIONS)
        counts.wait_total(feed.total)
    feed.start()
    time.sleep(5)
    joins_at = time.time()
    with report.step("bbb8 joins; tasks move until the assignment is stable") as tell:
        third.start(wait=False)

        def is_over() -> bool:
            stateful = {member: sum(task.startswith("1_") for task in one.look()["tasks"]) for member, one in members.items()}
            tell(", ".join(f"{member} has {count} stateful" for member, count in stateful.items()))
            return set(stateful.values()) == {2} and all_at_work(list(members.values()), TASKS)

        until(is_over, "each to have two stateful tasks", probing_s * 4 + LIMIT_S, pause_s=0.5)
    balanced_s = time.time() - joins_at
    time.sleep(3)
    with report.step("input ends, all is counted"):
        feed.stop()
        counts.wait_total(feed.total)
        counts.settle()
    exactness = counts.exactness(feed.expected)
    counts.close()
    gaps = _without_active(hosts, joins_at)
    report.table(
        "Stateful tasks that moved: from the last sign of the old active to the new one running",
        ("task", "seconds", "of a copy", "restored from its changelog"),
        [(task, f"{gap.seconds:.3f}", gap.kind, gap.offsets) for task, gap in gaps.items()],
    )
    with report.step("closing"):
        for member in members.values():
            member.close()
    for host in hosts.values():
        host.kill()
    return Joined(balanced_s, len(gaps), max(gap.seconds for gap in gaps.values()), exactness)


def _must_be_whole(report: Report, joined: Joined) -> None:
    report.must(joined.exactness.is_exact, str(joined.exactness))
    report.must(joined.moved >= MOVED_AT_LEAST, f"{joined.moved} stateful tasks moved, at least {MOVED_AT_LEAST} have to")


@dataclass(frozen=True, slots=True)
class Gap:
    seconds: float
    kind: str
    offsets: str


def _without_active(hosts: Mapping[str, Host], since_s: float) -> dict[str, Gap]:
    """By task: from its closing, or its becoming a standby, to its running elsewhere; the longest where it moved twice."""
    went: list[tuple[float, str]] = []
    ran: list[tuple[float, str, str]] = []
    restored: dict[str, str] = {}
    for host in hosts.values():
        for name in ("task-closed", "task-demoted"):
            went += [(event.at_s, event.fields["task"]) for event in host.events(name, since_s)]
        promoted = {event.fields["task"] for event in host.events("standby-promoted", since_s)}
        for event in host.events("task-running", since_s):
            task = event.fields["task"]
            ran.append((event.at_s, task, "a warm-up" if task in promoted else "nothing here before"))
        restored |= {e.fields["task"]: f"{e.fields['offsets']} of {e.fields['to']}" for e in host.events("restored", since_s)}
    gaps: dict[str, Gap] = {}
    for began, task in sorted(went):
        after = sorted((at, kind) for at, other, kind in ran if other == task and at >= began)
        if task.startswith("1_") and after and after[0][0] - began > gaps.get(task, Gap(0.0, "", "")).seconds:
            gaps[task] = Gap(after[0][0] - began, after[0][1], restored.get(task, "-"))
    return dict(sorted(gaps.items()))


# --- part C ------------------------------------------------------------------------------------------------------------


def _promotion(report: Report, scene: Scene, probing_s: int) -> None:
    report.headline(f"C. Promotion by probing, and when caught up: {_LOAD}, probing every {probing_s} s")
    ways = {"at the next probing rebalance": "false", "when caught up": "true"}
    found: dict[str, Joined] = {}
    for number, (way, is_asked) in enumerate(ways.items()):
        report.say(f"promoted {way}")
        found[way] = _under_load(
            report, scene, f"promoted-{number}", probing_s=probing_s, tidemill_promote_when_caught_up=is_asked
        )
    rows = [(way, f"{one.balanced_s:.1f} s", one.moved, f"{one.longest_gap_s:.2f} s") for way, one in found.items()]
    columns = ("a warm-up is promoted", "balanced after", "stateful tasks moved", "longest without an active")
    report.table("From the start of the third instance until each has as many stateful tasks", columns, rows)
    for one in found.values():
        _must_be_whole(report, one)
    by_probing, at_once = (one.balanced_s for one in found.values())
    report.must(at_once < by_probing, f"balanced after {at_once:.1f} s, by probing after {by_probing:.1f} s")


if __name__ == "__main__":
    sys.exit(run(main))
