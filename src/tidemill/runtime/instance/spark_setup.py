"""What an instance needs of Spark in addition to its JVM: a session that was handed in, and the topology compiled for it.

Decides what settings of the application mean for compiling; the JVM of a session of our own is ``launching``'s.
"""

from __future__ import annotations

from typing import Any

from tidemill.config.streams_config import StreamsConfig
from tidemill.dsl.serdes import serde_of_setting
from tidemill.runtime.instance.exception_policies import takes_one_by_one
from tidemill.spark.plan.compiled_topology import CompiledTopology, compile_topology
from tidemill.topology.nodes import Topology


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
