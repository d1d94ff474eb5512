"""A stop that comes while `tidemill run` launches the JVM: what was launched is known, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.cli.run import _launched
from tidemill.cli.stop_request import StopRequest, StopWanted
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError
from tidemill.runtime.instance import launching

CONFIG = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "127.0.0.1:1"})


class Launched:
    def __init__(self) -> None:
        self.ended = 0

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have started the tests
    yield StopRequest()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_what_was_being_launched_when_a_stop_came_is_ended(
    stop: StopRequest, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    made = Launched()

    def stopped(_config: object, _environ: object) -> Launched:
        os.kill(os.getpid(), number)
        time.sleep(0.1)  # this is where the stop would come
        return made

    monkeypatch.setattr(launching, "launch", stopped)
    with pytest.raises(StopWanted), _launched(CONFIG):
        raise AssertionError("it goes on")
    assert stop.is_wanted
    assert made.ended == 1


def test_a_command_that_nohup_has_started_outlives_its_terminal() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        StopRequest().wait_for_it()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


TWICE = """
import os, signal
from tidemill.cli import stop_request
from tidemill.kept_folder import kept_folder

stop_request._SAME_CTRL_C_S = 0
stop = stop_request.StopRequest()
stop.wait_for_it()
print(kept_folder("some-"), flush=True)
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_second_ctrl_c_leaves_no_temporary_folder(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TWICE], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (130, "")
    assert Path(ended.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_what_was_launched_is_ended_with_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Launched()
    monkeypatch.setattr(launching, "launch", lambda _config, _environ: made)
    with _launched(CONFIG) as launched:
        assert launched is made
        assert made.ended == 0
    assert made.ended == 1


def test_what_is_wrong_with_the_launch_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_config: object, _environ: object) -> object:
        raise ConfigError("spark.master is wrong")

    monkeypatch.setattr(launching, "launch", refused)
    with pytest.raises(ConfigError, match=r"spark\.master is wrong"), _launched(CONFIG):
        raise AssertionError("it goes on")
