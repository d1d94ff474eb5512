"""The Spark session of an application: starting the JVM, the settings that the data path rests on, and refusing others.

Decides which settings are required (``docs/spark.md`` says why) and leaves to the user all the rest. The JVM ends when its
standard input closes, so that no JVM outlives its driver, however that one dies.

Which sessions can carry an instance at all is decided by what a session is, before anything is asked of one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from tidemill.columns.without_pandas import import_test_helpers
from tidemill.config.secrets import SPARK_REDACTED, SPARK_REDACTION, has_credentials, is_secret
from tidemill.deadline import Deadline
from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.kafka.security.config_providers import references_shown
from tidemill.kept_folder import kept_folder, remove_kept_folder, written_by
from tidemill.log_format import LogEvent
from tidemill.spark.java import is_stopped, know_classes
from tidemill.spark.launch import session_extensions
from tidemill.spark.launch.cluster_settings import check_cluster_settings, cluster_settings, launch_environment
from tidemill.spark.launch.fork_server import ForkServer
from tidemill.spark.launch.function_output import OUTPUT_KEY, FunctionOutput
from tidemill.spark.launch.jvm_needs import what_it_lacked
from tidemill.spark.launch.worker_daemon import ADDRESS_KEY
from tidemill.spark.placement import is_cluster, local_slots
from tidemill.start_trace import span, tell_process

log = logging.getLogger("tidemill.spark")
SPARK = Path(pyspark.__file__).parent
"""The folder of PySpark, which has Spark's jars."""

_ADD_OPENS = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
)  # fmt: skip

# Starting a session runs much code a little: it is compiled for speed only when it has run twenty times as often as the JVM would
# wait. An AOT cache remembers what the training compiled so, which is then compiled at once, whatever these say.
_LATER_OPTIMIZATION = (
    "-XX:Tier4InvocationThreshold=100000", "-XX:Tier4MinInvocationThreshold=20000", "-XX:Tier4CompileThreshold=200000",
    "-XX:Tier4BackEdgeThreshold=400000",
)  # fmt: skip

# What starting and compiling have needed goes back to the machine; glibc only, elsewhere the JVM warns.
_TRIMMED = ("-XX:TrimNativeHeapInterval=10000",) if sys.platform == "linux" else ()

_AOT_ERROR = re.compile(r"\[[^]]*\]\[error *\]\[aot")

_RETRYING_MASTER = re.compile(r"local\[\s*(?P<slots>[0-9]+|\*)\s*,\s*(?P<failures>[0-9]+)\s*\]")
"""A local master with a second number, which counts in place of ``spark.task.maxFailures``."""

JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-Xss4m",  # Catalyst walks a plan by recursion: with the usual 1 MiB it fails at some 150 functions in a row
    "-XX:+IgnoreUnrecognizedVMOptions",
    *_TRIMMED,
    *_LATER_OPTIMIZATION,
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _ADD_OPENS),
    # Netty, Arrow and Spark use what later versions of Java warn of; those before know no such option, and ignore it.
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.jfr.enabled=false",  # at its first buffer Netty would have the JVM set up Flight Recorder
    "-Dlog4j2.level=ERROR",
)
"""Options of every JVM that Tidemill starts, the heap's size apart; a class cache fits these only (``jvm_cache``)."""

REQUIRED: Mapping[str, str] = {
    # A retried source step has moved on: a lost batch starts again at the committed offsets instead (rule 4).
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    # The transactional producer, the consumers and open stores live in the workers from batch to batch.
    "spark.python.worker.reuse": "true",
}

_PIN_THREAD = "PYSPARK_PIN_THREAD"
"""Unless it is false, PySpark gives each thread of Python one of the JVM's, which has the local properties of its jobs."""

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
        _end_jvm(self.jvm, timeout_s)
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
            with _gateway_environment(*address), span("Spark session made"):
                gateway = launch_gateway()
                gateway.proc = self.process  # as PySpark does with a JVM that it starts itself
                know_classes(gateway)
                # The JVM has the others, which here are four calls of it each.
                chosen: dict[str, bool | float | int | str | None] = {"spark.app.name": self.application_id}
                chosen.update({name: value for name, value in self.conf.items() if _is_hidden(name, value, self.conf)})
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
        address = _gateway_address(self.process, Path(self.scratch) / "gateway", limit_s)
        _tell_of_a_refused_cache(Path(self.scratch) / "jvm.log")
        return address

    def end(self) -> None:
        """For a JVM that is not wanted any more; nothing happens where it has ended already."""
        _end_jvm(self.process, 2.0)
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
            process = _jvm_process(java, options, scratch, conf, forks)
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


def check_settings(settings: Mapping[str, str]) -> None:
    master = str(settings.get("spark.master", ""))
    retrying = _RETRYING_MASTER.fullmatch(master.strip())
    if retrying and int(retrying["failures"]) != 1:
        needed = f"local[{retrying['slots']}]"
        raise ConfigError(
            f"spark.master is {master!r}, which tries a task {retrying['failures']} times, but exactly-once needs {needed!r}: "
            "leave the second number out"
        )
    for name, needed in REQUIRED.items():
        value = settings.get(name)
        if value is not None and str(value).lower() != needed:
            raise ConfigError(f"{name} is {value!r}, but exactly-once needs {needed!r}: remove the setting")


