"""How fast windows, sessions, joins and a processor work off waiting records, compared with Kafka Streams.

    python benchmarks/operators.py [--records 1000000] [--programs tumbling_count,...] [--systems tidemill,kafka-streams]

Each program runs on a broker of its own, four partitions and two threads, exactly once, each system with its defaults. A run
begins just before the process is started and ends when the group's committed offsets have reached the inputs' ends and nothing
more is written: what a repartition topic holds comes later. Rates of the whole run have the start of the process in them; those
of the second half, from when half of the records were committed, do not. All output is compared with what the records must give
(``operator_inputs``). Prints a table in Markdown, Tidemill's rate and CPU time by Kafka Streams', and one JSON line; exits 1 if a
run failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from operator_inputs import KEYS, PROGRAMS, Input, check, inputs, keeps_latest, topics_of
from process_watch import ProcessWatch
from systems import HERE, TIDEMILL, Instance, Start, System, kafka_streams_settings

from tidemill.embedded.broker import EmbeddedBroker
from tidemill.embedded.jars import fetch_bundle
from tidemill.embedded.java import find_java
from tidemill.errors import EnvironmentProblem

PARTITIONS, THREADS = 4, 2
_APPLICATION = "operators"
_LIMIT_S = 300.0
_POLL_S = 0.05
_QUIET_S = 8.0
"""As long as this nothing more was written: the run has ended with the last record."""
_READ_S = 5.0
_LATE = 0.8
"""Where more than this was committed at once, the second half's rate is not told."""
_CALL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """``first_commit_s``: from the start of the process to the first records that count. The second half's figures are None
    where it was committed at once. ``load``: of the machine's last minute, before."""

    program: str
    system: str
    seconds: float
    first_commit_s: float
    records_per_s: float
    cpu_us: float
    half_records_per_s: float | None
    half_cpu_us: float | None
    broker_cpu_us: float
    peak_pss_mib: float
    output_records: int
    output: str
    load: float


def tidemill_on(program: str) -> System:
    def command(start: Start) -> list[str]:
        words = TIDEMILL.command(start)
        at = words.index("run") + 1
        return [*words[:at], str(HERE / "operator_programs" / f"{program}.py"), *words[at + 1 :]]

    return System(name="Tidemill", command=command, read_count=TIDEMILL.read_count)


def kafka_streams_on(program: str) -> System:
    def command(start: Start) -> list[str]:
        properties = start.folder / "application.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in kafka_streams_settings(start).items()))
        bundle = fetch_bundle("kafka-streams", environ=os.environ)
        java, source = _java_with_a_compiler(), str(HERE / "OperatorPrograms.java")
        return [java, "-Xmx1g", "-cp", bundle.classpath, source, program, str(properties)]

    return System(name="Kafka Streams", command=command, read_count=TIDEMILL.read_count)


SYSTEMS = {"tidemill": tidemill_on, "kafka-streams": kafka_streams_on}


def measure(system: System, program: str, records: int, folder: Path) -> Measured:
    """Raises RuntimeError: the process has ended, or the run has not after a while."""
    with EmbeddedBroker(environ=os.environ) as broker:
        servers = broker.bootstrap_servers
        make_topics(servers)
        produce(servers, inputs(program, records))
        load = os.getloadavg()[0]
        with closing(_Group(servers, program)) as group:
            began = time.time()
            instance = Instance(system, _start(servers, folder))
            try:
                with ProcessWatch([instance.pid]) as watch, ProcessWatch([broker.pid]) as of_broker:
                    steps = _watch(group, instance, began, system)
                    ended = steps[-1][0]
            finally:
                instance.stop()
        output, count = _output(servers, program)
    half_at, at_half = next(step for step in steps if 2 * step[1] >= group.total)
    if at_half > _LATE * group.total:
        half_at, at_half = ended, group.total  # what is left says nothing
    rest = records * (group.total - at_half) / group.total
    return Measured(
        program=program,
        system=system.name,
        seconds=ended - began,
        first_commit_s=next(at for at, count in steps if count) - began,
        records_per_s=records / (ended - began),
        cpu_us=watch.cpu_s_at(ended) / records * 1e6,
        half_records_per_s=rest / (ended - half_at) if rest else None,
        half_cpu_us=(watch.cpu_s_at(ended) - watch.cpu_s_at(half_at)) / rest * 1e6 if rest else None,
        broker_cpu_us=of_broker.cpu_s_at(ended) / records * 1e6,
        peak_pss_mib=watch.peak_pss_bytes / 2**20,
        output_records=count,
        output=str(check(program, records, output)),
        load=load,
    )


