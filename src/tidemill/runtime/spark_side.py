"""What an instance needs of Spark: a session, its own or one that was handed in, and the topology compiled for it.

Decides what settings of the application mean for both; starting a JVM, checking a session and compiling are ``spark``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.config import StreamsConfig
from tidemill.dsl.serdes import serde_of_setting
from tidemill.kafka.config_providers import resolved_spark
from tidemill.runtime.exception_policies import takes_one_by_one
from tidemill.runtime.machine_jvm import JVM_HEAP, machine_jvm
from tidemill.spark.handed_in import require_classic, require_room_for_own
from tidemill.spark.plan import CompiledTopology, compile_topology
from tidemill.spark.session import StartingJvm
from tidemill.topology.nodes import Topology

_SPARE_THREADS = 4
"""Task slots of a session of ours for threads that are added later; they cost nothing until they are used."""


def starting_jvm(config: StreamsConfig, given_session: Any, environ: Mapping[str, str]) -> StartingJvm | None:
    """A JVM for a session of our own, on its way; None where a session was handed in.

    Raises:
        ConfigError: what was handed in can't be used, or the process has a session already. EnvironmentProblem: no Java.
    """
    if given_session is not None:
        require_classic(given_session)
        return None
    require_room_for_own(environ)
    return machine_jvm(
        environ,
        application_id=config.application_id,
        threads=config.num_stream_threads + _SPARE_THREADS,
        settings=resolved_spark(config.spark),
        heap=config.spark.get("driver.memory", JVM_HEAP),
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
