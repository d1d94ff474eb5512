"""The headers of a dead letter are Kafka Streams' (KIP-1034), in its order."""

from __future__ import annotations

from tidemill.steps.commit.dead_letters import error_headers


def test_the_error_follows_the_records_own_headers_in_kafka_streams_order() -> None:
    headers = error_headers(
        [("own", None)], error="E", message="m", stacktrace="s", topic="in", partition=2, offset=None
    )
    said = {"exception": b"E", "message": b"m", "stacktrace": b"s", "topic": b"in", "partition": b"2", "offset": b"-1"}
    assert headers == [("own", None), *((f"__streams.errors.{name}", value) for name, value in said.items())]
