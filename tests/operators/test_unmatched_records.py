"""When unmatched records of stream-stream joins are looked for, by Kafka Streams' rule: its answers for the same records."""

from __future__ import annotations

from tests.operators.harness import start
from tidemill import JoinWindows, Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record

STRING = Serdes.string()
OF_ONE_TIME = JoinWindows.of_time_difference(0, grace=100)


def test_a_look_ends_at_the_second_value_of_a_row_that_both_sides_wait_behind() -> None:
    """Kafka Streams looks at value after value, and where it ends decides when it looks again."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("l", "r"))
    joiner = per_record(lambda one, other: f"{one}/{other}", STRING)
    left.outer_join(right, joiner, OF_ONE_TIME).to("out")
    run = start(builder.build())
    records = [
        ("l", "a", "0", 374), ("r", "b", "0", 394), ("l", "c", "1", 394), ("l", "c", "2", 394), ("r", "d", "0", 474),
        ("r", "e", "0", 479), ("r", "f", "0", 557),
    ]  # fmt: skip
    for at, (topic, key, value, timestamp) in enumerate(records):
        run.pipe(at, topic, key.encode(), value.encode(), timestamp)
    assert [(at, key, value, timestamp) for _topic, key, value, timestamp, _headers, at in run.written] == [
        (5, b"a", b"0/None", 374), (6, b"b", b"None/0", 394), (6, b"c", b"1/None", 394), (6, b"c", b"2/None", 394),
    ]  # fmt: skip
