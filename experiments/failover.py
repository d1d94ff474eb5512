"""kill -9 of one of three instances: how long its partitions are without results, with a standby and without, as state grows.

    make experiment-failover        # or: .venv/bin/python experiments/failover.py [--keys 20000,1000000] [--no-java]

The word count on a real broker, exactly once, session timeout 6 s; lines flow all the time. The victim has a process and a JVM
of its own, whose whole tree is killed at once; the two that stay share a Spark driver process. A partition of the dead one
produces again when a count that was committed after the kill arrives from it. What comes before the broker's session timeout is
over can't be helped by an instance, so the time beyond it counts. With a standby, the dead one's words are read all the time over
HTTP from the two that stay, with a bound on staleness, and never older than an answer before. Kafka Streams, three JVMs, goes
through the same without reads, if its jars can be had.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from console import Report, run
from instances import INPUT, OUTPUT, Instance, Scene, all_at_work, until
from java_streams import LEAST_PROBING_INTERVAL_MS, JavaStreams
from readers import Readers, Readings
from traffic import Counts, Exactness, Feed

from tidemill.embedded.broker_plan import free_port
from tidemill.errors import EnvironmentProblem
from tidemill.kafka.admin.groups import describe_group

PARTITIONS = 6
TASKS = 2 * PARTITIONS
SESSION_TIMEOUT_S = 6.0
TARGET_S = 1.5
LINES_PER_S = 60.0
KEYS = (20_000, 200_000, 1_000_000)
JAVA_KEYS = 200_000
"""Kafka Streams is shown at one size: three more JVMs take their time."""
REPARTITION = "streams-wordcount-counts-store-repartition"
STORE = "counts-store"
MAX_STALENESS_MS = 2_000
_ASKED_WORDS = 300
_READ_LIMIT_S = 10.0
JAVA_PROCESSES = {
    "a": "4b61083e-57d0-457d-951f-d06556c148ca",
    "b": "7156cef1-307e-49c0-a5bb-0f11d26a4933",
    "victim": "bbb83e43-b1af-4b2d-a60a-94a7091684d0",
}
_RESTORED = re.compile(r"Finished restoring changelog \S+ to store \S+ with a total number of (\d+) records")
_WORDS_A_LINE = 50
_STEADY_S = 3.0
_LOAD_LIMIT_S = 240.0
_BACK_LIMIT_S = 90.0
_SETTINGS = {
    "heartbeat.interval.ms": 500,
    "session.timeout.ms": int(SESSION_TIMEOUT_S * 1e3),
    "probing.rebalance.interval.ms": 2_000,
    # Within the default of 10,000 an instance that has nothing of a small state counts as caught up, as its standby does.
    "acceptable.recovery.lag": 1_000,
    # Copies that nobody is assigned would make the next takeover quick without a standby.
    "state.cleanup.delay.ms": 1_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One kill. ``beyond_s``: from the end of the session timeout to the first new count of the dead one's slowest partition."""

    system: str
    standbys: int
    keys: int
    partitions: int
    beyond_s: float
    restored: int
    exactness: Exactness
    readings: Readings | None = None
    """Of the dead one's words, from before the kill until after the takeover."""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--keys", type=_sizes, default=KEYS, help="sizes of the state, ascending, with commas between")
    asked.add_argument("--no-java", action="store_true", help="without Kafka Streams beside it")
    asked.add_argument("--folder", type=Path, default=Path("/tmp/tidemill-failover"), help="for state and logs; emptied first")
    options = asked.parse_args()
    report = Report("Failover: kill -9 of one of three instances")
    report.say(
        f"3 instances of the word count, 1 thread each, {TASKS} tasks, {LINES_PER_S:.0f} lines of 6 words a second, "
        f"exactly_once_v2, session timeout {SESSION_TIMEOUT_S:.0f} s, heartbeats each {_SETTINGS['heartbeat.interval.ms']} ms"
    )
    kills: list[Failover] = []
    for standbys in (1, 0):
        kills += _tidemill(report, options.folder, standbys, options.keys)
    if not options.no_java:
        for standbys in (1, 0):
            kills += _kafka_streams(report, options.folder, standbys, min(JAVA_KEYS, max(options.keys)))
    _tell(report, kills)
    return report.end()


