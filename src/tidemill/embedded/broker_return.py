"""Return of a broker that did not end in order: its old registration has to end first.

A single node that was killed is registered as the leader of everything still. Coming back, broker and controller in one
process, it takes that up until the controller finds its session over; its coordinators are loaded, given up and loaded
again. Kafka loses transactions in between: from 4.3.0 on markers that are due are dropped (KAFKA-20734), and where the
group coordinator's first load ends after the second began it is taken for that one, so that offsets which were committed
meanwhile are pending for good (seen with 4.2.1). So the controller runs alone first, until it has fenced the broker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tidemill.deadline import Deadline
from tidemill.embedded import guard
from tidemill.embedded.broker_plan import HOST, READY, BrokerPlan, failed_start, log_since, log_size
from tidemill.errors import EnvironmentProblem

_FENCED = "Fencing broker 1 at epoch"
_SESSION_MS = 500
_NOTHING_TO_FENCE_S = 5.0
"""After the controller's start: ten sessions, as it may be late on a busy machine. The old registration would outlive it then."""
_WRITTEN_S = 0.2
"""The fencing is logged just before it is written."""
_END_LIMIT_S = 10.0


def end_old_registration(plan: BrokerPlan, *, limit_s: float) -> None:
    """Returns at once after an orderly end, or before a first start. EnvironmentProblem if the controller does not come up."""
    folder = plan.data / "data"
    if (folder / ".kafka_cleanshutdown").exists() or not (folder / "__cluster_metadata-0").exists():
        return
    properties = plan.data / "controller.properties"
    properties.write_text(_controller_properties(plan))
    offset = log_size(plan)
    process, pid = guard.start(plan.command("kafka.Kafka", str(properties)), console=plan.console_file)
    try:
        _wait_until_fenced(plan, process, offset, limit_s)
    finally:
        _end(process, pid)


def _controller_properties(plan: BrokerPlan) -> str:
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{plan.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{HOST}:{plan.controller_port}",
        "log.dirs": str(plan.data / "data"),
        "broker.session.timeout.ms": str(_SESSION_MS),
        "broker.heartbeat.interval.ms": str(_SESSION_MS // 2),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _wait_until_fenced(plan: BrokerPlan, process: subprocess.Popen[str], offset: int, limit_s: float) -> None:
    deadline = Deadline.after(limit_s)
    ready_at: float | None = None
    while True:
        is_alive, log, now = process.poll() is None, log_since(plan, offset), time.monotonic()
        if _FENCED in log:
            time.sleep(_WRITTEN_S)
            return
        if not is_alive:
            raise failed_start(plan, offset)
        if ready_at is None and READY in log:
            ready_at = now
        if ready_at is not None and now > ready_at + _NOTHING_TO_FENCE_S:
            return
        if deadline.is_over:
            raise EnvironmentProblem(
                f"the broker was not in order when it ended, and its controller, which has to look at that first, was not "
                f"ready after {limit_s:g} s; the log: {plan.log_file}"
            )
        time.sleep(0.05)


def _end(process: subprocess.Popen[str], pid: int | None) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if pid is not None and process.poll() is None:
            os.kill(pid, number)
        try:
            process.wait(_END_LIMIT_S)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()  # the guard: the kernel ends its command with it
    process.wait()
