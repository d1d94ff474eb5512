"""The process in which an experiment's instances run: a Spark driver for one or several of them.

Takes orders from standard input, one JSON object a line with an ``id``, and answers each with one line of standard output that
carries it; orders that take long don't hold others up. Its log goes to standard error, each line led by the time in seconds.
Ends at once, with all that it started, when its standard input ends: whoever gave the orders is gone.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tidemill.assignment.task_load import value_of
from tidemill.cli.application_file import load_application
from tidemill.errors import TidemillError
from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.instance.application import KafkaStreams
from tidemill.runtime.instance.machine_jvm import machine_jvm
from tidemill.spark.launch.session import SparkHandle
from tidemill.task.standby import StandbyTask

_SESSION_LIMIT_S = 240.0


def hold_copies(for_s: float) -> None:
    """Standbys and warm-ups of this process begin to follow their changelogs only so long after they were assigned.

    For rounds that are published with copies which take longer to be restored than a hand-over: ours of two records don't.
    """
    first_asked: dict[tuple[TaskId, str], float] = {}
    read_from = StandbyTask.read_from

    def later(self: StandbyTask) -> dict[TopicPartition, int]:
        since = first_asked.setdefault((self.task, self.epoch), time.monotonic())
        return read_from(self) if time.monotonic() - since > for_s else {}

    StandbyTask.read_from = later  # type: ignore[method-assign]


class Instances:
    """By name, each in its latest life. ``slots``: stream threads that share one session; 0: each instance has its own."""

    def __init__(self, program: str, slots: int, heap: str) -> None:
        self._program, self._slots, self._heap = program, slots, heap
        self._running: dict[str, KafkaStreams] = {}
        self._changes: dict[str, list[tuple[float, str]]] = {}
        self._spark: SparkHandle | None = None
        self._lock = threading.Lock()

    def start(self, name: str, settings: dict[str, str], program: str | None = None) -> dict[str, Any]:
        session = self._session() if self._slots else None
        topology, config = load_application(program or self._program, settings)
        streams = KafkaStreams(topology, config, session=session)
        changes = self._changes.setdefault(name, [])
        streams.set_state_listener(lambda to, _before: changes.append((time.time(), to.value)))
        self._running[name] = streams
        streams.start()
        return self.look(name)

    def look(self, name: str) -> dict[str, Any]:
        streams = self._running.get(name)
        if streams is None:
            return {"state": "NOT_STARTED", "tasks": {}, "standbys": {}, "threads": {}, "loads": {}}
        threads = streams.threads
        return {
            "state": streams.state.value,
            "error": None if streams.error is None else str(streams.error),
            "server": streams.application_server,
            "threads": {
                thread.name: {
                    "tasks": sorted(map(str, thread.tasks)),
                    "standbys": sorted(map(str, thread.standbys)),
                    "workers": thread.engine.worker_pids if thread.engine else {},
                }
                for thread in threads
            },
            "tasks": {str(task): held.phase.value for thread in threads for task, held in thread.tasks.items()},
            "standbys": {str(task): held.lag for thread in threads for task, held in thread.standbys.items()},
            "loads": {str(task): value_of(load.records) for thread in threads for task, load in thread.loads.items()},
            "batches": sum(thread.metrics.batches for thread in threads),
            "records_in": sum(thread.metrics.records_in for thread in threads),
            "restored": sum(thread.metrics.records_restored for thread in threads),
            "lost": sum(thread.metrics.lost for thread in threads),
            "changes": self._changes.get(name, []),
        }

    def close(self, name: str, timeout_s: float) -> dict[str, Any]:
        """Nothing to be done for one that was never started."""
        streams = self._running.get(name)
        return {"closed": streams is None or streams.close(timeout_s), **self.look(name)}

    def drain(self, name: str, timeout_s: float) -> dict[str, Any]:
        """Its tasks go to others as these catch up, then it closes."""
        return {"drained": self._running[name].drain(timeout_s), **self.look(name)}

    def _session(self) -> Any:
        with self._lock:
            if self._spark is None:
                self._spark = machine_jvm(
                    os.environ,
                    application_id="experiment",
                    threads=self._slots,
                    settings={},
                    heap=self._heap,
                ).session(_SESSION_LIMIT_S)
            return self._spark.session


def main() -> int:
    asked = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(created).3f %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("kafka").setLevel(logging.WARNING)
    if asked["copies_wait_s"]:
        hold_copies(asked["copies_wait_s"])
    instances = Instances(asked["program"], asked["slots"], asked["heap"])
    orders: dict[str, Callable[..., dict[str, Any]]] = {
        "start": instances.start, "look": instances.look, "close": instances.close,
        "drain": instances.drain,
    }  # fmt: skip
    out, answering = sys.stdout, threading.Lock()
    sys.stdout = sys.stderr  # whatever a library prints is no answer

    def obey(order: dict[str, Any]) -> None:
        try:
            answer = orders[order["do"]](**order["with"])
        except TidemillError as error:
            logging.error("order %s failed: %s", order, error)
            answer = {"problem": f"{type(error).__name__}: {error}"}
        except Exception as error:
            logging.exception("order %s failed", order)
            answer = {"problem": f"{type(error).__name__}: {error}"}
        with answering:
            out.write(json.dumps({"id": order["id"], **answer}) + "\n")
            out.flush()

    for line in sys.stdin:
        threading.Thread(target=obey, args=(json.loads(line),), daemon=True).start()
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main())
