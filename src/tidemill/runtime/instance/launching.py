"""The processes that take longest to start, and that need nothing else: the JVM, and what Python workers are forked from.

Decides what settings of the application mean for both. Imports little: ``tidemill run`` launches them before it imports all that
an instance consists of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.config.slices import SparkConfig
from tidemill.kafka.security.config_providers import references, resolved_spark
from tidemill.runtime.instance.machine_jvm import JVM_HEAP, machine_jvm
from tidemill.spark.launch.fork_server import ForkServer, start_fork_server
from tidemill.spark.launch.session import StartingJvm
from tidemill.spark.launch.session_checks import require_room_for_own
from tidemill.spark.placement import is_cluster
from tidemill.start_trace import span

_YOUNG = "32m"
"""Size of the young generation, if the heap size is not set: it is filled before the first collection, however little lives
on."""
_SPARE_THREADS = 4
"""Task slots of a session of ours for threads that are added later; they cost nothing until they are used."""
WORKER_MODULES = ("pyspark.daemon", "pyspark.worker", "pyarrow.compute", "numpy.ma", "tidemill.runtime.worker.worker")
"""What workers have imported when they are forked. ``numpy.ma``: pyarrow imports it at the first array that NumPy has made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """Both on their way. ``forks`` is None where workers are other machines'."""

    jvm: StartingJvm
    forks: ForkServer | None

    def end(self) -> None:
        """Ends both, if they are not wanted any more; does nothing where they have ended already."""
        self.jvm.end()
        if self.forks is not None:
            self.forks.close()

    def leave_to_parent(self) -> None:
        """In a forked process: both end when the last copy of their standard input is closed, and this is one."""
        for process in (self.jvm.process, *([] if self.forks is None else [self.forks.process])):
            if process.stdin is not None:
                process.stdin.close()


def _heap_options(config: SparkConfig) -> list[str]:
    return [] if "driver.memory" in config.spark else [f"-Xmn{_YOUNG}"]


def launch(config: SparkConfig, environ: Mapping[str, str]) -> Launched:
    """Returns at once.

    Raises:
        ConfigError: settings that can't be used, or the process has a session already. EnvironmentProblem: no Java.
    """
    require_room_for_own()
    settings = resolved_spark(config.spark)
    return launch_jvm(
        environ,
        application_id=config.application_id,
        threads=config.num_stream_threads + _SPARE_THREADS,
        settings=settings,
        heap=settings.get("spark.driver.memory", JVM_HEAP),
        jvm_options=_heap_options(config),
        written=references("spark.", config.spark),
    )


def launch_jvm(
    environ: Mapping[str, str],
    *,
    application_id: str,
    threads: int,
    settings: Mapping[str, str] | None = None,
    heap: str = JVM_HEAP,
    jvm_options: Sequence[str] = (),
    written: Mapping[str, str] | None = None,
) -> Launched:
    """``machine_jvm`` with what its workers are forked from, where they are this machine's.

    Raises:
        ConfigError: the environment makes every session one of Spark Connect. EnvironmentProblem: there is no Java.
    """
    settings = settings or {}
    forks = None if is_cluster(settings.get("spark.master", "")) else start_fork_server(WORKER_MODULES)
    try:
        with span("JVM launched"):
            jvm = machine_jvm(
                environ, application_id=application_id, threads=threads, settings=settings, heap=heap, jvm_options=jvm_options,
                forks=forks, written=written,
            )  # fmt: skip
    except BaseException:
        if forks is not None:
            forks.close()
        raise
    return Launched(jvm=jvm, forks=forks)
