"""The JVM of a Spark session as a process: its command line, its environment, its gateway and its end.

Decides the options that every JVM of ours gets, and what does not show on a command line. The JVM ends when its standard input
closes, so that no JVM outlives its driver, however that one dies. The session is ``session``'s.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark
from pyspark.serializers import UTF8Deserializer, read_int

from tidemill.config.secrets import SPARK_REDACTION, has_credentials, is_secret
from tidemill.deadline import Deadline
from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.log_format import LogEvent
from tidemill.spark.launch.cluster_settings import launch_environment
from tidemill.spark.launch.fork_server import ForkServer
from tidemill.spark.launch.function_output import OUTPUT_KEY
from tidemill.spark.launch.jvm_needs import what_it_lacked
from tidemill.spark.launch.session_checks import PIN_THREAD
from tidemill.spark.launch.worker_daemon import ADDRESS_KEY
from tidemill.spark.placement import is_cluster

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


def start_jvm_process(
    java: Path, options: Sequence[str], scratch: str, conf: Mapping[str, str], forks: ForkServer | None
) -> subprocess.Popen[bytes]:
    around = launch_environment(conf["spark.master"], java, SPARK, Path(scratch))
    shown = {name: value for name, value in conf.items() if not is_hidden(name, value, conf)}
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
        **{PIN_THREAD: "true"},
        **({} if is_cluster(conf["spark.master"]) else {OUTPUT_KEY: scratch}),
        **({} if forks is None else {ADDRESS_KEY: forks.address}),
    )
    # A session of its own: Ctrl-C is for the driver, which then closes the JVM in order.
    with open(os.path.join(scratch, "jvm.log"), "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def is_hidden(name: str, value: str, conf: Mapping[str, str]) -> bool:
    """True for what is not on the JVM's command line, and is set when the session is made."""
    return bool(_pattern(conf[SPARK_REDACTION]).search(name)) or is_secret(name) or has_credentials(value)


def _pattern(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as problem:
        raise ConfigError(f"{SPARK_REDACTION} is {regex!r}, expected a regular expression ({problem})") from None


def gateway_address(jvm: subprocess.Popen[bytes], info: Path, limit_s: float) -> tuple[int, str]:
    deadline = Deadline.after(limit_s)
    while not info.is_file():
        if jvm.poll() is not None:
            log = (info.parent / "jvm.log").read_text(errors="replace")[-2000:]
            ended = f"the Spark JVM ended with code {jvm.returncode} while starting"
            raise EnvironmentProblem(f"{ended}; {what_it_lacked(log)}it said: {log}")
        if deadline.is_over:
            end_jvm(jvm, 1.0)
            raise EnvironmentProblem(f"waited {limit_s:.0f} s for the Spark JVM to open its gateway: it never did")
        time.sleep(0.02)
    with info.open("rb") as stream:
        return read_int(stream), UTF8Deserializer().loads(stream)


def tell_of_a_refused_cache(jvm_log: Path) -> None:
    """Java 25 says so when it can't use the AOT cache that it was given, and continues without."""
    refused = [line for line in jvm_log.read_text(errors="replace").splitlines() if _AOT_ERROR.match(line)]
    if refused:
        said = "; ".join(line.rpartition("]")[2].strip() for line in refused)
        log.warning(LogEvent("jvm-cache-refused", said=said, remedy="run tidemill prepare, which makes another"))


@contextlib.contextmanager
def gateway_environment(port: int, secret: str) -> Iterator[None]:
    """PySpark takes the address of a running gateway from the environment only."""
    names = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret, "PYSPARK_PYTHON": sys.executable}
    names[PIN_THREAD] = "true"  # as the JVM has it
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


def end_jvm(jvm: subprocess.Popen[bytes], timeout_s: float) -> None:
    if jvm.stdin:
        with contextlib.suppress(OSError):
            jvm.stdin.close()
    try:
        jvm.wait(timeout_s)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait(5)
