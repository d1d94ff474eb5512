"""A start that can't succeed is refused before anything is begun: no state directory, no JVM, no connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemill import KafkaStreams, StreamsBuilder
from tidemill.errors import ConfigError

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("task.assignor.class", "sticky", "task.assignor.class: no assignor is named 'sticky'; there are HighAvail"),
        ("task.assignor.class", "no.such:Assignor", "task.assignor.class = 'no.such:Assignor': module no.such can't be imported"),
        ("processing.exception.handler", "no.such:handler", "processing.exception.handler=no.such:handler can't be imported"),
        (
            "deserialization.exception.handler", "no.such:handler",
            "deserialization.exception.handler=no.such:handler can't be imported",
        ),
        ("consumer.check.crcs", "maybe", "librdkafka can't use a value of consumer.check.crcs"),
    ],
)
def test_a_setting_whose_value_can_not_be_used_is_refused_first(name: str, given: str, told: str, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    state = tmp_path / "state"
    with pytest.raises(ConfigError) as error:
        KafkaStreams(builder, {**NEEDED, "state.dir": str(state), name: given}).start()
    assert told in str(error.value)
    assert not state.exists()


class OfConnect:
    """Looks like a session of Spark Connect, which has no ``sparkContext``."""


OfConnect.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("given", "told"), [("local[4]", "expected a SparkSession"), (OfConnect(), "is a Spark Connect session")]
)
def test_what_is_no_session_to_run_on_is_refused_first(given: Any, told: str, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    state = tmp_path / "state"
    with pytest.raises(ConfigError, match=told):
        KafkaStreams(builder, {**NEEDED, "state.dir": str(state)}, session=given).start()
    assert not state.exists()


def test_only_a_state_is_waited_for() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(TypeError, match=r"wait: 'RUNNING' is no state; expected one of State, such as State\.RUNNING"):
        KafkaStreams(builder, NEEDED).wait("RUNNING", timeout=0)  # type: ignore[arg-type]
