"""A broker's answer that never comes holds a consumer up for as long as in Java, unless a setting says otherwise."""

from __future__ import annotations

import pytest

from tidemill.kafka.data.partition_consumer import PartitionConsumer


@pytest.mark.parametrize(("own", "expected_ms"), [({}, 30_000), ({"socket.timeout.ms": 5_000}, 5_000)], ids=["default", "set"])
def test_a_request_of_a_consumer_has_javas_time(
    own: dict[str, int], expected_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, object]] = []
    monkeypatch.setattr("tidemill.kafka.data.partition_consumer.Consumer", made.append)
    PartitionConsumer({"bootstrap.servers": "broker:9092", "group.id": "none", **own})
    assert [settings["socket.timeout.ms"] for settings in made] == [expected_ms]