def _sizes(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(","))
    if not found or list(found) != sorted(found) or found[0] < 1:
        raise argparse.ArgumentTypeError("expected whole numbers above 0, ascending")
    return found


# --- Tidemill ------------------------------------------------------------------------------------------------------------


def _tidemill(report: Report, folder: Path, standbys: int, sizes: Sequence[int]) -> list[Failover]:
    report.headline(f"Tidemill, num.standby.replicas={standbys}")
    settings = {**_SETTINGS, "num.standby.replicas": standbys}
    kills = []
    with Scene(folder / f"tidemill-{standbys}") as scene:
        host = scene.host("survivors", slots=2)
        survivors = [host.instance(name, _served(settings)) for name in ("a", "b")]
        victim = scene.own("victim", settings=_served(settings))
        load = _Load(scene.servers)
        try:
            with report.step("three instances start"):
                for instance in (*survivors, victim):
                    instance.start(wait=False)
                until(lambda: all_at_work([*survivors, victim], TASKS), "all tasks at work", pause_s=0.3)
            for keys in sizes:
                kills.append(_kill(report, load, survivors, victim, standbys, keys))
        finally:
            load.close()
    return kills


def _kill(report: Report, load: _Load, survivors: list[Instance], victim: Instance, standbys: int, keys: int) -> Failover:
    everyone = [*survivors, victim]
    if not victim.host.is_running:
        with report.step("the victim comes back"):
            victim.start(wait=False)
            until(lambda: all_at_work(everyone, TASKS) and bool(_stateful(victim)), "it to be given tasks", pause_s=0.3)
    with report.step(f"{keys:,} words are counted"):
        load.grow_to(keys)
        if standbys:
            until(lambda: _is_mirrored(everyone), "standbys to have caught up", pause_s=0.3)
    load.feed.start()
    dead = _stateful(victim)
    servers = [instance.look()["server"] for instance in survivors]
    words = _words_in(servers[0], dead, keys) if standbys else []
    with Readers(STORE, words, max_staleness_ms=MAX_STALENESS_MS) if standbys else contextlib.nullcontext() as readers:
        if readers is not None:
            for server in servers:
                readers.into_service(server)
        with report.step("killed, and waited for"):
            time.sleep(_STEADY_S)
            killed_s = time.time()
            victim.host.kill()
            beyond_s = load.until_back(dead, killed_s)
    restored = sum(
        int(event.fields["offsets"])
        for event in survivors[0].host.events("restored", killed_s)
        if int(event.fields["task"].rpartition("_")[2]) in dead
    )
    exactness = load.finish()
    until(lambda: all_at_work(survivors, TASKS), "the others to have all tasks", pause_s=0.3)
    found = Failover(
        system="Tidemill",
        standbys=standbys,
        keys=keys,
        partitions=len(dead),
        beyond_s=beyond_s,
        restored=restored,
        exactness=exactness,
        readings=None if readers is None else readers.readings,
    )
    return _told(report, found)


def _served(settings: Mapping[str, object]) -> dict[str, object]:
    return {**settings, "tidemill.http.listen": f"127.0.0.1:{free_port()}"}


def _words_in(server: str, partitions: Sequence[int], keys: int) -> list[str]:
    """Words that are counted in these partitions, of the first ones."""
    found = []
    host, _, port = server.rpartition(":")
    for number in range(min(keys, _ASKED_WORDS)):
        connection = http.client.HTTPConnection(host, int(port), timeout=_READ_LIMIT_S)
        with contextlib.closing(connection):
            connection.request("GET", f"/stores/{STORE}/state{number}")
            if json.load(connection.getresponse())["partition"] in partitions:
                found.append(f"state{number}")
    return found