def _jvm_process(
    java: Path, options: Sequence[str], scratch: str, conf: Mapping[str, str], forks: ForkServer | None
) -> subprocess.Popen[bytes]:
    around = launch_environment(conf["spark.master"], java, SPARK, Path(scratch))
    shown = {name: value for name, value in conf.items() if not _is_hidden(name, value, conf)}
    command = [
        str(java),
        *options,
        *JVM_FLAGS,
        f"-Djava.io.tmpdir={scratch}",
        "-cp",
        str(SPARK / "jars" / "*"),
        "org.apache.spark.deploy.SparkSubmit",
        *(word for name, value in shown.items() for word in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]
    # Spark's UI knows no logins, and listens on all addresses unless this variable says otherwise.
    listens = {} if is_cluster(conf["spark.master"]) else {"SPARK_LOCAL_IP": conf["spark.driver.bindAddress"]}
    environment = dict(
        # Clients have many threads, and an arena for each is memory for nothing.
        {"MALLOC_ARENA_MAX": "2", **listens, **os.environ},
        **{"SPARK_HOME": str(SPARK), "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": f"{scratch}/gateway", **around},
        **{_PIN_THREAD: "true"},
        **({} if is_cluster(conf["spark.master"]) else {OUTPUT_KEY: scratch}),
        **({} if forks is None else {ADDRESS_KEY: forks.address}),
    )
    # A session of its own: Ctrl-C is for the driver, which then closes the JVM in order.
    with open(os.path.join(scratch, "jvm.log"), "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def _is_hidden(name: str, value: str, conf: Mapping[str, str]) -> bool:
    """True for what is not on the JVM's command line, and is set when the session is made."""
    return bool(_pattern(conf[SPARK_REDACTION]).search(name)) or is_secret(name) or has_credentials(value)


def _pattern(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as problem:
        raise ConfigError(f"{SPARK_REDACTION} is {regex!r}, expected a regular expression ({problem})") from None


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


def _gateway_address(jvm: subprocess.Popen[bytes], info: Path, limit_s: float) -> tuple[int, str]:
    deadline = Deadline.after(limit_s)
    while not info.is_file():
        if jvm.poll() is not None:
            log = (info.parent / "jvm.log").read_text(errors="replace")[-2000:]
            ended = f"the Spark JVM ended with code {jvm.returncode} while starting"
            raise EnvironmentProblem(f"{ended}; {what_it_lacked(log)}it said: {log}")
        if deadline.is_over:
            _end_jvm(jvm, 1.0)
            raise EnvironmentProblem(f"waited {limit_s:.0f} s for the Spark JVM to open its gateway: it never did")
        time.sleep(0.02)
    with info.open("rb") as stream:
        return read_int(stream), UTF8Deserializer().loads(stream)


def _tell_of_a_refused_cache(jvm_log: Path) -> None:
    """Java 25 says so when it can't use the AOT cache that it was given, and continues without."""
    refused = [line for line in jvm_log.read_text(errors="replace").splitlines() if _AOT_ERROR.match(line)]
    if refused:
        said = "; ".join(line.rpartition("]")[2].strip() for line in refused)
        log.warning(LogEvent("jvm-cache-refused", said=said, remedy="run tidemill prepare, which makes another"))


@contextlib.contextmanager
def _gateway_environment(port: int, secret: str) -> Iterator[None]:
    """PySpark takes the address of a running gateway from the environment only."""
    names = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret, "PYSPARK_PYTHON": sys.executable}
    names[_PIN_THREAD] = "true"  # as the JVM has it
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_jvm(jvm: subprocess.Popen[bytes], timeout_s: float) -> None:
    if jvm.stdin:
        with contextlib.suppress(OSError):
            jvm.stdin.close()
    try:
        jvm.wait(timeout_s)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait(5)


_CONNECT = "pyspark.sql.connect."


def require_classic(session: object) -> None:
    """ConfigError for a session of Spark Connect, or for what is no session at all."""
    kind = type(session)
    if f"{kind.__module__}.".startswith(_CONNECT):
        raise ConfigError(
            "the session that was handed in is a Spark Connect session, whose JVM is out of reach: hand in a classic one "
            "(SparkSession.builder.master('local[4]').getOrCreate() without SPARK_REMOTE), or none"
        )
    if not hasattr(session, "sparkContext"):
        raise ConfigError(f"session is a {kind.__module__}.{kind.__qualname__}, expected a SparkSession")
    if not isinstance(session.sparkContext._gateway, ClientServer):
        raise ConfigError(
            f"the session that was handed in was started with {_PIN_THREAD}=false, so that threads share those of the JVM: the "
            "job of one would have the properties of another's. Unset it, and start again"
        )


def require_room_for_own(environ: Mapping[str, str]) -> None:
    """ConfigError where a session of our own can't be started: a process has one SparkContext at most."""
    if environ.get("SPARK_REMOTE"):
        raise ConfigError("SPARK_REMOTE is set, which makes every session a Spark Connect session: unset it, and start again")
    active = SparkContext._active_spark_context
    if active is not None:
        raise ConfigError(
            f"this process has a SparkSession already ({active.appName}): hand it in with KafkaStreams(..., session=spark), or "
            "stop it first with spark.stop()"
        )
