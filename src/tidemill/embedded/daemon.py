"""The everyday broker: started by one command, stopped by another, living on in between.

Decides how such brokers are remembered: one small file per broker in a records folder, with its pid, when that process
began (so that a pid that was given out again is not taken for it), its port and its data folder. A record whose process
is gone is worth nothing and is removed where it is met.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import psutil

from tidemill.embedded.broker_cache import broker_cache
from tidemill.embedded.broker_plan import HOST, BrokerPlan, free_port, log_size, prepare, set_users, wait_until_ready
from tidemill.embedded.broker_return import end_old_registration
from tidemill.embedded.broker_security import BrokerSecurity
from tidemill.embedded.jars import cache_folder, fetch_bundle
from tidemill.embedded.java import find_java
from tidemill.errors import EnvironmentProblem
from tidemill.held_interrupts import interrupts_held

DEFAULT_PORT = 9092
_START_LIMIT_S = 120.0
_STOP_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """A broker that was started by command and is alive. ``internal_port``: of a secured one, where everyone is a super user."""

    pid: int
    began: float
    port: int
    data: str
    internal_port: int = 0

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def internal_servers(self) -> str:
        """Address of a secured broker's internal listener, where every client of this machine is a super user."""
        return f"{HOST}:{self.internal_port}"


def start_broker(
    *,
    environ: Mapping[str, str],
    records: Path,
    data: Path,
    port: int = DEFAULT_PORT,
    security: BrokerSecurity | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> RunningBroker:
    """Starts a broker that outlives this process and returns when it takes clients."""
    controller = free_port(port)
    java, bundle = find_java(environ), fetch_bundle("broker", environ=environ, progress=progress)
    plan = BrokerPlan(
        java=java,
        bundle=bundle,
        data=data.absolute(),
        port=port,
        controller_port=controller,
        security=security,
        internal_port=free_port(port, controller) if security is not None else 0,
        jvm_options=broker_cache(java, bundle, cache_folder(environ)).options(),
    )
    prepare(plan, limit_s=_START_LIMIT_S)
    end_old_registration(plan, limit_s=_START_LIMIT_S)
    log_offset = log_size(plan)
    jvm: subprocess.Popen[bytes] | None = None
    try:
        with interrupts_held():
            jvm = _spawn(plan)
        began = psutil.Process(jvm.pid).create_time()
        wait_until_ready(plan, log_offset=log_offset, is_alive=partial(_is_alive, jvm), limit_s=_START_LIMIT_S)
        set_users(plan)
        broker = RunningBroker(pid=jvm.pid, began=began, port=port, data=str(plan.data), internal_port=plan.internal_port)
        _remember(broker, records)
    except BaseException:
        if jvm is not None:
            jvm.kill()
            jvm.wait()
        raise
    return broker


def running_brokers(records: Path) -> list[RunningBroker]:
    """The brokers that were started by command and are alive, by port."""
    brokers = []
    for path in sorted(records.glob("*.json")):
        try:
            broker = RunningBroker(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if _process(broker) is None:
            path.unlink(missing_ok=True)
        else:
            brokers.append(broker)
    return sorted(brokers, key=lambda broker: broker.port)


def stop_broker(broker: RunningBroker, *, records: Path) -> None:
    """Stops a broker in good order, or by SIGKILL after the limit."""
    process = _process(broker)
    if process is not None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_LIMIT_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(_STOP_LIMIT_S)
    _record(broker.port, records).unlink(missing_ok=True)


def _is_alive(jvm: subprocess.Popen[bytes]) -> bool:
    return jvm.poll() is None


def _spawn(plan: BrokerPlan) -> subprocess.Popen[bytes]:
    with plan.console_file.open("w") as console:
        return subprocess.Popen(
            plan.run_command(),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _remember(broker: RunningBroker, records: Path) -> None:
    path = _record(broker.port, records)
    try:
        records.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        half.write_text(json.dumps(asdict(broker)))
        os.replace(half, path)
    except OSError as error:
        raise EnvironmentProblem(
            f"can't note the broker in {path}: {error.strerror or error}; make that folder writable"
        ) from error


def _record(port: int, records: Path) -> Path:
    return records / f"{port}.json"


def _process(broker: RunningBroker) -> psutil.Process | None:
    try:
        process = psutil.Process(broker.pid)
        same = abs(process.create_time() - broker.began) < 1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
