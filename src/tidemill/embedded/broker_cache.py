"""The cache with which the embedded broker's JVM starts in half the work (``jvm_cache``), and the training run that writes it: a
broker, and clients that do once what an instance does all the time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.embedded import guard
from tidemill.embedded.broker_plan import JVM_FLAGS, BrokerPlan, free_port, prepare, wait_until_ready
from tidemill.embedded.jars import Bundle
from tidemill.embedded.java import Java
from tidemill.embedded.jvm_cache import JvmCache, cache_of
from tidemill.errors import EnvironmentProblem

_START_LIMIT_S = 240.0
_CLIENT_LIMIT_S = 120.0
_WRITE_LIMIT_S = 600.0
_RECORDS = 500
_TOPIC = "training"


def broker_cache(java: Java, bundle: Bundle, folder: Path) -> JvmCache:
    """The cache for this Java and these jars, in the user's cache folder."""
    return cache_of("broker", java, bundle.folder, folder, made_with=JVM_FLAGS)


def make_broker_cache(cache: JvmCache, java: Java, bundle: Bundle) -> None:
    """Makes ``cache``, about a quarter of a minute of one core.

    Raises:
        EnvironmentProblem: the broker did not start, or wrote none.
    """
    cache.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".training-", dir=cache.path.parent) as folder:
        draft = Path(folder, cache.path.name)
        port = free_port()
        plan = BrokerPlan(java=java, bundle=bundle, data=Path(folder, "data"), port=port, controller_port=free_port(port))
        prepare(plan, limit_s=_START_LIMIT_S)
        command = plan.run_command(*cache.training_options(draft))
        running, pid = guard.start(command, console=plan.console_file, folder="-")
        try:
            wait_until_ready(plan, log_offset=0, is_alive=lambda: running.poll() is None, limit_s=_START_LIMIT_S)
            _work(plan.bootstrap_servers)
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
            running.wait(_WRITE_LIMIT_S)
        except KafkaException as problem:
            raise EnvironmentProblem(f"the broker's training run failed: {problem}") from problem
        except subprocess.TimeoutExpired:
            raise EnvironmentProblem(f"waited {_WRITE_LIMIT_S:g} s for {java.path} to write the broker's {cache.kind}") from None
        finally:
            running.kill()
            running.wait()
        try:
            cache.keep(draft)
        except OSError as problem:
            raise EnvironmentProblem(f"{java.path} wrote no {cache.kind} to {cache.path.parent}: {problem.strerror}") from problem


def _work(servers: str) -> None:
    """A topic, a transaction that writes, and one that reads and commits offsets. KafkaException if the broker does none."""
    own: dict[str, str | int | float | bool] = {"bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(own)
    [made] = admin.create_topics([NewTopic(_TOPIC, 2, 1)]).values()
    made.result(_CLIENT_LIMIT_S)
    producer = Producer({**own, "transactional.id": _TOPIC})
    producer.init_transactions(_CLIENT_LIMIT_S)
    producer.begin_transaction()
    for number in range(_RECORDS):
        producer.produce(_TOPIC, b"%d" % number, b"%d" % (number % 7))
    producer.commit_transaction(_CLIENT_LIMIT_S)
    consumer = Consumer({**own, "group.id": _TOPIC, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([_TOPIC])
        if consumer.poll(_CLIENT_LIMIT_S) is not None:
            producer.begin_transaction()
            positions = consumer.position(consumer.assignment())
            read = [at for at in positions if at.offset >= 0]
            producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), _CLIENT_LIMIT_S)
            producer.commit_transaction(_CLIENT_LIMIT_S)
    finally:
        consumer.close()
