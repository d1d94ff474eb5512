"""The Spark session that a process's drivers share: started by the first, ended with the process.

Starting one takes seconds, and a process can have one at a time. A session that is there already is used as it is.
"""

from __future__ import annotations

import atexit
import os

from pyspark.sql import SparkSession

from tidemill.runtime.instance.machine_jvm import machine_jvm
from tidemill.spark.launch.session import SparkHandle

_START_LIMIT_S = 120.0
_started: list[SparkHandle] = []


def shared_session() -> SparkSession:
    """The process's session.

    Raises:
        EnvironmentProblem: there is no Java, or the JVM does not come up.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if _started and _started[0].jvm_is_alive():
        return _started[0].session
    if not _started:
        atexit.register(close_shared_session)
    jvm = machine_jvm(os.environ, application_id="tidemill-tests", threads=1, settings={})
    _started[:] = [jvm.session(_START_LIMIT_S)]
    return _started[0].session


def close_shared_session() -> None:
    """Ends the session that ``shared_session`` has started, if it has."""
    while _started:
        _started.pop().close()
