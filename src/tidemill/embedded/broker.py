"""A real single-node Kafka that lives as long as the code that uses it: for the demo, benchmarks and tests.

Decides how an owned broker starts, stops, is killed and comes back on the same data and port. Invariant: the broker
never outlives its owner, however that ends (`tidemill.embedded.guard`). One that does is in `tidemill.embedded.daemon`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tidemill.embedded import guard
from tidemill.embedded.broker_cache import broker_cache
from tidemill.embedded.broker_plan import (
    BrokerPlan,
    PortTakenError,
    free_port,
    log_size,
    prepare,
    set_users,
    wait_until_ready,
)
from tidemill.embedded.broker_return import end_old_registration
from tidemill.embedded.broker_security import BrokerSecurity
from tidemill.embedded.jars import cache_folder, fetch_bundle
from tidemill.embedded.java import find_java
from tidemill.errors import EnvironmentProblem

_FREE_PORT_TRIES = 3


class EmbeddedBroker:
    """One broker, owned by this process; a context manager that starts and stops it.

    Without `data` it keeps its data in a temporary folder that goes when the `with` block ends; without `port` it takes
    a free one. `start` after `stop` or `kill` brings it back on the same data and port. Not for use from several threads
    at once.

    Args:
        environ: where Java (JAVA_HOME, PATH) and the jars' cache (TIDEMILL_CACHE_DIR) are looked for; None: this process's.
        data: folder of its data; None: a temporary one.
        port: where it listens on 127.0.0.1; None: a free one.
        heap_mb: heap of its JVM, in MiB.
        settings: settings of the broker under Kafka's names.
        security: TLS, logins and ACLs; None: everyone on this machine may do everything.
        start_limit_s: how long a start may take.
        progress: gets a sentence now and then while jars are fetched.

    Raises:
        EnvironmentProblem: no Java, jars that can't be fetched; by `start`: a port in use, a folder that can't be written.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        data: Path | None = None,
        port: int | None = None,
        heap_mb: int = 384,
        settings: Mapping[str, str] | None = None,
        security: BrokerSecurity | None = None,
        start_limit_s: float = 120,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        environ = os.environ if environ is None else environ
        java = find_java(environ)
        bundle = fetch_bundle("broker", environ=environ, progress=progress)
        self._data_is_temporary = data is None
        self._port_may_change = port is None
        self._start_limit_s = start_limit_s
        self._guard: subprocess.Popen[str] | None = None
        self._pid: int | None = None
        self._owner = os.getpid()
        chosen = free_port() if port is None else port
        controller = free_port(chosen)
        self._plan = BrokerPlan(
            java=java,
            bundle=bundle,
            data=Path(tempfile.mkdtemp(prefix="tidemill-broker-")) if data is None else data.absolute(),
            port=chosen,
            controller_port=controller,
            heap_mb=heap_mb,
            settings=dict(settings or {}),
            security=security,
            internal_port=free_port(chosen, controller) if security is not None else 0,
            jvm_options=broker_cache(java, bundle, cache_folder(environ)).options(),
        )

    @property
    def bootstrap_servers(self) -> str:
        """``bootstrap.servers`` for its clients: host:port."""
        return self._plan.bootstrap_servers

    @property
    def internal_servers(self) -> str:
        """Address at which a secured broker takes everyone for a super user: for setting it up."""
        return self._plan.internal_servers

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._plan.port

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self._plan.data

    @property
    def log_file(self) -> Path:
        """Its server log."""
        return self._plan.log_file

    @property
    def pid(self) -> int:
        """The JVM's process id; RuntimeError when it isn't running."""
        if self._pid is None or not self.is_running:
            raise RuntimeError("the broker is not running")
        return self._pid

    @property
    def is_running(self) -> bool:
        """True between `start` and `stop`, `kill` or its own end."""
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Starts the broker and returns when it takes clients; EnvironmentProblem says why it can't."""
        if self.is_running:
            raise RuntimeError(f"the broker is already running as process {self.pid}")
        self._owner = os.getpid()
        tries = _FREE_PORT_TRIES if self._port_may_change else 1
        while True:
            tries -= 1
            try:
                self._start_once()
                break
            except PortTakenError:  # a free port was only found, not held: another process may have taken it since
                self.kill()
                if not tries:
                    raise
                port = free_port()
                controller = free_port(port)
                internal = free_port(port, controller) if self._plan.security is not None else 0
                self._plan = replace(self._plan, port=port, controller_port=controller, internal_port=internal)
            except BaseException:
                self.kill()
                raise
        self._port_may_change = False

    def stop(self, *, limit_s: float = 20) -> None:
        """Stops the broker in good order, or by SIGKILL after the limit; nothing if it isn't running."""
        self._end(signal.SIGTERM, limit_s)
        self._end(signal.SIGKILL, limit_s)

    def kill(self) -> None:
        """SIGKILL, as a crash would be; the data stays as it is."""
        self._end(signal.SIGKILL, 20)

    def __enter__(self) -> EmbeddedBroker:
        try:
            self.start()
        except BaseException:
            self._remove_temporary_data()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owner != os.getpid():  # forked from the owner's process
            return
        if self._data_is_temporary:  # it is not read again: no need to wait for an orderly end
            self.kill()
            self._remove_temporary_data()
        else:
            self.stop()

    def _start_once(self) -> None:
        prepare(self._plan, limit_s=self._start_limit_s)
        end_old_registration(self._plan, limit_s=self._start_limit_s)
        log_offset = log_size(self._plan)
        folder = str(self.data) if self._data_is_temporary else "-"
        self._guard, self._pid = guard.start(self._plan.run_command(), console=self._plan.console_file, folder=folder)
        if self._pid is None:
            raise EnvironmentProblem(f"can't run {self._plan.java.path}: see {self._plan.console_file}")
        wait_until_ready(
            self._plan, log_offset=log_offset, is_alive=lambda: self.is_running, limit_s=self._start_limit_s
        )
        set_users(self._plan)

    def _end(self, number: signal.Signals, limit_s: float) -> None:
        if self._guard is None:
            return
        if self.is_running and self._pid is not None:
            os.kill(self._pid, number)
        try:
            self._guard.wait(limit_s)
        except subprocess.TimeoutExpired:
            if number == signal.SIGKILL:
                self._guard.kill()
            return
        self._guard = self._pid = None

    def _remove_temporary_data(self) -> None:
        if self._data_is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)
