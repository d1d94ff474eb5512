"""What writing JSON in the JVM takes when the plan is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import pytest
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import Serdes
from tidemill.spark.plan.json_columns import written_column

pytestmark = pytest.mark.spark


def calls_for(session: SparkSession, ddl: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Calls of the JVM for the text of a struct."""
    frame = session.range(1).select(F.expr(f"cast(null as struct<{ddl.replace(' ', ':')}>) value"))
    kind, data_type = Serdes.json(ddl.replace(",", ", ")).type, frame.schema["value"].dataType
    client, calls = session.sparkContext._gateway._gateway_client, 0  # type: ignore[union-attr]
    send = client.send_command

    def counted(command: str, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += not command.startswith("m\n")  # which frees objects, whenever they are collected
        return send(command, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(client, "send_command", counted)
        written_column(frame["value"], data_type, kind, "a place", is_checked=True)
    return calls


def test_only_fields_that_may_be_refused_are_looked_at_when_a_plan_is_made(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes some calls of the JVM: a plan with many writes of a wide struct took many seconds."""
    calls_for(spark, "a double", monkeypatch)  # the first one looks classes up
    wide = ",".join(f"f{number} bigint" for number in range(300))
    assert calls_for(spark, wide, monkeypatch) == calls_for(spark, "a bigint", monkeypatch)
    assert calls_for(spark, f"{wide},d double", monkeypatch) == calls_for(spark, "a bigint,d double", monkeypatch)


class Color(Enum):
    RED = "red"


@dataclass
class Shirt:
    color: Color | None
    levels: list[Literal[1, 2]]


@pytest.mark.parametrize(
    ("color", "levels", "refused"),
    [
        ("'red'", "1, 2", ""), ("null", "2", ""), ("'green'", "1", "color: json: a value is none of 'red'"),
        ("'red'", "1, 3", "1, 2"),
    ],
)
def test_what_an_enum_or_a_literal_does_not_take_is_refused(spark: SparkSession, color: str, levels: str, refused: str) -> None:
    """No reader with this class could read it."""
    frame = spark.range(1).select(F.expr(f"struct({color} color, array({levels}) levels) value"))
    frame = frame.select(F.col("value").cast("struct<color:string,levels:array<bigint>>").alias("value"))
    written = written_column(
        frame["value"], frame.schema["value"].dataType, Serdes.json(Shirt).type, "a place", is_checked=True
    )
    if refused:
        with pytest.raises(CapturedException, match=refused):
            frame.select(written).collect()
    else:
        (row,) = frame.select(written).collect()
        assert row[0].endswith(f'"levels":[{levels.replace(" ", "")}]}}')
