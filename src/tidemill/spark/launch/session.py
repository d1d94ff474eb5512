"""The Spark session of an application: started with a JVM of its own, or handed in.

Decides the settings of a session of our own, and leaves to the user all that ``session_checks`` does not refuse. How its JVM runs
is ``jvm_process``'.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidemill.columns.without_pandas import import_test_helpers
from tidemill.config.secrets import SPARK_REDACTED, SPARK_REDACTION
from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.kafka.security.config_providers import references_shown
from tidemill.kept_folder import kept_folder, remove_kept_folder, written_by
from tidemill.spark.java import is_stopped, know_classes
from tidemill.spark.launch import session_extensions
from tidemill.spark.launch.cluster_settings import check_cluster_settings, cluster_settings
from tidemill.spark.launch.fork_server import ForkServer
from tidemill.spark.launch.function_output import FunctionOutput
from tidemill.spark.launch.jvm_needs import what_it_lacked
from tidemill.spark.launch.jvm_process import (
    SPARK,
    end_jvm,
    gateway_address,
    gateway_environment,
    is_hidden,
    start_jvm_process,
    tell_of_a_refused_cache,
)
from tidemill.spark.launch.session_checks import REQUIRED, check_settings
from tidemill.spark.placement import is_cluster, local_slots
from tidemill.start_trace import span, tell_process

_DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.metrics.executorMetricsSource.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    # What foreach_batch asks of a micro-batch is small; plans of streams never have it (plan_session).
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # What a reduce of Columns merges has more keys than the 128 from which on Spark would sort all rows.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # A filter inferred from explode() computes the exploded array a second time.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.InferFiltersFromGenerate",
    # Noting the call site of every expression takes several calls of the JVM each: most of the time of compiling a plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A driver that runs for weeks keeps nothing of past batches (rule 22).
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.log.level": "ERROR",
    # What its page and its plans don't show; nor is it on the JVM's command line, which everyone on the machine can read.
    SPARK_REDACTION: SPARK_REDACTED,
}
"""Settings of a session of our own, unless the user has others."""


@dataclass(slots=True)
class SparkHandle:
    """A session and, if we started it, its JVM. ``close()`` leaves a session that was handed in as it is."""

    session: SparkSession
    jvm: subprocess.Popen[bytes] | None
    scratch: str | None
    output: FunctionOutput | None = None
    process: int = field(default_factory=os.getpid)
    """The process that it was made in: one that is forked from it ends nothing."""

    def is_alive(self) -> bool:
        """False once the JVM has died or the session was stopped."""
        return (self.jvm is None or self.jvm.poll() is None) and not is_stopped(self.session)

    @property
    def ui(self) -> str | None:
        """Address of Spark's own UI; None if it is off."""
        return self.session.sparkContext.uiWebUrl

    def leave_to_parent(self) -> None:
        """In a forked process: py4j's connections are the parent's, and would be shut down for both when this process drops them.
        """
        gateway = SparkContext._gateway
        for connection in list(getattr(getattr(gateway, "_gateway_client", None), "deque", ())):
            if connection.socket is not None:
                connection.stream.close()
                connection.socket.close()
                connection.stream = connection.socket = None

    def close(self, timeout_s: float = 10.0) -> None:
        if self.jvm is None or self.process != os.getpid():
            return
        with contextlib.suppress(Exception):
            self.session.stop()
        with contextlib.suppress(Exception):
            self.session.sparkContext.stop()  # what asks the JVM was tried before: this does the rest
        with contextlib.suppress(Exception):
            if SparkContext._gateway is not None:
                SparkContext._gateway.shutdown()
        _forget_session()
        end_jvm(self.jvm, timeout_s)
        if self.output is not None:
            self.output.close()
        if self.scratch:
            remove_kept_folder(self.scratch)


def _forget_session() -> None:
    """PySpark keeps the gateway as long as the process lives, and its own stop gives up in the middle where the JVM has died; the
    next session here has a JVM of its own."""
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


