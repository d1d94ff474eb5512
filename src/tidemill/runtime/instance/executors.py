"""An instance on a cluster master: what differs from one whose workers are processes of the driver's machine.

Decides by the master alone: then the control channel listens on TCP, stores lie on the executors' disks, and reads are asked of
the workers there. Everything else is the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tidemill.config.slices import SparkConfig, StateConfig
from tidemill.control.sockets import Listener, TcpListener
from tidemill.errors import ConfigError
from tidemill.ids import ProcessId
from tidemill.kafka.security.config_providers import references, references_shown, resolved, resolved_spark
from tidemill.runtime.worker.executor_state import ExecutorDisk
from tidemill.spark.launch.cluster_settings import driver_host
from tidemill.spark.placement import is_cluster


def master_of(config: SparkConfig, session: SparkSession | None) -> str:
    """The master of the given session, else the configured one; empty: the default."""
    return str(session.sparkContext.master) if session is not None else resolved("spark.master", config.spark.get("master", ""))


def control_listener(config: SparkConfig, session: SparkSession | None) -> Listener | None:
    """Listener at which workers find the driver; None: on this machine."""
    master = master_of(config, session)
    if not is_cluster(master):
        return None
    given: Mapping[str, str] = resolved_spark(config.spark)
    if session is not None:
        given = dict(session.sparkContext.getConf().getAll())
    with references_shown(given, {} if session is not None else references("spark.", config.spark)):
        host = driver_host(master, given)
    if config.control_listen:
        listen, _, port = config.control_listen.rpartition(":")
        return TcpListener((listen, int(port)), host)
    return TcpListener((given.get("spark.driver.bindAddress", host), 0), host)


def require_one_machine(config: SparkConfig, session: SparkSession | None, functions: Mapping[str, object]) -> None:
    """ConfigError for ``functions`` of batches, by node, on a cluster master."""
    if functions and is_cluster(master_of(config, session)):
        master = config.spark.get("master", "") if session is None else session.sparkContext.master
        raise ConfigError(
            f"{min(functions)}: foreach_batch hands a batch's records to the driver in a file on its disk, and the batch "
            f"holds its task slot meanwhile, so it can't run on the executors of {master}: set spark.master=local[*]"
        )


def executor_disk(config: StateConfig, master: str, process_id: ProcessId) -> ExecutorDisk | None:
    """None where the workers are on this machine."""
    if not is_cluster(master):
        return None
    if config.executor_state_dir and config.executor_state_dir.startswith("~"):
        raise ConfigError(f"tidemill.executor.state.dir is {config.executor_state_dir!r}: give a path without ~")
    return ExecutorDisk(
        state_dir=config.executor_state_dir or config.state_dir,
        application_id=config.application_id,
        process_id=str(process_id),
        cleanup_delay_ms=config.state_cleanup_delay_ms,
    )
