"""What writing JSON in the JVM takes when the plan is made."""

from __future__ import annotations

from typing import Any

import pytest
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
