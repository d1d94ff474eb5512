"""Latency and CPU by ``commit.interval.ms``: how long records wait, and what it costs the application and the broker.

    python benchmarks/commit_interval.py [--intervals 10,20,50,100] [--guarantee exactly_once_v2] [--seconds 30] [--peer]
        [--without-cache]

WordCount at 1,000 lines/s as part (b) of wordcount.py measures it, once for each interval, on a fresh broker each time; with
``--peer`` Kafka Streams at the same intervals too. Prints a table and one JSON line; exits 1 if a count was wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

from latency import Latency, latency
from rich.console import Console
from systems import KAFKA_STREAMS, TIDEMILL
from wordcount_tables import latency_table

_WIDTH = 150


def main() -> int:
    options = _options()
    console = Console(width=_WIDTH)
    results: list[Latency] = []
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-", ignore_cleanup_errors=True) as folder:
        for system in (TIDEMILL, KAFKA_STREAMS) if options.peer else (TIDEMILL,):
            for interval in options.intervals.split(","):
                settings = {"commit.interval.ms": interval, "processing.guarantee": options.guarantee}
                if system is KAFKA_STREAMS and options.without_cache:
                    settings["statestore.cache.max.bytes"] = "0"
                place = Path(folder) / f"{system.name.replace(' ', '-')}-{interval}"
                found = latency(system, options.rate, options.seconds, 1, place, settings)
                results.append(dataclasses.replace(found, system=f"{system.name}, {interval} ms"))
                console.print(latency_table(results[-1:], 1))
    console.print(latency_table(results, 1))
    sys.stdout.write(
        json.dumps(
            {
                "benchmark": "commit-interval",
                "command": " ".join(sys.argv),
                "results": [dataclasses.asdict(result) for result in results],
            },
            default=str,
        )
        + "\n"
    )
    return 1 if any(result.wrong.over or result.wrong.under for result in results) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--intervals", default="10,20,50,100", help="of commit.interval.ms, with commas between them")
    parser.add_argument("--guarantee", default="exactly_once_v2", help="processing.guarantee")
    parser.add_argument("--rate", type=int, default=1_000, help="lines per second")
    parser.add_argument("--seconds", type=int, default=30, help="how long each is measured")
    parser.add_argument("--peer", action="store_true", help="Kafka Streams too")
    parser.add_argument(
        "--without-cache", action="store_true", help="of Kafka Streams: it sends each update at once, not when it commits"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
