"""Return of a broker that did not end in order: its old registration has to end first.

A single node that was killed is still registered as the leader of everything. When it comes back, with broker and controller in
one process, it leads until the controller finds that its session is over: its coordinators are loaded, given up and loaded again.
Kafka loses data in between. From 4.3.0 on, markers of transactions that are due are dropped (KAFKA-20734). And if the group
coordinator's first load ends after the second one began, it is taken for the second: offsets that were committed meanwhile are
pending for good, or groups and offsets are those of long ago (both seen with 4.2.1). So the controller runs alone first, until it
has fenced the broker and has that in its log.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kafka.record.memory_records import MemoryRecords

from tidemill.deadline import Deadline
from tidemill.embedded import guard
from tidemill.embedded.broker_plan import HOST, BrokerPlan, failed_start, log_size
from tidemill.errors import EnvironmentProblem

_SESSION_MS = 500
_NOTHING_TO_FENCE = 10
"""NoOpRecords that the controller has written since, one in half a second. That is as many sessions, counted by what it has done
and not by the clock of a busy machine: every stale registration is fenced by then."""
_REGISTRATION_CHANGE, _NO_OP = b"\x01\x11", b"\x01\x14"
"""How records begin in the metadata log: version of the frame and key of the type (KIP-631, KIP-835)."""
_END_LIMIT_S = 10.0


def end_old_registration(plan: BrokerPlan, *, limit_s: float) -> None:
    """Returns at once after an orderly end, or before a first start. EnvironmentProblem if the controller does not come up."""
    folder = plan.data / "data"
    metadata = folder / "__cluster_metadata-0"
    if (folder / ".kafka_cleanshutdown").exists() or not metadata.exists():
        return
    before = _End.of(metadata)
    properties = plan.data / "controller.properties"
    properties.write_text(_controller_properties(plan))
    offset = log_size(plan)
    process, pid = guard.start(plan.command("kafka.Kafka", str(properties)), console=plan.console_file)
    try:
        _wait_until_fenced(plan, process, offset, limit_s, before)
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


@dataclass(frozen=True, slots=True)
class _End:
    """Where the metadata log ends, up to its last whole batch."""

    metadata: Path
    segment: str
    position: int

    @classmethod
    def of(cls, metadata: Path) -> _End:
        newest = max(metadata.glob("*.log"))
        content, position = newest.read_bytes(), 0
        while position + 12 <= len(content):
            (length,) = struct.unpack_from(">i", content, position + 8)
            if length <= 0 or position + 12 + length > len(content):
                break
            position += 12 + length
        return cls(metadata, newest.name, position)

    def appended(self) -> Counter[bytes]:
        """Number of records since then, by their beginning."""
        found: Counter[bytes] = Counter()
        for segment in sorted(self.metadata.glob("*.log")):
            if segment.name < self.segment:
                continue
            with segment.open("rb") as file:
                file.seek(self.position if segment.name == self.segment else 0)
                batches = MemoryRecords(file.read())
            while batches.has_next():
                batch = batches.next_batch()
                if not batch.is_control_batch:
                    found.update(record.value[:2] for record in batch)
        return found


def _wait_until_fenced(plan: BrokerPlan, process: subprocess.Popen[str], offset: int, limit_s: float, before: _End) -> None:
    deadline = Deadline.after(limit_s)
    while True:
        is_alive, appended = process.poll() is None, before.appended()
        # The log of the program has the fencing before the metadata log has it.
        if appended[_REGISTRATION_CHANGE] or appended[_NO_OP] >= _NOTHING_TO_FENCE:
            return
        if not is_alive:
            raise failed_start(plan, offset)
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
