"""Which Python worker runs a function of a plan: Spark has a pool of workers for each distinct environment of a function, so a
variable of its own pins one (rule 20).

PySpark takes the environment of a function from its context when the function is put into a plan, and all threads of the process
share the context, those of the application's owner too. So what is added for one is seen by the adding thread only.

Workers import what the driver imports, from the same folders, so they must be of its Python version. A session of the application
starts ``python3`` of the PATH for them, unless ``PYSPARK_PYTHON`` is set.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidemill.errors import ConfigError
from tidemill.spark.launch.worker_daemon import import_path
from tidemill.spark.placement import is_cluster

WORKER_KEY = "TIDEMILL_WORKER"
_INSTALL = threading.Lock()
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_VERSION_LIMIT_S = 30.0


class _Environment(MutableMapping[str, str]):
    """``SparkContext.environment``: what all threads see, and what a thread sees in its place."""

    def __init__(self, shared: MutableMapping[str, str]) -> None:
        self._shared, self._of_thread = shared, threading.local()

    @contextlib.contextmanager
    def adding(self, variables: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Within it this thread sees these variables too, and what is put into the mapping it gives."""
        before = self._seen()
        seen = {**before, **variables}
        self._of_thread.seen = seen
        try:
            yield seen
        finally:
            if before is self._shared:
                del self._of_thread.seen
            else:
                self._of_thread.seen = before

    def _seen(self) -> MutableMapping[str, str]:
        seen: MutableMapping[str, str] = getattr(self._of_thread, "seen", self._shared)
        return seen

    def __getitem__(self, name: str) -> str:
        return self._seen()[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._shared[name] = value

    def __delitem__(self, name: str) -> None:
        del self._shared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._seen()))

    def __len__(self) -> int:
        return len(self._seen())


@contextlib.contextmanager
def pinning(session: SparkSession, thread: str) -> Iterator[Callable[[str], None]]:
    """Within it, the function it gives names the worker of every Python step that this thread adds to a plan next."""
    # What the application imports, files in its folder included, the workers can import too, and nothing before it.
    with _environment_of(session).adding(import_path()) as seen:
        yield lambda step: seen.__setitem__(WORKER_KEY, f"{thread}/{step}")


@contextlib.contextmanager
def own_workers(session: SparkSession) -> Iterator[None]:
    """Within it a function gets workers that are none of a step's: these stay the same from run to run."""
    environment = _environment_of(session)
    step = environment.get(WORKER_KEY)
    # No step: a plan that is only looked at.
    with environment.adding({WORKER_KEY: f"{step}/udf"} if step else {}):
        yield


def require_own_version(context: SparkContext) -> None:
    """ConfigError if a session's workers on this machine would be of another Python version than this process."""
    executable, own = context.pythonExec, ".".join(map(str, sys.version_info[:2]))
    if executable == sys.executable or is_cluster(context.master or ""):
        return
    found = _version_of(executable)
    if found and found != own:
        raise ConfigError(
            f"the Spark session starts {executable} for its Python workers, which is Python {found}; this process is Python "
            f"{own}: set PYSPARK_PYTHON={sys.executable} in the environment before the session is made"
        )


@functools.cache
def _version_of(executable: str) -> str:
    """The Python version, such as ``3.12``; empty: it can't be asked, and Spark will say why."""
    try:
        asked = subprocess.run(
            [executable, "-c", _VERSION], capture_output=True, text=True, timeout=_VERSION_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()


def _environment_of(session: SparkSession) -> _Environment:
    context = session.sparkContext
    with _INSTALL:
        environment: MutableMapping[str, str] = context.environment
        if not isinstance(environment, _Environment):
            environment = _Environment(environment)
            context.environment = environment  # type: ignore[assignment]  # PySpark only reads names and values from it
        return environment