def _start(servers: str, folder: Path) -> Start:
    return Start(servers=servers, application_id=_APPLICATION, folder=folder, threads=THREADS)


def make_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("left", "right", "out")]).values():
        made.result(_CALL_S)


def produce(servers: str, records: Iterable[Input]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,  # each record once, in order, however busy the machine is
            "queue.buffering.max.messages": 2_000_000,
            "partitioner": "murmur2",
            "log_level": 0,
        }
    )
    for topic, key, value, timestamp in records:
        while True:
            try:
                producer.produce(topic, value, key, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(_LIMIT_S):
        raise RuntimeError(f"the input could not be written within {_LIMIT_S:.0f} s")


def _java_with_a_compiler() -> str:
    """The peer's programs are compiled as they start, and a package's Java has no compiler."""
    found = [find_java(os.environ).path, *(Path(path).resolve() for path in [shutil.which("java")] if path)]
    for java in found:
        if java.with_name("javac").exists():
            return str(java)
    told = ", ".join(map(str, found))
    raise EnvironmentProblem(f"no javac next to {told}: set JAVA_HOME to a JDK, or leave Kafka Streams out (--systems tidemill)")


class _Group:
    """How much of the inputs the application's group has committed."""

    def __init__(self, servers: str, program: str) -> None:
        # Uncommitted: else each question would wait for the transactions that are open.
        settings = {"group.id": _APPLICATION, "isolation.level": "read_uncommitted", "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": servers, **settings})
        self._asked = [TopicPartition(topic, number) for topic in topics_of(program) for number in range(PARTITIONS)]
        ends = [self._consumer.get_watermark_offsets(at, _CALL_S) for at in self._asked]
        self.total = sum(high for _, high in ends)

    def committed(self) -> int:
        with suppress(KafkaException):  # a group that is just being made has no coordinator for a moment
            return sum(max(at.offset, 0) for at in self._consumer.committed(self._asked, _CALL_S) if at.error is None)
        return 0

    def written(self) -> int:
        """Where the topics that the application writes end, all together."""
        own = [name for name in self._consumer.list_topics(timeout=_CALL_S).topics if name.startswith(f"{_APPLICATION}-")]
        at = [TopicPartition(topic, number) for topic in (*own, "out") for number in range(PARTITIONS)]
        return sum(self._consumer.get_watermark_offsets(each, _CALL_S)[1] for each in at)

    def close(self) -> None:
        self._consumer.close()


def _watch(group: _Group, instance: Instance, began: float, system: System) -> list[tuple[float, int]]:
    """(when, records committed by then), to the end."""
    steps: list[tuple[float, int]] = []
    written = -1
    while True:
        count = group.committed()
        if count < group.total:
            steps.append((time.time(), count))
        elif (now := group.written()) != written:
            written = now
            steps.append((time.time(), count))
        elif time.time() - steps[-1][0] > _QUIET_S:
            return steps
        instance.check()
        if time.time() - began > _LIMIT_S:
            log = instance.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{system.name}: {count} of {group.total} after {_LIMIT_S:.0f} s: {log}")
        time.sleep(_POLL_S)