def _told(report: Report, kill: Failover) -> Failover:
    """At once: what follows takes minutes, and may be interrupted."""
    report.say(
        f"    {kill.beyond_s:.2f} s beyond the session timeout, {kill.restored:,} restored, counts {kill.exactness}; "
        f"load of the machine {os.getloadavg()[0]:.1f}"
    )
    if kill.readings is not None:
        report.say(f"    {_of_reads(kill.readings)}{''.join(f'; {failure}' for failure in kill.readings.failures)}")
    return kill


def _of_reads(readings: Readings) -> str:
    return (
        f"{readings.requests} reads of the dead one's words, {readings.failed} failed; p99 {readings.p99_ms:.0f} ms, the longest "
        f"{readings.longest_ms:.0f} ms"
    )


def _stateful(instance: Instance) -> list[int]:
    """The partitions of the counts that it runs."""
    running = [task for task, phase in instance.look()["tasks"].items() if phase == "running"]
    return sorted(int(task.removeprefix("1_")) for task in running if task.startswith("1_"))


def _is_mirrored(instances: list[Instance]) -> bool:
    copies = {task: lag for instance in instances for task, lag in instance.look()["standbys"].items()}
    return len(copies) == PARTITIONS and all(lag is not None and lag < 100 for lag in copies.values())


# --- Kafka Streams ---------------------------------------------------------------------------------------------------------


def _kafka_streams(report: Report, folder: Path, standbys: int, keys: int) -> list[Failover]:
    """None, and a sentence, where its jars can't be had."""
    report.headline(f"Kafka Streams, num.standby.replicas={standbys}")
    application = "streams-wordcount"
    settings = {
        **_SETTINGS,
        "num.standby.replicas": standbys,
        "probing.rebalance.interval.ms": LEAST_PROBING_INTERVAL_MS,
    }
    with Scene(folder / f"kafka-streams-{standbys}") as scene:
        instances = [
            JavaStreams(scene.folder / name, scene.servers, application, process_id=process, settings=settings)
            for name, process in JAVA_PROCESSES.items()
        ]
        load = _Load(scene.servers)
        try:
            with report.step("three instances start"):
                for instance in instances:
                    instance.start()
                everywhere = "all of them to have tasks"
                until(lambda: len(_owners(scene.servers, application)) == len(instances), everywhere, pause_s=0.3)
            with report.step(f"{keys:,} words are counted"):
                load.grow_to(keys)
                time.sleep(_STEADY_S)  # for standbys: nothing outside tells how far they are
            load.feed.start()
            with report.step("killed, and waited for"):
                time.sleep(_STEADY_S)
                dead = _owners(scene.servers, application)[JAVA_PROCESSES["victim"]]
                killed_s = time.time()
                instances[-1].kill()
                beyond_s = load.until_back(dead, killed_s)
            restored = sum(_restored_since(killed_s, one.log) for one in instances[:-1])
            exactness = load.finish()
        except EnvironmentProblem as problem:
            report.say(f"left out: {problem}")
            return []
        finally:
            load.close()
            for instance in instances:
                instance.kill()
    found = Failover(
        system="Kafka Streams",
        standbys=standbys,
        keys=keys,
        partitions=len(dead),
        beyond_s=beyond_s,
        restored=restored,
        exactness=exactness,
    )
    return [_told(report, found)]


def _restored_since(at_s: float, log: str) -> int:
    """Records of changelogs that an instance has restored for active tasks."""
    lines = (line for line in log.splitlines() if _RESTORED.search(line) and float(line.split(" ", 1)[0]) >= at_s)
    return sum(int(found[1]) for line in lines if (found := _RESTORED.search(line)) is not None)


