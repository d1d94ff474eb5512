"""The Spark session that the test drivers of a process share.

Decides when it starts and ends: with the first driver, and with the process, or the tests' session. A session that is there
already is used as it is. Starting one takes seconds, and a process can have one at a time.
"""

from __future__ import annotations

import atexit
import os

from pyspark.sql import SparkSession

from tidemill.errors import StopError
from tidemill.forked import leaves_to_parent
from tidemill.runtime.instance.launching import Launched, launch_jvm
from tidemill.spark.launch.session import SparkHandle
from tidemill.spark.plan.pinned_workers import require_own_version

_START_LIMIT_S = 240.0


class _SharedSession:
    """The session that was started for the drivers, if one was, and what its workers are forked from."""

    def __init__(self) -> None:
        self.handles: list[SparkHandle] = []
        self.launched: list[Launched] = []

    def start(self) -> None:
        """In place of one that has ended."""
        self.end()
        launched = launch_jvm(os.environ, application_id="tidemill-tests", threads=1)
        self.launched.append(launched)
        try:
            self.handles.append(launched.jvm.session(_START_LIMIT_S))
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        if any(handle.process != os.getpid() for handle in self.handles):
            return  # all of it is the parent's
        while self.handles:
            self.handles.pop().close()
        while self.launched:
            self.launched.pop().end()

    def require_own_process(self) -> None:
        for handle in self.handles:
            if handle.process != os.getpid():
                raise StopError(
                    f"the session of the test drivers runs in process {handle.process}, from which this one was forked: use "
                    "drivers there, or fork before the first one is made"
                )

    def show_output(self) -> None:
        """What functions have printed by now: it comes before what the test prints next."""
        for handle in self.handles:
            if handle.output is not None:
                handle.output.pass_on()

    def leave_to_parent(self) -> None:
        """In a forked process."""
        for handle in self.handles:
            handle.leave_to_parent()
        for launched in self.launched:
            launched.leave_to_parent()


STARTED = _SharedSession()
leaves_to_parent(STARTED)


def shared_session() -> SparkSession:
    """The process's session.

    Raises:
        EnvironmentProblem: there is no Java, or the JVM does not come up.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        require_own_version(active.sparkContext)
        return active
    handles = STARTED.handles
    if handles and handles[0].is_alive():
        return handles[0].session
    if not handles:
        atexit.register(close_shared_session)
    STARTED.start()
    return handles[0].session


def close_shared_session() -> None:
    """Ends the session that ``shared_session`` has started, if it has."""
    STARTED.end()
