"""Extensions that Spark's sessions find on the class path: a start does without where none would be missed.

PySpark comes with one, MLlib's. It registers functions that only ``pyspark.ml`` asks for, by Scala's reflection, which is a good
part of what the JVM does until there is a session. So they are registered when ``pyspark.ml`` is imported.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidemill.spark.java import class_of, is_stopped

LOADED = "spark.sql.extensions.test.loadFromCp"
"""False: extensions of the class path are not loaded. Those of ``spark.sql.extensions`` are in any case."""
_ML = "pyspark.ml"
_REGISTRATION = "org.apache.spark.sql.ml.InternalFunctionRegistration"
_CONF_DIR = "SPARK_CONF_DIR"
_MORE_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def may_wait(settings: Mapping[str, str], home: Path, environ: Mapping[str, str]) -> bool:
    """True if MLlib's is the only extension, and ``pyspark.ml`` is not imported yet.

    ``settings``: the session's; ``home``: PySpark's folder, with the jars that came with it unless somebody has put more there.
    """
    has_defaults = _CONF_DIR in environ or (home / "conf").is_dir()  # Spark reads settings there
    has_more = has_defaults or any(settings.get(name) for name in _MORE_JARS)
    return _ML not in sys.modules and not has_more and _jars(home) <= _own_jars()


def _jars(home: Path) -> set[str]:
    return {name for name in os.listdir(home / "jars") if name.endswith(".jar")}


def _own_jars() -> set[str]:
    try:
        installed = distribution("pyspark").read_text("RECORD") or ""
    except PackageNotFoundError:  # a Spark that was unpacked
        installed = ""
    return set(re.findall(r"^pyspark/jars/([^/,]+\.jar),", installed, re.MULTILINE))


def register_when_imported(session: SparkSession) -> None:
    """Registers MLlib's functions once ``pyspark.ml`` is imported; at once if it has been by now."""
    for finder in [finder for finder in sys.meta_path if isinstance(finder, _MlImported)]:
        sys.meta_path.remove(finder)  # of a session that has ended
    if _ML in sys.modules:
        _register(session)
    else:
        sys.meta_path.insert(0, _MlImported(session))


class _MlImported(MetaPathFinder):
    """Finds nothing: it is asked first."""

    def __init__(self, session: SparkSession) -> None:
        self._session, self._process = session, os.getpid()

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if fullname == _ML:
            with contextlib.suppress(ValueError):  # another thread imports it too
                sys.meta_path.remove(self)
                if self._process == os.getpid():  # the session is the parent's
                    _register(self._session)


def _register(session: SparkSession) -> None:
    with contextlib.suppress(Py4JError):  # the session ends just now
        if not is_stopped(session):
            class_of(session, _REGISTRATION)().apply(None)
