"""What an instance needs of Spark: a session, its own or one that was handed in, and the topology compiled for it.

Decides what settings of the application mean for both; starting a JVM, checking a session and compiling are ``spark``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.config import StreamsConfig
from tidemill.dsl.serdes import serde_of_setting
from tidemill.kafka.config_providers import resolved_spark
from tidemill.kafka.jars import cache_folder
from tidemill.kafka.java import find_java
from tidemill.runtime.exception_policies import takes_one_by_one
from tidemill.spark import class_archive
from tidemill.spark.fork_server import ForkServer, start_fork_server
from tidemill.spark.handed_in import require_classic, require_room_for_own
from tidemill.spark.placement import is_cluster
from tidemill.spark.plan import CompiledTopology, compile_topology
from tidemill.spark.session import StartingJvm, start_jvm
from tidemill.topology.nodes import Topology

JVM_HEAP = "512m"
_WORKER_MODULES = ("pyspark.daemon", "pyspark.worker", "tidemill.runtime.worker")
_SPARE_THREADS = 4
"""Task slots of a session of ours for threads that are added later; they cost nothing until they are used."""


def starting_workers(config: StreamsConfig, given_session: Any) -> ForkServer | None:
    """What the Python workers of a session of our own are forked from; None where they are not this machine's, or not ours."""
    if given_session is not None or is_cluster(config.spark.get("master", "")):
        return None
    return start_fork_server(_WORKER_MODULES)


def starting_jvm(
    config: StreamsConfig, given_session: Any, environ: Mapping[str, str], forks: ForkServer | None
) -> StartingJvm | None:
    """A JVM for a session of our own, on its way; None where a session was handed in.

    Raises:
        ConfigError: what was handed in can't be used, or the process has a session already. EnvironmentProblem: no Java.
    """
    if given_session is not None:
        require_classic(given_session)
        return None
    require_room_for_own(environ)
    java = find_java(environ).path
    return start_jvm(
        java=java,
        application_id=config.application_id,
        threads=config.num_stream_threads + _SPARE_THREADS,
        settings=resolved_spark(config.spark),
        heap=config.spark.get("driver.memory", JVM_HEAP),
        jvm_options=class_archive.jvm_options(java, cache_folder(environ)),
        forks=forks,
    )


def compiled_for(config: StreamsConfig, topology: Topology, session: Any) -> CompiledTopology:
    """The topology as the instance's stream threads run it."""
    return compile_topology(
        session,
        topology,
        config.application_id,
        default_key=serde_of_setting(config.default_key_serde),
        default_value=serde_of_setting(config.default_value_serde),
        presum=config.presum,
        by_time=True,
        idle_ms=config.max_task_idle_ms,
        one_by_one=takes_one_by_one(config),
        emit_interval_ms=0,  # the wall clock stands still within a batch: later looks would wait for the next one
    )