def _output(servers: str, program: str) -> tuple[Mapping[tuple[bytes, bytes], int], int]:
    """(how often each key and value came out, or the last value of each key; how many records)."""
    settings = {"group.id": "none", "isolation.level": "read_committed", "log_level": 0, "enable.partition.eof": True}
    latest: dict[bytes, bytes | None] = {}
    every: Counter[tuple[bytes, bytes]] = Counter()
    count, at_end = 0, set[int | None]()
    with closing(Consumer({"bootstrap.servers": servers, **settings, "enable.auto.commit": False})) as consumer:
        consumer.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
        while len(at_end) < PARTITIONS:
            messages = consumer.consume(100_000, _READ_S)
            if not messages:
                raise RuntimeError(f"the output could not be read to its end: {count} records")
            for message in messages:
                if message.error() is not None:
                    at_end.add(message.partition())
                    continue
                count += 1
                key, value = message.key(), message.value()
                if key is None:
                    raise RuntimeError("the output holds a record without a key, which no program here writes")
                if keeps_latest(program):
                    latest[key] = value
                else:
                    every[key, b"" if value is None else value] += 1  # which no program wants
    if keeps_latest(program):
        return {(key, value): 1 for key, value in latest.items() if value is not None}, count
    return every, count


_HEAD = (
    "| program | system | start to first commit s | whole run s | records/s | 2nd half records/s | CPU us/record "
    "| 2nd half CPU us | broker CPU us | PSS MiB | output records | output | load before |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def _line(found: Measured) -> str:
    half = "" if found.half_records_per_s is None else f"{found.half_records_per_s:,.0f}"
    half_cpu = "" if found.half_cpu_us is None else f"{found.half_cpu_us:.2f}"
    return (
        f"| {found.program} | {found.system} | {found.first_commit_s:.1f} | {found.seconds:.1f} | {found.records_per_s:,.0f} "
        f"| {half} | {found.cpu_us:.2f} | {half_cpu} | {found.broker_cpu_us:.2f} | {found.peak_pss_mib:.0f} "
        f"| {found.output_records:,} | {found.output} | {found.load:.1f} |"
    )


def compared(results: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """By program: Tidemill's figures as a multiple of Kafka Streams'."""
    found: dict[str, dict[str, float]] = {}
    for ours in results:
        theirs = next((r for r in results if r.program == ours.program and r.system == "Kafka Streams"), None)
        if ours.system != "Tidemill" or theirs is None:
            continue
        ratios = found[ours.program] = {}
        for name in ("records_per_s", "cpu_us", "half_records_per_s", "half_cpu_us"):
            one, other = getattr(ours, name), getattr(theirs, name)
            if one and other:
                ratios[name] = round(one / other, 3)
    return found


def main(arguments: Sequence[str]) -> int:
    faulthandler.enable()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--json", metavar="FILE", help="the JSON line goes there too")
    chosen = parser.parse_args(arguments)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}"
    print(f"{chosen.records:,} records, {KEYS:,} keys, {PARTITIONS} partitions, {THREADS} threads; {machine}\n")
    print(_HEAD, flush=True)
    results: list[Measured] = []
    failed: list[str] = []
    for program in chosen.programs.split(","):
        for name in chosen.systems.split(","):
            system = SYSTEMS[name](program)
            try:
                with tempfile.TemporaryDirectory(prefix="operators-", ignore_cleanup_errors=True) as folder:
                    results.append(measure(system, program, chosen.records, Path(folder)))
                print(_line(results[-1]), flush=True)
            except RuntimeError as problem:
                failed.append(f"{program}, {system.name}: {problem}")
                print(f"| {program} | {system.name} | failed |", flush=True)
    ratios = compared(results)
    for program, multiples in ratios.items():
        print(f"\n{program}, by Kafka Streams': " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in multiples.items()))
    for text in failed:
        print(f"\nFAILED {text}")
    line = json.dumps(_as_json(results, ratios, failed, chosen.records, machine))
    print("\n" + line, flush=True)
    if chosen.json:
        Path(chosen.json).write_text(line + "\n")
    return 1 if failed else 0


def _as_json(
    results: Sequence[Measured], ratios: Mapping[str, Any], failed: Sequence[str], records: int, machine: str
) -> dict[str, Any]:
    return {
        "benchmark": "operators",
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(["benchmarks/operators.py", *sys.argv[1:]]),
        "machine": machine,
        "records": records,
        "keys": KEYS,
        "partitions": PARTITIONS,
        "threads": THREADS,
        "results": [dataclasses.asdict(found) for found in results],
        "tidemill_by_kafka_streams": ratios,
        "failed": list(failed),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
