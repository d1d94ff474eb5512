"""Objects of the JVM behind a session, which py4j gives no types: plans, expressions, exceptions, and Scala's sequences of them.

Decides the one way from Python's sequences to Scala's and back. And that the JVM looks up each class once: py4j asks it at each
use, and for a name without a package the JVM first searches all jars in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from py4j.java_gateway import JavaClass, JavaGateway, JavaMember, JVMView
from pyspark.sql import SparkSession

JavaObject = Any
"""An object of the JVM: every attribute of it is a method, which py4j looks for when it is called."""


class _KnownClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """Its static methods are looked up once; a static field is read each time."""

    def __getattr__(self, name: str) -> JavaObject:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            found = _KnownClass(found._fqn, found._gateway_client)
        if isinstance(found, (JavaClass, JavaMember)):
            self.__dict__[name] = found
        return found


class _KnownClasses(JVMView):  # type: ignore[misc]
    """A JVM's classes, each looked up once by each of its names."""

    def __getattr__(self, name: str) -> JavaObject:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            found = self.__dict__[name] = _KnownClass(found._fqn, found._gateway_client)
        return found


def know_classes(gateway: JavaGateway) -> None:
    """Has PySpark look up each class of the JVM once, from now on."""
    jvm = gateway.jvm
    gateway.jvm = _KnownClasses(jvm._gateway_client, jvm._jvm_name, id=jvm._id)


def class_of(session: SparkSession, name: str) -> JavaObject:
    """A class of the JVM, by its full name: by its parts each package would be looked for as a class first."""
    return getattr(session.sparkContext._jvm, name)


def is_stopped(session: SparkSession) -> bool:
    """True if its context was stopped, by anyone, or its JVM is gone."""
    context = session.sparkContext._jsc
    try:
        return context is None or bool(context.sc().isStopped())
    except Exception:  # py4j's: there is no answer
        return True


def settings_of(session: SparkSession) -> dict[str, str]:
    """``session.conf.getAll`` in a few calls of the JVM, not two for each setting."""
    found = cast("JavaObject", session.conf)._jconf.getAll()
    names, values = (part.mkString("\0").split("\0") for part in (found.keys(), found.values()))
    return dict(zip(names, values, strict=True))


def array_of(session: SparkSession, sequence: JavaObject) -> JavaObject:
    """A new Java array of the items of a Scala sequence."""
    return class_of(session, "scala.jdk.javaapi.CollectionConverters").asJava(sequence).toArray()


def sequence_of(session: SparkSession, items: Iterable[object]) -> JavaObject:
    """A Scala sequence."""
    found = class_of(session, "java.util.ArrayList")()
    for item in items:
        found.add(item)
    return class_of(session, "org.apache.spark.api.python.PythonUtils").toSeq(found)


def items_of(sequence: JavaObject) -> Iterator[JavaObject]:
    """The items of a Scala sequence."""
    for number in range(sequence.size()):
        yield sequence.apply(number)
