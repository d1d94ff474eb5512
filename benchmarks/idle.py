"""What an application costs that has nothing to do: WordCount with its twelve tasks on one stream thread, all records counted.

    python benchmarks/idle.py [--seconds 30] [--peer] [--interval MS]

Some lines are counted, then nothing comes any more; after half a minute the processor time of the application and of the broker
is taken over the seconds asked for, and then, when the application has ended, that of the same broker without any client: a row
of its own, since a broker that has nothing to do takes a few per cent as well. Prints a table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from bench_broker import Feed, fresh_broker
from output_topic import OutputTopic
from process_watch import ProcessWatch
from rich.console import Console
from rich.table import Table
from systems import KAFKA_STREAMS, TIDEMILL, Instance, Start, System
from zipf_lines import zipf_lines

_LINES = 200
_SETTLES_S = 30
_ENDS_S = 10
"""The broker takes the member out of the group and closes connections."""
_START_LIMIT_S = 240.0


def idle(system: System, seconds: int, settings: dict[str, str], folder: Path) -> dict[str, object]:
    lines = zipf_lines(_LINES, seed=2)
    with fresh_broker() as broker:
        output = OutputTopic(broker.bootstrap_servers, system.read_count)
        feed = Feed(broker.bootstrap_servers, lines)
        feed.send(_LINES)
        feed.flush()
        start = Start(
            servers=broker.bootstrap_servers, application_id="idle", folder=folder, threads=1, settings=settings
        )
        instance = Instance(system, start)
        try:
            with ProcessWatch([broker.pid]) as broker_watch, ProcessWatch([instance.pid]) as watch:
                deadline = time.time() + _START_LIMIT_S
                while output.total < lines.words:
                    instance.check()
                    if time.time() > deadline:
                        raise RuntimeError(f"{system.name}: {output.total} of {lines.words} words within {_START_LIMIT_S:.0f} s")
                    output.take(0.1)
                output.close()  # its fetches would count as the broker's work
                time.sleep(_SETTLES_S)
                begins = time.time()
                time.sleep(seconds)
                ends = time.time()
        finally:
            instance.stop()
        time.sleep(_ENDS_S)
        with ProcessWatch([broker.pid]) as alone_watch:
            time.sleep(seconds)
            alone = time.time()
    return {
        "system": system.name,
        "core_percent": _percent(watch, begins, ends),
        "broker_percent": _percent(broker_watch, begins, ends),
        "broker_alone_percent": _percent(alone_watch, alone_watch.began_s, alone),
    }


def _percent(watch: ProcessWatch, begins: float, ends: float) -> float:
    return 100 * (watch.cpu_s_at(ends) - watch.cpu_s_at(begins)) / (ends - begins)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30, help="how long it is measured")
    parser.add_argument("--interval", help="commit.interval.ms, if not the default")
    parser.add_argument("--peer", action="store_true", help="Kafka Streams too")
    options = parser.parse_args()
    settings = {"commit.interval.ms": options.interval} if options.interval else {}
    table = Table(title="an idle application of 12 tasks and one thread")
    for column in ("", "application, % of a core", "broker, % of a core"):
        table.add_column(column)
    results = []
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-", ignore_cleanup_errors=True) as folder:
        for system in (TIDEMILL, KAFKA_STREAMS) if options.peer else (TIDEMILL,):
            found = idle(system, options.seconds, settings, Path(folder) / system.name.replace(" ", "-"))
            results.append(found)
            table.add_row(system.name, f"{found['core_percent']:.1f}", f"{found['broker_percent']:.1f}")
            table.add_row("the same broker, no client", "", f"{found['broker_alone_percent']:.1f}")
    Console().print(table)
    sys.stdout.write(json.dumps({"benchmark": "idle", "command": " ".join(sys.argv), "results": results}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
