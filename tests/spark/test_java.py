"""Objects of the JVM: classes that are looked up once, settings that are read in a few calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JVMView
from py4j.protocol import METHOD_TYPE, SUCCESS, SUCCESS_CLASS
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill.spark.java import class_of, know_classes, sequence_of, settings_of

CLASS, METHOD = f"{SUCCESS_CLASS}org.apache.spark.sql.functions", f"{SUCCESS}{METHOD_TYPE}"


class Client:
    """A gateway's client whose JVM has one class."""

    converters: tuple[Any, ...] = ()
    gateway_property = SimpleNamespace(pool=None)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send_command(self, command: str) -> str:
        _, kind, name, *rest = command.split("\n")
        self.asked.append(f"{name}.{rest[0]}" if kind == "m" else name)
        return METHOD if kind == "m" else CLASS


class Gateway:
    def __init__(self) -> None:
        self.client = Client()
        self.jvm: Any = JVMView(self.client, jvm_name="default", id="rj")


def test_a_class_and_its_methods_are_looked_up_once() -> None:
    gateway = Gateway()
    know_classes(gateway)
    for _ in range(3):
        assert gateway.jvm.functions.col.name == "col"
    assert gateway.client.asked == ["functions", "org.apache.spark.sql.functions.col"]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_pyspark_works_with_classes_that_are_known(spark: SparkSession) -> None:
    assert class_of(spark, "java.util.ArrayList") is class_of(spark, "java.util.ArrayList")
    assert class_of(spark, "java.lang.Long").MAX_VALUE == 2**63 - 1
    assert sequence_of(spark, ["a", "b"]).mkString("-") == "a-b"
    assert spark.range(3).select(F.col("id") * 2).collect()[2][0] == 4


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_settings_read_in_a_few_calls_are_those_of_the_session(spark: SparkSession) -> None:
    spark.conf.set("spark.tidemill.text", "two\nlines, = and ü")
    try:
        found = settings_of(spark)
        assert found == dict(spark.conf.getAll)
        assert found["spark.tidemill.text"] == "two\nlines, = and ü"
    finally:
        spark.conf.unset("spark.tidemill.text")