def _owners(servers: str, application: str) -> dict[str, list[int]]:
    """Process id -> the partitions of the counts that it has."""
    group = describe_group({"bootstrap_servers": servers}, application, limit_s=30)
    found: dict[str, list[int]] = {}
    for member in group.members if group is not None else ():
        process = member.client_id.removeprefix(f"{application}-").partition("-StreamThread-")[0]
        held = [tp.partition for tp in member.assignment if tp.topic.endswith("-repartition")]
        if held:
            found.setdefault(process, []).extend(held)
    return found


# --- what goes in and comes out --------------------------------------------------------------------------------------------


class _Load:
    """Lines in, counts out; words of a size, each once, and a trickle of few words during a kill."""

    def __init__(self, servers: str) -> None:
        self.feed = Feed(servers, INPUT, partitions=PARTITIONS, seed=1, lines_per_s=LINES_PER_S)
        self.counts = Counts(servers, OUTPUT, partitions=PARTITIONS)
        self._words = 0

    def grow_to(self, words: int) -> None:
        """The state has so many words; all of them are counted."""
        for first in range(self._words, words, _WORDS_A_LINE):
            self.feed.send_line(" ".join(f"state{word}" for word in range(first, min(first + _WORDS_A_LINE, words))))
        self._words = max(self._words, words)
        self.feed.stop()
        self.counts.wait_total(self.feed.total, _LOAD_LIMIT_S)

    def until_back(self, partitions: Sequence[int], killed_s: float) -> float:
        """Seconds beyond the session timeout until each of these partitions has given a count that was made after the kill."""
        after_s = killed_s + SESSION_TIMEOUT_S / 2  # what was on its way to us at the kill has long come by then

        def first(partition: int) -> float | None:
            return next((at for at in self.counts.arrived[partition] if at > after_s), None)

        until(lambda: all(first(partition) for partition in partitions), "the dead one's partitions to produce", _BACK_LIMIT_S)
        return max(first(partition) or 0.0 for partition in partitions) - killed_s - SESSION_TIMEOUT_S

    def finish(self) -> Exactness:
        """All that was sent is counted; whether rightly."""
        self.feed.stop()
        self.counts.wait_total(self.feed.total)
        self.counts.settle()
        return self.counts.exactness(self.feed.expected)

    def close(self) -> None:
        self.counts.close()


# --- what came of it -------------------------------------------------------------------------------------------------------


def _tell(report: Report, kills: list[Failover]) -> None:
    report.headline("From the end of the session timeout to the first new count of the slowest partition of the dead")
    rows = [
        (kill.system, kill.standbys, f"{kill.keys:,}", kill.partitions, f"{kill.beyond_s:.2f} s",
         f"{kill.restored:,}", kill.exactness)
        for kill in kills
    ]  # fmt: skip
    report.table("", ("system", "standbys", "keys", "partitions", "beyond", "restored", "counts"), rows)
    for kill in kills:
        report.must(kill.exactness.is_exact, f"{kill.system}, {kill.standbys} standbys, {kill.keys:,} keys: {kill.exactness}")
    ours = [kill for kill in kills if kill.system == "Tidemill"]
    for kill in ours:
        if kill.standbys:
            report.target(
                kill.beyond_s <= TARGET_S, f"with a standby, {kill.keys:,} keys: {kill.beyond_s:.2f} s, at most {TARGET_S} s"
            )
        if kill.readings is not None:
            report.must(not kill.readings.failed, f"{kill.keys:,} keys: {_of_reads(kill.readings)}")
    with_one, without = [[kill for kill in ours if kill.standbys == count] for count in (1, 0)]
    if len(without) > 1:
        grown, kept = without[-1].beyond_s - without[0].beyond_s, with_one[-1].beyond_s - with_one[0].beyond_s
        sizes = f"from {without[0].keys:,} to {without[-1].keys:,} keys"
        report.target(grown > max(kept, 0.0), f"without a standby it grows {sizes}: by {grown:.2f} s")
        report.target(kept <= 1.0, f"with one it does not: by {kept:.2f} s, at most 1 s")


if __name__ == "__main__":
    sys.exit(run(main))
