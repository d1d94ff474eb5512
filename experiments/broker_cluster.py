"""Several brokers as one cluster: what is written has a replica on each, and one of them may be away.

Decides the settings and the order of faults: ``kill``, ``stop`` and ``freeze`` hit one broker after the other, and ``start``
returns when no replica lags behind. ``EmbeddedBroker``, for experiments with one, has the same names for these.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from itertools import cycle
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidemill.embedded.broker_plan import HOST, BrokerPlan, free_port, prepare
from tidemill.embedded.jars import fetch_bundle
from tidemill.embedded.java import find_java
from tidemill.errors import EnvironmentProblem

_CLUSTER_ID = "tidemill-experiments-0"
_HEAP_MB = 256
_LIMIT_S = 240.0
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class BrokerCluster:
    """``count`` brokers, each a controller too; a context manager."""

    def __init__(self, folder: Path, count: int) -> None:
        java, bundle = find_java(os.environ), fetch_bundle("broker", environ=os.environ)
        ports: list[int] = []
        while len(ports) < 2 * count:
            ports.append(free_port(*ports))
        own, controllers = ports[:count], ports[count:]
        settings = {
            "controller.quorum.voters": ",".join(f"{at}@{HOST}:{port}" for at, port in enumerate(controllers, start=1)),
            "default.replication.factor": str(count),
            "min.insync.replicas": str(count - 1),
            "broker.session.timeout.ms": "6000",
        }
        for topic in _INTERNAL_TOPICS:
            settings |= {f"{topic}.replication.factor": str(count), f"{topic}.num.partitions": str(count)}
        settings["transaction.state.log.min.isr"] = str(count - 1)
        self._plans = [
            BrokerPlan(
                java=java, bundle=bundle, data=folder / f"broker-{number}", port=port, controller_port=controller,
                heap_mb=_HEAP_MB, cluster_id=_CLUSTER_ID, settings={**settings, "node.id": str(number)},
            )
            for number, (port, controller) in enumerate(zip(own, controllers, strict=True), start=1)
        ]  # fmt: skip
        self._turns = cycle(range(count))
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.bootstrap_servers = ",".join(plan.bootstrap_servers for plan in self._plans)

    def __enter__(self) -> BrokerCluster:
        for plan in self._plans:
            prepare(plan, limit_s=_LIMIT_S)
        try:
            self.start()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_all()

    def start(self) -> None:
        """Starts the brokers that don't run, and returns when all replicas are in sync."""
        for number, plan in enumerate(self._plans):
            if number not in self._running:
                with plan.console_file.open("ab") as console:
                    self._running[number] = subprocess.Popen(
                        plan.run_command(), stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
                    )
        deadline = time.monotonic() + _LIMIT_S
        while not self._is_whole():
            if time.monotonic() > deadline:
                logs = self._plans[0].data.parent
                raise EnvironmentProblem(f"not all replicas are in sync after {_LIMIT_S:g} s; the brokers' logs are in {logs}")
            time.sleep(0.5)

    def kill(self) -> None:
        """SIGKILL to the next broker."""
        self._end(next(self._turns), signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM to the next broker, and SIGKILL if it does not end."""
        self._end(next(self._turns), signal.SIGTERM)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP to the next broker for a while."""
        process = self._running[next(self._turns)]
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def _end(self, number: int, how: signal.Signals) -> None:
        process = self._running.pop(number)
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_all(self) -> None:
        for number in list(self._running):
            self._end(number, signal.SIGKILL)

    def _is_whole(self) -> bool:
        try:
            found = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0}).list_topics(timeout=10)
        except KafkaException:
            return False
        partitions = [partition for topic in found.topics.values() for partition in topic.partitions.values()]
        return len(found.brokers) == len(self._plans) and all(len(each.isrs) == len(each.replicas) for each in partitions)
