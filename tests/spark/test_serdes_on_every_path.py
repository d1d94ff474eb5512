"""What a serde reads and writes is the same wherever it does: by itself, in the plan (which the test driver runs), in operators."""

from __future__ import annotations

from typing import Any

import pytest
from drawn_bytes import BYTES_FOR, SCHEMA
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from plan_harness import Program, Record
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from step_harness import StepRun

from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import SerdeError, StopError, TopologyError
from tidemill.spark.unreadable import OnUnreadable, Unreadable
from tidemill.testing import TopologyTestDriver
from tidemill.testing.wire import RawRecord

pytestmark = pytest.mark.spark
BYTES = Serdes.bytes()
SERDES: dict[str, Any] = {
    "string": Serdes.string(), "bytes": BYTES, "long": Serdes.long(), "integer": Serdes.integer(), "short": Serdes.short(),
    "double": Serdes.double(), "float": Serdes.float(), "boolean": Serdes.boolean(), "uuid": Serdes.uuid(), "json": Serdes.json(SCHEMA),
}  # fmt: skip
Pair = tuple["bytes | None", "bytes | None"]


@st.composite
def samples(draw: st.DrawFn) -> dict[str, list[Pair]]:
    """Keys and values for each serde, null among them."""
    return {
        name: draw(st.lists(st.tuples(st.none() | drawn, drawn), min_size=1, max_size=12)) for name, drawn in BYTES_FOR.items()
    }


def by_the_serde(serde: Any, pairs: list[Pair]) -> list[Pair]:
    """What is read, written again; pairs that can't be read are left out."""
    found = []
    for pair in pairs:
        try:
            found.append(tuple(serde.serialize(serde.deserialize(side)) for side in pair))
        except SerdeError:
            continue
    return found  # type: ignore[return-value]


def through(builder: StreamsBuilder, name: str, serde: Any, function: Any) -> None:
    builder.stream(f"in-{name}", key=serde, value=serde).map_values(function).to(f"out-{name}", key=serde, value=serde)


@pytest.fixture(scope="module")
def tidemill_session(spark: SparkSession) -> SparkSession:
    return spark


@pytest.fixture(scope="module")
def driver(tidemill_session: SparkSession) -> Any:
    """All serdes in one plan of columns."""
    builder = StreamsBuilder()
    for name, serde in SERDES.items():
        through(builder, name, serde, lambda value: F.coalesce(value, value))
    config = {"deserialization.exception.handler": "continue"}
    with TopologyTestDriver(builder, config, session=tidemill_session) as made:
        yield made


def writes_shortest_digits(spark: SparkSession) -> bool:
    """Java's own text of a double is the shortest that means it since version 19."""
    return int(spark._jvm.java.lang.System.getProperty("java.specification.version")) >= 19  # type: ignore[union-attr]


def as_written(serde: Any, pairs: list[Pair], *, exact: bool) -> list[Any]:
    """The bytes, or the values that they mean."""
    return pairs if exact else [tuple(serde.deserialize(side) for side in pair) for pair in pairs]


# No shrinking: an example is a batch of all serdes, and the message names the record.
@settings(max_examples=40, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(drawn=samples())
def test_the_plan_reads_refuses_and_writes_what_the_serde_does(
    driver: TopologyTestDriver, tidemill_session: SparkSession, drawn: dict[str, list[Pair]]
) -> None:
    outputs = {name: driver.create_output_topic(f"out-{name}", BYTES, BYTES) for name in drawn}
    for topic in outputs.values():  # what a failed example has left
        topic.read_key_values()
    refused = driver.skipped
    driver._pipe([RawRecord(f"in-{name}", *pair, 0, ()) for name, pairs in drawn.items() for pair in pairs])
    sent = {name: topic.read_key_values() for name, topic in outputs.items()}
    readable = {name: by_the_serde(SERDES[name], pairs) for name, pairs in drawn.items()}
    for name, expected in readable.items():
        exact = name != "json" or writes_shortest_digits(tidemill_session)
        serde = SERDES[name]
        assert as_written(serde, sent[name], exact=exact) == as_written(serde, expected, exact=exact), (name, drawn[name])
    assert driver.skipped - refused == sum(len(pairs) - len(readable[name]) for name, pairs in drawn.items())
