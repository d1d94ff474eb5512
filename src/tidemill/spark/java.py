"""Objects of the JVM behind a session, which py4j gives no types: plans, expressions, exceptions, and Scala's sequences of them.

Decides the one way from Python's sequences to Scala's and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

JavaObject = Any
"""An object of the JVM: every attribute of it is a method, which py4j looks for when it is called."""


def jvm_of(session: SparkSession) -> JavaObject:
    """The JVM's packages."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    return jvm


def array_of(session: SparkSession, items: Iterable[object]) -> JavaObject:
    """A Java array of objects."""
    gateway, given = session.sparkContext._gateway, list(items)
    assert gateway is not None
    found = gateway.new_array(jvm_of(session).java.lang.Object, len(given))
    for number, item in enumerate(given):
        found[number] = item
    return found


def sequence_of(session: SparkSession, items: Iterable[object]) -> JavaObject:
    """A Scala sequence."""
    found = jvm_of(session).java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm_of(session).org.apache.spark.api.python.PythonUtils.toSeq(found)


def items_of(sequence: JavaObject) -> Iterator[JavaObject]:
    """The items of a Scala sequence."""
    for number in range(sequence.size()):
        yield sequence.apply(number)
