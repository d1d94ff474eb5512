"""What a transaction of a stream thread's producer waits for, by part, without Spark.

    python benchmarks/transaction.py [--runs 400] [--records 250] [--pause-ms 10]

On a fresh broker, with two topics of six partitions, as a changelog and an output: each transaction has ``--records`` records for
each of the two, over all partitions, and six offsets. Prints medians and 90th percentiles in ms, and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench_broker import INPUT, fresh_broker
from output_topic import PARTITIONS, TOPIC
from rich.console import Console
from rich.table import Table

from tidemill.ids import TopicPartition
from tidemill.kafka.data.producer import CommitOutcome, TransactionalProducer
from tidemill.kafka.group.metadata import group_metadata_bytes
from tidemill.task.raw_records import RecordColumns

PARTS = ("write", "offsets", "records acknowledged", "end")
_GROUP = group_metadata_bytes("transaction", -1, "")


def measured(bootstrap_servers: str, runs: int, records: int, pause_s: float) -> dict[str, list[float]]:
    """Milliseconds of each part, by run; the first quarter of the runs warms up."""
    producer = TransactionalProducer({"bootstrap.servers": bootstrap_servers}, transactional_id="transaction")
    producer.init()
    found: dict[str, list[float]] = {part: [] for part in (*PARTS, "all")}
    for run in range(runs + runs // 3):
        moments = _moments(producer, run, records)
        if run >= runs // 3:
            for part, (began, ended) in zip(PARTS, pairwise(moments), strict=True):
                found[part].append((ended - began) * 1e3)
            found["all"].append((moments[-1] - moments[0]) * 1e3)
        time.sleep(pause_s)
    producer.close()
    return found


def _moments(producer: TransactionalProducer, run: int, records: int) -> list[float]:
    keys = [random.randbytes(8) for _ in range(records)]
    columns = RecordColumns(
        keys, [b"12345678"] * records, [int(time.time() * 1e3)] * records, [key[0] % PARTITIONS for key in keys]
    )
    offsets = {TopicPartition(INPUT, partition): run for partition in range(PARTITIONS)}
    producer.begin()
    moments = [time.perf_counter()]
    for topic in (INPUT, TOPIC):
        producer.write(topic, columns)
    moments.append(time.perf_counter())
    producer.send_offsets(offsets, _GROUP)
    moments.append(time.perf_counter())
    producer.flush()
    moments.append(time.perf_counter())
    if producer.commit() is not CommitOutcome.COMMITTED:
        raise SystemExit(f"a transaction was not committed: {producer.failure}")
    moments.append(time.perf_counter())
    return moments


def _shown(found: Mapping[str, Sequence[float]]) -> Table:
    table = Table(title="a transaction, ms", title_justify="left")
    for column in ("", "median", "90 %"):
        table.add_column(column, justify="left" if not column else "right")
    for part, values in found.items():
        table.add_row(part, f"{statistics.median(values):.1f}", f"{statistics.quantiles(values, n=10)[-1]:.1f}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--records", type=int, default=250, help="for each of the two topics")
    parser.add_argument("--pause-ms", type=float, default=10, help="between two transactions")
    options = parser.parse_args()
    with fresh_broker() as broker:
        found = measured(broker.bootstrap_servers, options.runs, options.records, options.pause_ms / 1e3)
    Console(width=120).print(_shown(found))
    line = {
        "benchmark": "transaction", "at": time.strftime("%Y-%m-%d %H:%M:%S"), "cores": os.cpu_count(),
        "command": " ".join(["benchmarks/transaction.py", *sys.argv[1:]]),
        "medians_ms": {part: round(statistics.median(values), 2) for part, values in found.items()},
    }  # fmt: skip
    sys.stdout.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
