"""The everyday broker, when its start is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tidemill.embedded.broker_plan import free_port
from tidemill.embedded.daemon import start_broker


@pytest.fixture
def ctrl_c_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.broker
@pytest.mark.fault
@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_ctrl_c_between_the_jvms_start_and_knowing_its_pid_leaves_no_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    popen = subprocess.Popen

    def interrupted(command: list[str], **given: object) -> subprocess.Popen[bytes]:
        jvm: subprocess.Popen[bytes] = popen(command, **given)  # type: ignore[call-overload]
        if "kafka.Kafka" in command:
            started.append(jvm.pid)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # this is where the interrupt would come
        return jvm

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_broker(environ=os.environ, records=tmp_path / "records", data=tmp_path / "data", port=free_port())
    assert len(started) == 1
    assert not psutil.pid_exists(started[0])
