"""How fast windows, sessions and joins work off records that wait for them, beside Kafka Streams.

    python benchmarks/operators.py [--records 400000] [--programs tumbling_count,...] [--systems tidemill,kafka-streams]

Each program runs on a broker of its own, with four partitions and two threads, exactly once, and each system with its defaults.
The clock runs from just before the process is started until the group's committed offsets have reached the inputs' ends. What
comes out is compared between the systems: the last value of each key, or for joins all records. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from process_watch import ProcessWatch
from systems import HERE, TIDEMILL, Instance, Start, System, kafka_streams_settings

from tidemill.ids import TopicPartition
from tidemill.kafka.admin import Admin, TopicSpec
from tidemill.kafka.broker import EmbeddedBroker
from tidemill.kafka.jars import fetch_bundle
from tidemill.kafka.java import find_java

PROGRAMS = ("tumbling_count", "stream_table_join", "stream_stream_join", "session_count")
JOINS = ("stream_table_join", "stream_stream_join")
PARTITIONS, THREADS, KEYS = 4, 2, 20_000
_LIMIT_S = 600.0
_POLL_S = 0.1
Output = dict[tuple[bytes, bytes | None], int] | dict[bytes, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """From the start of the process until all inputs were committed."""

    seconds: float
    cpu_us_per_record: float
    output_records: int
    output: Output


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
        java = find_java(os.environ).path
        return [str(java), "-Xmx1g", "-cp", bundle.classpath, str(HERE / "OperatorPrograms.java"), program, str(properties)]

    return System(name="Kafka Streams", command=command, read_count=TIDEMILL.read_count)


SYSTEMS = {"tidemill": tidemill_on, "kafka-streams": kafka_streams_on}


def feed(servers: str, program: str, records: int) -> None:
    """A table's rows first; then records of random keys, ten a millisecond, of both sides in turn where two streams meet."""
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2_000_000, "log_level": 0})
    chance = random.Random(5)
    start_ms = 1_700_000_000_000
    if program == "stream_table_join":
        for key in range(KEYS):
            producer.produce("right", f"row {key}", str(key), timestamp=start_ms - 1)
    for number in range(records):
        topic = "right" if program == "stream_stream_join" and number % 2 else "left"
        key = str(chance.randrange(KEYS))
        while True:
            try:
                producer.produce(topic, f"value {number}", key, timestamp=start_ms + number // 10)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(_LIMIT_S):
        raise RuntimeError(f"the input could not be written within {_LIMIT_S:.0f} s")


def measure(system: System, program: str, records: int, folder: Path) -> Measured:
    with EmbeddedBroker(environ=os.environ) as broker:
        admin = Admin({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([TopicSpec(name=name, partitions=PARTITIONS) for name in ("left", "right", "out")])
        feed(broker.bootstrap_servers, program, records)
        inputs = ("left", "right") if program in JOINS else ("left",)
        ends = admin.stable_end_offsets([TopicPartition(topic, number) for topic in inputs for number in range(PARTITIONS)])
        began = time.time()
        start = Start(servers=broker.bootstrap_servers, application_id="operators", folder=folder, threads=THREADS)
        instance = Instance(system, start)
        asked = [ClientPartition(partition.topic, partition.partition) for partition in ends]
        group = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "operators", "log_level": 0})
        try:
            with closing(group), ProcessWatch([instance.pid]) as watch:
                while True:
                    with suppress(KafkaException):  # a group that is just being made has no coordinator for a moment
                        found = {TopicPartition(at.topic, at.partition): at.offset for at in group.committed(asked, 30)}
                        if all(found[partition] >= end for partition, end in ends.items()):
                            break
                    instance.check()
                    if time.time() - began > _LIMIT_S:
                        raise RuntimeError(f"{system.name}: not done after {_LIMIT_S:.0f} s; see {instance.log}")
                    time.sleep(_POLL_S)
                ended = time.time()
        finally:
            instance.stop()
        count, output = _output(broker.bootstrap_servers, program)
    return Measured(
        seconds=ended - began, cpu_us_per_record=watch.cpu_s_at(ended) / records * 1e6, output_records=count, output=output
    )


def _output(servers: str, program: str) -> tuple[int, Output]:
    settings = {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed", "log_level": 0}
    latest: dict[bytes, bytes | None] = {}
    every: Counter[tuple[bytes, bytes | None]] = Counter()
    count = 0
    with closing(Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})) as consumer:
        consumer.assign([ClientPartition("out", number, 0) for number in range(PARTITIONS)])
        while messages := [m for m in consumer.consume(100_000, 5.0) if m.error() is None]:
            count += len(messages)
            for message in messages:
                latest[message.key()] = message.value()
                if program in JOINS:
                    every[message.key(), message.value()] += 1
    return count, dict(every) if program in JOINS else {key: value for key, value in latest.items() if value is not None}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    chosen = parser.parse_args(arguments)
    print(f"{chosen.records} records, {KEYS} keys, {PARTITIONS} partitions, {THREADS} threads, load {os.getloadavg()[0]:.1f}\n")
    print("| program | system | s | records/s | CPU us/record | output records | same output |\n|---|---|---|---|---|---|---|")
    for program in chosen.programs.split(","):
        first: Output | None = None
        for name in chosen.systems.split(","):
            system = SYSTEMS[name](program)
            with tempfile.TemporaryDirectory(prefix="operators-") as folder:
                found = measure(system, program, chosen.records, Path(folder))
            same = "" if first is None else "yes" if found.output == first else "NO"
            first = first if first is not None else found.output
            print(
                f"| {program} | {system.name} | {found.seconds:.1f} | {chosen.records / found.seconds:.0f} "
                f"| {found.cpu_us_per_record:.1f} | {found.output_records} | {same} |",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
