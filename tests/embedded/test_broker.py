"""The owned broker: it serves, comes back, explains itself and never outlives its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.embedded.broker_plan import PortTakenError
from tidemill.errors import EnvironmentProblem

pytestmark = pytest.mark.broker

OWNER = """
import os, sys, time
from pathlib import Path
from tidemill.embedded.broker import EmbeddedBroker
try:
    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as broker:
        print(broker.pid, broker.data, flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def is_alive(pid: int) -> bool:
    """False of a zombie, too: it has ended, though nobody may have asked how."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _create(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(240)


def _produce(broker: EmbeddedBroker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(240) == 0


def _values(broker: EmbeddedBroker, topic: str, expected: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    until(lambda: values.extend(m.value() for m in consumer.consume(10, 0.2)) or len(values) >= expected)
    consumer.close()
    return values


def test_records_survive_a_stop_and_a_kill_on_the_same_port(private_broker: Callable[..., EmbeddedBroker]) -> None:
    broker = private_broker()
    port = broker.port
    _create(broker, "kept")
    _produce(broker, "kept", b"first")
    first_pid = broker.pid
    broker.stop()
    assert not broker.is_running
    assert not psutil.pid_exists(first_pid)
    broker.start()
    _produce(broker, "kept", b"second")
    second_pid = broker.pid
    broker.kill()
    assert not psutil.pid_exists(second_pid)
    broker.start()
    assert broker.port == port
    assert _values(broker, "kept", 2) == [b"first", b"second"]


def test_a_transaction_that_a_kill_left_open_is_ended_when_the_broker_comes_back(
    private_broker: Callable[..., EmbeddedBroker],
) -> None:
    # A broker that returns so soon would know itself as the leader of all, and then be fenced for its old registration: markers
    # that are due between the two are lost in Kafka 4.3.0 to 4.4.0, and nobody reads on.
    broker = private_broker()
    _create(broker, "written")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "writer", "transaction.timeout.ms": 1_000}
    )
    producer.init_transactions(240)
    producer.begin_transaction()
    producer.produce("written", b"never")
    assert producer.flush(240) == 0
    broker.kill()
    time.sleep(1.1)  # its transaction's time is over before the broker is back
    broker.start()
    _produce(broker, "written", b"read")
    assert _values(broker, "written", 1) == [b"read"]
    log = broker.log_file.read_text()
    assert log.count("Elected as the txn coordinator for partition 0") == 2, "once at each start"
    assert "DUPLICATE_BROKER_REGISTRATION" not in log


def test_it_listens_on_the_loopback_interface_only(broker: EmbeddedBroker) -> None:
    listening = [c for c in psutil.Process(broker.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert len(listening) == 2
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}


def test_a_port_in_use_is_reported(private_broker: Callable[..., EmbeddedBroker]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=rf"port {port} on 127\.0\.0\.1 is in use"):
            private_broker(port=port)


def test_a_folder_that_can_not_be_made_is_reported(private_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=r"can't keep the broker's data in .*file/data: Not a directory"):
        private_broker(data=tmp_path / "file" / "data")


def test_two_brokers_on_one_folder_are_refused(private_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    private_broker(data=tmp_path)
    with pytest.raises(EnvironmentProblem, match="another broker uses the folder"):
        private_broker(data=tmp_path)


@pytest.mark.parametrize("variable", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_a_setting_that_kafka_refuses_is_reported_with_the_broker_s_own_words(
    private_broker: Callable[..., EmbeddedBroker], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "-XX:TieredStopAtLevel=1")  # of which the JVM tells first
    with pytest.raises(EnvironmentProblem, match=r"num\.network\.threads"):
        private_broker(settings={"num.network.threads": "none"})


def test_a_folder_of_a_newer_kafka_is_reported(tmp_path: Path) -> None:
    said = "Caused by: org.apache.kafka.common.errors.UnsupportedVersionException: Can't read version 4 of BrokerEndpoint"
    java = tmp_path / "jdk" / "bin" / "java"  # says what Kafka 4.2.1 says of a folder that 4.3.0 has written
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho "{said}" >> {tmp_path}/data/broker.log\nexit 1\n')
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.15"\n')
    (tmp_path / "data" / "data").mkdir(parents=True)
    (tmp_path / "data" / "data" / "meta.properties").touch()
    broker = EmbeddedBroker(environ={**os.environ, "JAVA_HOME": str(tmp_path / "jdk")}, data=tmp_path / "data")
    with pytest.raises(EnvironmentProblem, match=r"written by a newer Kafka .*version 4 of BrokerEndpoint\): name another"):
        broker.start()


def test_formatting_that_takes_longer_than_a_start_may_is_reported(tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexec sleep 600\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.15"\n')
    environ = {**os.environ, "JAVA_HOME": str(tmp_path / "jdk")}
    with pytest.raises(EnvironmentProblem, match=r"formatting the broker's storage in .* was not done after 0\.5 s"):
        EmbeddedBroker(environ=environ, data=tmp_path / "data", start_limit_s=0.5).start()


def test_data_in_a_named_folder_stays_and_temporary_data_goes(tmp_path: Path) -> None:
    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as temporary:
        assert temporary.data.exists()
    assert not temporary.data.exists()
    with EmbeddedBroker(environ=os.environ, data=tmp_path, start_limit_s=240) as kept:
        pass
    assert (kept.data / "data" / "meta.properties").exists()


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_no_broker_and_no_data_outlives_its_owner(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, data = owner.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        owner.send_signal(number)
        owner.wait(240)
    assert until(lambda: not is_alive(int(pid)))
    assert until(lambda: not Path(data).exists())


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the broker with its guard on Linux only")
def test_no_broker_outlives_its_guard() -> None:
    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as broker:
        java = psutil.Process(broker.pid)
        java.parent().kill()
        assert until(lambda: not is_alive(java.pid))
        assert not broker.is_running


@pytest.mark.fault
def test_a_broker_that_is_killed_from_outside_is_seen_and_comes_back(
    private_broker: Callable[..., EmbeddedBroker],
) -> None:
    broker = private_broker()
    os.kill(broker.pid, signal.SIGKILL)
    assert until(lambda: not broker.is_running)
    broker.start()
    _create(broker, "after")
