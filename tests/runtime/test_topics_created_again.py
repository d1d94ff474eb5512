"""Topics that are deleted and created again under a running application, on brokers whose leaders have changed before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.runtime.local_application import Place
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.group import member
from tidemill.runtime.thread import topic_watch

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(600)]
TEXT = Serdes.string()


def test_a_topic_whose_leader_epochs_begin_again_is_read_on(
    private_broker: Callable[..., EmbeddedBroker], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the position that was reached, as by Java's consumer. The setting keeps the consumer from
    becoming patient, which makes a new client as well."""
    broker = private_broker()
    place = Place(broker.bootstrap_servers, spark, tmp_path, "again")
    place.create("in", "out")
    broker.kill()
    broker.start()  # its leader's epoch is higher from now on
    monkeypatch.setattr(topic_watch, "_LOOK_PAUSE_S", 0.2)
    monkeypatch.setattr(member, "_COUNTS_CHECK_MS", 600_000)  # the group does not meet the topic while it is gone
    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=TEXT, value=TEXT).to(place.topic("out"))
    with place.running(builder, **{"consumer.fetch.max.wait.ms": 50}):
        place.send("in", [(None, b"%d" % number) for number in range(5)])
        assert len(place.received("out", 5)) == 5
        place.delete("in")
        admin = Admin({"bootstrap.servers": place.bootstrap_servers})
        assert until(lambda: admin.partitions([place.topic("in")])[place.topic("in")] is None)
        place.create("in")
        place.send("in", [(None, b"%d" % number) for number in range(10, 20)])
        assert [message.value() for message in place.received("out", 10)[5:]] == [b"15", b"16", b"17", b"18", b"19"]