@dataclass(slots=True)
class StartingJvm:
    """A JVM on its way to a session: it takes seconds, in which its owner can do other things."""

    application_id: str
    process: subprocess.Popen[bytes]
    scratch: str
    conf: Mapping[str, str]
    output: FunctionOutput | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    """Those of ``conf`` that were looked up, as errors show them."""

    def session(self, start_limit_s: float = 180.0) -> SparkHandle:
        """Waits for the JVM and makes the session; if that fails the JVM is ended.

        Raises:
            EnvironmentProblem: the JVM ended, or did not come up within ``start_limit_s``.
        """
        with references_shown(self.conf, self.written):
            return self._session(start_limit_s)

    def _session(self, start_limit_s: float) -> SparkHandle:
        gateway = None
        try:
            import_test_helpers()
            with span("JVM waited for"):
                address = self.wait(start_limit_s)
            tell_process("until its gateway answers", self.process.pid, "JVM", time.time())
            with gateway_environment(*address), span("Spark session made"):
                gateway = launch_gateway()
                gateway.proc = self.process  # as PySpark does with a JVM that it starts itself
                know_classes(gateway)
                # The JVM has the others, which here are four calls of it each.
                chosen: dict[str, bool | float | int | str | None] = {"spark.app.name": self.application_id}
                chosen.update({name: value for name, value in self.conf.items() if is_hidden(name, value, self.conf)})
                SparkContext._ensure_initialized(gateway=gateway)
                with _own_interrupt():
                    SparkContext.getOrCreate(SparkConf().setAll([(name, str(value)) for name, value in chosen.items()]))
                session = SparkSession.builder.config(map=chosen).getOrCreate()
            session.sparkContext.pythonExec = self.conf.get("spark.pyspark.python", sys.executable)
            session.sparkContext.setLogLevel(self.conf["spark.log.level"])
            if self.conf.get(session_extensions.LOADED) == "false":
                session_extensions.register_when_imported(session)
        except Py4JJavaError as problem:
            said = str(problem.java_exception)  # asked of the JVM, so before it ends
            self._give_up(gateway)
            raise EnvironmentProblem(f"no Spark session on {self.conf['spark.master']}: {what_it_lacked(said)}{said}") from None
        except BaseException:
            self._give_up(gateway)
            raise
        output, self.output = self.output, None
        return SparkHandle(session=session, jvm=self.process, scratch=self.scratch, output=output)

    def _give_up(self, gateway: object) -> None:
        """After a failure, or Ctrl-C, wherever it comes in the making of a session: the next one here finds nothing of it."""
        self.end()
        if gateway is not None and SparkContext._gateway is gateway:
            _forget_session()

    def wait(self, limit_s: float) -> tuple[int, str]:
        """Port and secret of the JVM's gateway; what the JVM says of a cache that it does not use is logged.

        Raises:
            EnvironmentProblem: as ``session``.
        """
        address = gateway_address(self.process, Path(self.scratch) / "gateway", limit_s)
        tell_of_a_refused_cache(Path(self.scratch) / "jvm.log")
        return address

    def end(self) -> None:
        """For a JVM that is not wanted any more; nothing happens where it has ended already."""
        end_jvm(self.process, 2.0)
        if self.output is not None:
            self.output.close()
            self.output = None
        remove_kept_folder(self.scratch)


def start_jvm(
    *,
    java: Path,
    application_id: str,
    threads: int,
    settings: Mapping[str, str],
    heap: str,
    jvm_options: Sequence[str] = (),
    forks: ForkServer | None = None,
    written: Mapping[str, str] | None = None,
) -> StartingJvm:
    """Starts a JVM on ``java`` for a session with one slot per stream thread and one to spare; returns at once.

    ``settings`` are the user's ``spark.*`` settings; one that contradicts REQUIRED is a ConfigError. ``written``: those that were
    looked up, as they were written. ``forks``: what Python workers are forked from.
    """
    master = settings.get("spark.master", f"local[{threads + 1}]")
    with references_shown(settings, written or {}):
        check_settings(settings)
        own = cluster_settings(master, settings)
    scratch, output = kept_folder("tidemill-spark-"), None
    if not is_cluster(master):  # executors elsewhere have folders of their own
        own["spark.local.dir"] = scratch
        # Else whoever can connect to the driver's ports gets its broadcasts, plans with logins in them among them, and may send
        # it any Java object. Spark makes the secret itself here; on a cluster it is the user's to share.
        own["spark.authenticate"] = "true"
        own["spark.python.daemon.module"] = "tidemill.spark.launch.worker_daemon"
    if session_extensions.may_wait(settings, SPARK, os.environ):
        own[session_extensions.LOADED] = "false"
    conf = {**_DEFAULTS, **REQUIRED, **own, **settings, "spark.master": master}
    # The whole heap from the beginning, most of it for what a batch leaves behind: fewer collections, each of little.
    options = [f"-Xmx{heap}", f"-Xms{heap}", "-XX:NewRatio=1", *jvm_options]
    try:
        if not is_cluster(master):
            output = FunctionOutput(Path(scratch))
        with references_shown(settings, written or {}):
            process = start_jvm_process(java, options, scratch, conf, forks)
    except BaseException:
        if output is not None:
            output.close()
        remove_kept_folder(scratch)
        raise
    written_by(scratch, process)
    return StartingJvm(
        application_id=application_id, process=process, scratch=scratch, conf=conf, output=output, written=written or {}
    )


def adopt_session(session: SparkSession, threads: int, taken: int = 0) -> SparkHandle:
    """Uses a session that was handed in, after checking that it can carry the data path. ``taken``: slots that stream threads of
    other instances have."""
    conf = session.sparkContext.getConf()
    found = {name: conf.get(name, None) for name in ("spark.master", *REQUIRED)}
    check_settings({name: value for name, value in found.items() if value is not None})
    if is_cluster(session.sparkContext.master or ""):
        check_cluster_settings(dict(conf.getAll()))
        return SparkHandle(session=session, jvm=None, scratch=None)  # its executors may be on their way
    slots = local_slots(session.sparkContext)
    if slots < taken + threads + 1:
        others = f", of which other instances in this process have {taken}" if taken else ""
        end_them = "close one of those, " if taken else ""
        cores = (taken + threads + 1) * int(conf.get("spark.task.cpus", "1") or 1)
        raise ConfigError(
            f"the Spark session has {slots} task slots{others}, but {threads} stream threads need {threads} and one to spare: "
            f"{end_them}start it with master local[{cores}] or set num.stream.threads to {max(slots - taken - 1, 1)}"
        )
    return SparkHandle(session=session, jvm=None, scratch=None)


@contextlib.contextmanager
def _own_interrupt() -> Iterator[None]:
    """PySpark takes Ctrl-C for itself when a context starts; what it does then is ours to decide. Its handler calls the JVM: keep
    calls of the JVM behind that start out of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
