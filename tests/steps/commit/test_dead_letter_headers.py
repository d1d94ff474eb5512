"""The headers of a dead letter are Kafka Streams' (KIP-1034), in its order."""

from __future__ import annotations

from tidemill import DeadLetter, ErrorContext


def test_the_error_follows_the_records_own_headers_in_kafka_streams_order() -> None:
    at = ErrorContext(
        task=None, node="N", topic="in", partition=2, offset=None, timestamp=-1, headers=(("own", None),), source_raw_key=b"k"
    )
    letter = DeadLetter.of(at, ValueError("m"), "dead")
    said = {"exception": b"builtins.ValueError", "message": b"m", "stacktrace": b"", "topic": b"in", "partition": b"2"}
    expected = {f"__streams.errors.{name}": value for name, value in (said | {"offset": b"-1"}).items()}
    assert letter.headers == (("own", None), *expected.items())
    assert (letter.key, letter.value, letter.timestamp) == (b"k", None, 0)
