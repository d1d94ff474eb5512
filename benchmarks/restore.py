"""How long a store takes to be restored from its changelog, compared with Kafka Streams.

    python benchmarks/restore.py [--rows 2000000] [--systems tidemill,kafka-streams]

A table of so many rows is read (``operator_programs/stream_table_join.py``; four partitions, two threads, exactly once, each
system with its defaults), and the application is closed. It is started again on its state directory, then on an empty one: each
time records wait for it, each of which must be joined with its row, in all partitions. The time from the start of the process
to the last result is that of a start; what an empty directory adds to it is the restoring. Prints a table in Markdown and one
JSON line; exits 1 if a result is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from operator_inputs import START_MS, Input
from operators import PARTITIONS, SYSTEMS, THREADS, make_topics, produce
from process_watch import ProcessWatch
from systems import Instance, Start, System

from tidemill.embedded.broker import EmbeddedBroker

_PROGRAM, _APPLICATION = "stream_table_join", "restore"
_LIMIT_S = 300.0
_LOOKUPS = 40
"""Records of a start, some for each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Seconds from the start of the process to the last result, and its processor time until then: on the directory that is
    there, and on an empty one."""

    system: str
    rows: int
    start_s: float
    start_cpu_s: float
    empty_s: float
    empty_cpu_s: float
    peak_pss_mib: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / (self.empty_s - self.start_s)

    @property
    def cpu_us(self) -> float:
        return (self.empty_cpu_s - self.start_cpu_s) / self.rows * 1e6


def measure(system: System, rows: int, folder: Path) -> Restored:
    """Raises RuntimeError: the process has ended, or a result did not come."""
    with EmbeddedBroker(environ=os.environ) as broker:
        servers = broker.bootstrap_servers
        make_topics(servers)
        produce(servers, _table(rows))
        start = Start(servers=servers, application_id=_APPLICATION, folder=folder, threads=THREADS)
        with closing(_Results(servers, rows)) as results:
            _run(system, start, results)  # reads the table
            start_s, start_cpu_s, _ = _run(system, start, results)
            shutil.rmtree(folder / "state")
            empty_s, empty_cpu_s, peak = _run(system, start, results)
    return Restored(
        system=system.name, rows=rows, start_s=start_s, start_cpu_s=start_cpu_s, empty_s=empty_s, empty_cpu_s=empty_cpu_s,
        peak_pss_mib=peak / 2**20,
    )  # fmt: skip


def _table(rows: int) -> Iterator[Input]:
    chance = random.Random(3)
    for number in range(rows):
        yield "right", f"key-{number}", f"row {number} {chance.randbytes(40).hex()}", START_MS


class _Results:
    """Records that are joined at each start, and their results."""

    def __init__(self, servers: str, rows: int) -> None:
        settings = {"group.id": "none", "isolation.level": "read_committed", "log_level": 0, "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": servers, **settings})
        self._consumer.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
        self._servers, self._rows, self._asked = servers, rows, 0
        self._missing: set[tuple[bytes, bytes]] = set()

    def ask(self) -> None:
        self._asked += 1
        keys = [number * (self._rows // _LOOKUPS) for number in range(_LOOKUPS)]
        produce(self._servers, (("left", f"key-{key}", f"{self._asked}: ", START_MS + 1) for key in keys))
        self._missing = {(f"key-{key}".encode(), f"{self._asked}: row {key}".encode()) for key in keys}

    def wait(self, instance: Instance, began: float) -> None:
        """Until each is there. Raises RuntimeError: the process has ended, or one was wrong or did not come."""
        while self._missing:
            for message in self._consumer.consume(_LOOKUPS, 0.05):
                key, value = message.key() or b"", message.value() or b""
                self._missing.remove((key, b" ".join(value.split(b" ")[:3])))
            instance.check()
            if time.time() - began > _LIMIT_S:
                log = instance.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{len(self._missing)} of {_LOOKUPS} results missing after {_LIMIT_S:.0f} s: {log}")

    def close(self) -> None:
        self._consumer.close()


def _run(system: System, start: Start, results: _Results) -> tuple[float, float, int]:
    """(seconds, processor time, peak PSS) until all results are there."""
    results.ask()
    began = time.time()
    instance = Instance(system, start)
    try:
        with ProcessWatch([instance.pid]) as watch:
            results.wait(instance, began)
            ended = time.time()
            return ended - began, watch.cpu_s_at(ended), watch.peak_pss_bytes
    finally:
        instance.stop()


_HEAD = (
    "| system | rows | start s | start on an empty directory s | rows restored/s | start CPU s | CPU us/row restored "
    "| PSS MiB |\n"
    "|---|---|---|---|---|---|---|---|"
)


def _line(found: Restored) -> str:
    return (
        f"| {found.system} | {found.rows:,} | {found.start_s:.1f} | {found.empty_s:.1f} | {found.rows_per_s:,.0f} "
        f"| {found.start_cpu_s:.1f} | {found.cpu_us:.2f} | {found.peak_pss_mib:.0f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    options = parser.parse_args()
    print(_HEAD, flush=True)
    results: list[Restored] = []
    failed: list[str] = []
    for name in options.systems.split(","):
        system = SYSTEMS[name](_PROGRAM)
        try:
            with tempfile.TemporaryDirectory(prefix="restore-", ignore_cleanup_errors=True) as folder:
                results.append(measure(system, options.rows, Path(folder) / name))
            print(_line(results[-1]), flush=True)
        except (RuntimeError, KeyError) as problem:
            failed.append(f"{system.name}: {problem!r}")
            print(f"| {system.name} | failed: {problem!r} |", flush=True)
    line = {
        "benchmark": "restore", "at": time.strftime("%Y-%m-%d %H:%M:%S"), "cores": os.cpu_count(),
        "command": " ".join(["benchmarks/restore.py", *sys.argv[1:]]),
        "results": [dataclasses.asdict(found) for found in results], "failed": failed,
    }  # fmt: skip
    print("\n" + json.dumps(line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
