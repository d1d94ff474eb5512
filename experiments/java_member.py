"""A Java Kafka Streams instance and a Tidemill instance in one group: a team leaves the JVM, and could go back, without stopping.

    make experiment-java                            # or: .venv/bin/python experiments/java_member.py [--folder DIR]

Lines flow in all the time. Kafka's own WordCountDemo runs alone and has state; a Tidemill instance with the same program and the
same application.id joins, is given copies and then tasks by Java's leader, and restores them from what Java wrote; the Java
instance is stopped and Tidemill carries on. Then the other way round: a new Java instance with an empty directory joins, is given
tasks by Tidemill's leader and restores what Tidemill wrote, until it is stopped as well. The counts have to be exact in the end.
The logs and the state are left in --folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from console import Report, run
from group_view import MemberView, members_of, take_out
from instances import INPUT, OUTPUT, Instance, Scene, all_at_work, until
from java_streams import LEAST_PROBING_INTERVAL_MS, VERSION, JavaStreams
from rounds import Assignment, assignments, shown
from traffic import Counts, Exactness, Feed

from tidemill.assignment.model import LATEST_OFFSET
from tidemill.cli.application_file import load_application
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.topology_metadata import TopologyMetadata, topology_metadata

PROGRAM = Path(__file__).parent / "java_wordcount.py"
APPLICATION = "streams-wordcount"
PARTITIONS = 6
TASKS = 2 * PARTITIONS
STATE_WORDS, LINES_PER_S = 90_000, 200.0
PROCESS_IDS = {
    "Java": "4b61083e-57d0-457d-951f-d06556c148ca",
    "Tidemill": "7156cef1-307e-49c0-a5bb-0f11d26a4933",
    "2nd Java": "bbb83e43-b1af-4b2d-a60a-94a7091684d0",
}
NAMES = {process: name for name, process in PROCESS_IDS.items()}
COMMON = {"num.standby.replicas": 1, "acceptable.recovery.lag": 2_000}
"""Both sides have to agree on these, since either may lead."""
TIDEMILL = {**COMMON, "probing.rebalance.interval.ms": 5_000}
STOPS = "the Java instance stops and leaves the group"
STEADY_S = 3.0
MOVE_LIMIT_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description="A Java Kafka Streams instance and a Tidemill instance in one group.")
    parser.add_argument(
        "--folder", type=Path, default=Path("/tmp/tidemill-experiment-java"), help="the logs and the state; emptied first"
    )
    folder: Path = parser.parse_args().folder
    report = Report(f"Kafka Streams {VERSION} (Java) and Tidemill in one group")
    with Scene(folder) as scene, ExitStack() as javas:
        first, second = (
            javas.enter_context(
                JavaStreams(scene.folder / own, scene.servers, APPLICATION, process_id=PROCESS_IDS[name], settings=COMMON)
            )
            for own, name in (("java", "Java"), ("java-2", "2nd Java"))
        )
        tidemill = scene.own("tidemill", PROGRAM, TIDEMILL, process_id=PROCESS_IDS["Tidemill"])
        _Move(report, scene, first, second, tidemill).run_all()
    return report.end()


@dataclass
class _Move:
    """The steps in their order, and what is kept of them for the tables."""

    report: Report
    scene: Scene
    java: JavaStreams
    second: JavaStreams
    tidemill: Instance
    silences: list[tuple[str, str, str]] = field(default_factory=list)
    began_s: float = 0.0

    def run_all(self) -> None:
        report = self.report
        report.say(
            f"WordCount, {PARTITIONS} partitions, {LINES_PER_S:.0f} lines a second, exactly_once_v2, one thread each, one "
            f"standby, acceptable.recovery.lag {COMMON['acceptable.recovery.lag']}"
        )
        self.feed = Feed(self.scene.servers, INPUT, partitions=PARTITIONS, seed=4, lines_per_s=LINES_PER_S)
        with report.step(f"the Java instance starts alone and counts {STATE_WORDS:,} words"):
            self._java_alone()
        report.headline("A. Tidemill joins; Java leads")
        with report.step("Tidemill starts and is given copies, then tasks") as tell:
            self._tidemill_joins(tell)
        self._show_members()
        self._show_topics()
        with report.step("the Java instance is stopped and leaves the group; Tidemill carries on alone"):
            written_by_java = self._java_is_stopped(self.java, STOPS, leaver="Java")
        report.headline("B. A new Java instance with an empty directory joins; Tidemill leads")
        with report.step("the 2nd Java instance starts and is given copies, then tasks") as tell:
            written_by_both = self._java_comes_back(tell)
        copied = self._show_members()
        with report.step("it is stopped as the demo is, without leaving; Tidemill carries on alone"):
            self._java_is_stopped(self.second, "the 2nd Java instance stops, and its session ends")
        with report.step("input ends, all is counted"):
            time.sleep(STEADY_S)
            self.feed.stop()
            self.counts.wait_total(self.feed.total)
            self.counts.settle()
        given = self._show_rounds()
        copied_by = self._show_restored(written_by_java, written_by_both, copied)
        report.table(
            "The longest time between two counts of one output partition", ("while", "seconds", "just before"), self.silences
        )
        exact = self.counts.exactness(self.feed.expected)
        self.counts.close()
        report.must(exact.is_exact, str(exact))
        report.must(exact.not_rising == 0, f"{exact.not_rising} counts did not exceed the one before: nothing was counted twice")
        self._show_summary(given, copied_by, exact)
        with report.step("closing"):
            self.tidemill.close()

    # --- steps -----------------------------------------------------------------------------------------------------

    def _java_alone(self) -> None:
        for number in range(0, STATE_WORDS, 50):
            self.feed.send_line(" ".join(f"state{word}" for word in range(number, number + 50)))
        self.java.start()
        self.counts = Counts(self.scene.servers, OUTPUT, partitions=PARTITIONS)
        self.counts.wait_total(self.feed.total)
        self.feed.start()
        time.sleep(3 * STEADY_S)
        self.began_s = time.time()

    def _tidemill_joins(self, tell: Callable[[str], None]) -> None:
        with self._silence("Tidemill joins and is given its tasks"):
            self.tidemill.start(wait=False)
            limit_s = MOVE_LIMIT_S + LEAST_PROBING_INTERVAL_MS / 1e3
            until(lambda: self._is_shared("Java", tell), "tasks of both kinds on both instances", limit_s, pause_s=0.5)

    def _java_is_stopped(self, java: JavaStreams, what: str, leaver: str | None = None) -> dict[str, int]:
        """The changelogs' ends when it had gone, by partition.

        The demo calls ``close()``, after which its session has to end. ``leaver`` is taken out of the group, as
        ``close(CloseOptions)`` of an application of one's own does.
        """
        member_id = None if leaver is None else self._told()[leaver].member_id
        with self._silence(what):
            java.stop()
            if member_id is not None:
                take_out(self.scene.servers, APPLICATION, member_id)
            ends = self._changelog_ends()
            until(lambda: all_at_work([self.tidemill], TASKS), "Tidemill to run all tasks", MOVE_LIMIT_S)
        return ends

    def _java_comes_back(self, tell: Callable[[str], None]) -> dict[str, int]:
        """The changelogs' ends when it came."""
        time.sleep(STEADY_S)
        ends = self._changelog_ends()
        with self._silence("the 2nd Java instance joins and is given its tasks"):
            self.second.start()
            until(lambda: self._is_shared("2nd Java", tell), "tasks of both kinds on both instances", MOVE_LIMIT_S, pause_s=0.5)
        return ends

    def _is_shared(self, java: str, tell: Callable[[str], None]) -> bool:
        """Each has three of the stateful tasks, running, and copies of the other three."""
        told = self._told()
        if len(told) != 2:
            tell("the group rebalances")
            return False
        half = PARTITIONS // 2
        tell(", ".join(f"{name}: {len(of.active)} tasks, {len(of.standby)} copies" for name, of in sorted(told.items())))
        mine = self.tidemill.look()
        running = [task for task, phase in mine["tasks"].items() if task.startswith("1_") and phase == "running"]
        return len(running) == half and all(
            told[name].of_subtopology(1) == half and len(told[name].standby) == half
            for name in (java, "Tidemill")
        )

    # --- what the brokers and the logs tell --------------------------------------------------------------------------

    def _told(self) -> dict[str, MemberView]:
        """The group by name; empty while it rebalances."""
        return {NAMES[process]: member for process, member in members_of(self.scene.servers, APPLICATION).items()}

    def _changelog(self) -> str:
        (topic,) = (topic for topic in self._topology_metadata().internal_topics.values() if not topic.is_repartition)
        return topic.name

    def _changelog_ends(self) -> dict[str, int]:
        topic = self._changelog()
        ends = self.scene.admin.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
        return {f"1_{partition.partition}": end for partition, end in sorted(ends.items())}

    def _topology_metadata(self) -> TopologyMetadata:
        topology, _ = load_application(str(PROGRAM), {})
        return topology_metadata(topology, APPLICATION)

    def _decided(self) -> list[Assignment]:
        """Without those that decide the same again."""
        kept: list[Assignment] = []
        for one in assignments([self.java.log, self.second.log, self.tidemill.host.log]):
            if not kept or kept[-1].decided != one.decided:
                kept.append(one)
        return kept

    def _silence(self, what: str) -> _Silence:
        return _Silence(what, self.counts, self.silences)

    # --- tables ------------------------------------------------------------------------------------------------------

    def _show_members(self) -> dict[str, MemberView]:
        told = dict(sorted(self._told().items()))
        facts: list[tuple[str, Callable[[MemberView], object]]] = [
            ("says: version, latest it knows", lambda of: f"{of.said.version}, {of.said.latest_supported_version}"),
            ("says: process id", lambda of: of.said.process_id),
            ("says: partitions owned, since generation", lambda of: f"{of.owned}, {of.generation}"),
            *(
                (f"says: offset sum of {task}", lambda of, task=task: _sum(of.said.task_offset_sums.get(task)))
                for task in (TaskId(1, number) for number in range(PARTITIONS))
            ),
            ("is told: version", lambda of: of.told_version),
            ("is told: active", lambda of: " ".join(of.active)),
            ("is told: copies", lambda of: " ".join(of.standby)),
        ]
        rows = [(name, *(tell(of) for of in told.values())) for name, tell in facts]
        self.report.table("The last join", ("", *told), rows, left=1 + len(told))
        return told

    def _show_topics(self) -> None:
        """Made by Java's leader."""
        admin = self.scene.admin
        metadata = self._topology_metadata()
        sizes = admin.partitions(set(metadata.internal_topics))
        for name, wanted in sorted(metadata.internal_topics.items()):
            found = admin.topic_configs(name)
            differing = {key: (found.get(key), value) for key, value in wanted.settings.items() if found.get(key) != value}
            self.report.must(
                sizes[name] == PARTITIONS and not differing,
                f"{name}: {sizes[name]} partitions, {', '.join(f'{k}={v}' for k, v in sorted(wanted.settings.items()))}: "
                + (f"differs from what Tidemill would make: {differing}" if differing else "as Tidemill would make it"),
            )

    def _show_rounds(self) -> tuple[int, int]:
        """How many stateful tasks Tidemill had from Java's leader in the end, and the 2nd Java from Tidemill's."""
        rows: list[tuple[object, ...]] = []
        decided = self._decided()
        for one in decided:
            for line, (name, active, standby) in enumerate(shown(one, NAMES)):
                first = (f"{one.at_s - self.began_s:.1f} s", _leader(one)) if line == 0 else ("", "")
                rows.append((*first, name, active, standby, one.follow_up if line == 0 else ""))
        columns = ("at", "leader", "client", "active", "copies", "next")
        self.report.table("What the leaders decided", columns, rows, left=len(columns))
        given = []
        for leader, follower in (("Java", "Tidemill"), ("Tidemill", "2nd Java")):
            process = PROCESS_IDS[follower]
            led = [one.active[process] for one in decided if _leader(one) == leader and process in one.active]
            given.append(sum(task.startswith("1_") for task in led[-1]) if led else 0)
            self.report.must(
                given[-1] == PARTITIONS // 2, f"{leader} led, and gave {follower} {given[-1]} of the {PARTITIONS} stateful tasks"
            )
        return given[0], given[1]

    def _show_summary(self, given: tuple[int, int], written: tuple[int, int], exact: Exactness) -> None:
        silent_s = next(seconds for what, seconds, _ in self.silences if what == STOPS)
        rows = (
            ("each is given tasks by the other's leader", f"stateful ones: Tidemill {given[0]}, Java {given[1]}"),
            ("each restores what the other wrote", f"offsets that Java alone wrote {written[0]:,}, Tidemill {written[1]:,}"),
            ("Java is stopped, Tidemill carries on", f"{silent_s} s without a count where it took longest"),
            ("counts are exact", str(exact)),
        )
        self.report.table("What it is to show, and what was seen", ("to show", "seen"), rows, left=2)

    def _show_restored(
        self, by_java: Mapping[str, int], by_both: Mapping[str, int], copied: Mapping[str, MemberView]
    ) -> tuple[int, int]:
        """Tidemill's first copies, of what only Java had written; the 2nd Java's, by what it said when it was given its tasks."""
        host = self.tidemill.host
        caught_up: dict[str, int] = {}
        for event in host.events("standby-caught-up"):
            caught_up.setdefault(event.fields["task"], int(event.fields["offsets"]))
        taken = {event.fields["task"]: event.fields["offsets"] for event in host.events("restored", self.began_s)}
        sums = {str(task): total for task, total in copied["2nd Java"].said.task_offset_sums.items()}
        rows = [
            (task, caught_up.get(task, 0), taken.get(task, "-"), end, by_both[task] - end, _sum(sums.get(task)))
            for task, end in sorted(by_java.items())
        ]
        columns = (
            *("task", "copied by Tidemill while only Java wrote", "still to read when it took over", "end when Java had gone"),
            *("written by Tidemill alone", "2nd Java's copy is at"),
        )
        self.report.table(f"Offsets of {self._changelog()}", columns, rows)
        self.report.must(all(caught_up.get(task, 0) > 0 for task in by_java), "Tidemill copied all of what Java had written")
        copied_all = all(sums.get(task, 0) == LATEST_OFFSET or sums.get(task, 0) >= end for task, end in by_both.items())
        self.report.must(copied_all, "the 2nd Java copied all of what Java and Tidemill had written")
        return sum(caught_up.values()), sum(by_both.values()) - sum(by_java.values())


class _Silence:
    """The longest time between two counts of one output partition, of those gaps that touch the block; and of the time before."""

    def __init__(self, what: str, counts: Counts, kept: list[tuple[str, str, str]]) -> None:
        self._what, self._counts, self._kept = what, counts, kept

    def __enter__(self) -> None:
        self._began_s = time.time()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            return
        time.sleep(STEADY_S)
        before = max(self._gaps(self._began_s - STEADY_S, self._began_s), default=0.0)
        longest = max(self._gaps(self._began_s, time.time()), default=0.0)
        self._kept.append((self._what, f"{longest:.2f}", f"{before:.2f}"))

    def _gaps(self, since_s: float, until_s: float) -> Iterator[float]:
        for arrived in self._counts.arrived.values():
            times = list(arrived)
            for earlier, later in zip(times, [*times[1:], time.time()], strict=True):
                if later > since_s and earlier < until_s:
                    yield min(later, time.time()) - earlier


def _sum(total: int | None) -> str:
    if total is None:
        return "-"
    return "runs (-2)" if total == LATEST_OFFSET else str(total)


def _leader(one: Assignment) -> str:
    return next(name for process, name in NAMES.items() if process in one.leader)


if __name__ == "__main__":
    sys.exit(run(main))
