"""What functions print in workers, from the worker's stream to the driver's; no JVM, no worker."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

import pytest

from tests.waiting import LIMIT_S, until
from tidemill.spark.launch import function_output
from tidemill.spark.launch.function_output import FunctionOutput


@pytest.fixture
def output(tmp_path: Path) -> Iterator[FunctionOutput]:
    shown = FunctionOutput(tmp_path)
    yield shown
    shown.close()


@pytest.fixture
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TextIO]]:
    """This process is one, as far as the module knows."""
    opened: list[TextIO] = []
    monkeypatch.setattr(function_output, "_opened", opened)
    yield opened
    for stream in opened:
        stream.close()


@contextmanager
def shown() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """The driver's streams. Not a fixture: pytest has streams of its own for fixtures and for the test."""
    streams = io.StringIO(), io.StringIO()
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        yield streams


def printing(_infile: object, _outfile: object) -> None:
    print("a line, é")
    print("an error", file=sys.stderr)


@pytest.mark.usefixtures("in_a_worker")
def test_a_worker_prints_on_the_drivers_streams_and_gives_its_own_back(output: FunctionOutput, tmp_path: Path) -> None:
    with shown() as streams:
        for _ in range(2):  # a worker has many tasks
            function_output._shown(printing, str(tmp_path), io.BytesIO(), io.BytesIO())
        assert (sys.stdout, sys.stderr) == streams
        output.pass_on()
    assert [stream.getvalue() for stream in streams] == ["a line, é\n" * 2, "an error\n" * 2]


@pytest.mark.usefixtures("output")
def test_nobody_has_to_ask_for_it(tmp_path: Path) -> None:
    with shown() as streams, (tmp_path / "stdout").open("wb", buffering=0) as pipe:
        for part in (b"caf\xc3", b"\xa9\n"):  # a character in two parts
            pipe.write(part)
        assert until(lambda: streams[0].getvalue() == "caf\u00e9\n")


def test_what_is_left_is_shown_at_the_end(tmp_path: Path) -> None:
    output = FunctionOutput(tmp_path)
    with shown() as streams:
        (tmp_path / "stderr").write_bytes(b"x" * 50_000)
        output.close()
    assert streams[1].getvalue() == "x" * 50_000


class Stopped(io.StringIO):
    """A terminal that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.released.wait(LIMIT_S)
        return len(text)


def test_a_standard_output_that_takes_nothing_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_output, "_END_LIMIT_S", 0.01)
    output, terminal = FunctionOutput(tmp_path), Stopped()
    with redirect_stdout(terminal):
        (tmp_path / "stdout").write_bytes(b"a line\n")
        assert terminal.asked.wait(LIMIT_S)
        output.close()
    assert output._thread.is_alive()
    terminal.released.set()
    output._thread.join(LIMIT_S)
    assert not output._thread.is_alive()


class Closed(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [None, Closed()])
def test_streams_that_take_nothing_hold_nobody_up(output: FunctionOutput, tmp_path: Path, stream: TextIO | None) -> None:
    with redirect_stdout(stream):
        for _ in range(3):
            (tmp_path / "stdout").write_bytes(b"x" * 50_000)  # more than the pipe has room for
            output.pass_on()


def test_characters_that_the_terminal_lacks_are_escaped(output: FunctionOutput, tmp_path: Path) -> None:
    written = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(written, encoding="ascii")):
        (tmp_path / "stdout").write_bytes("é!\n".encode())
        output.pass_on()
        assert written.getvalue() == b"\\xe9!\n"


@pytest.mark.usefixtures("in_a_worker")
def test_without_a_driver_a_worker_prints_where_it_did(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stdout")  # nobody reads this one
    function_output._shown(printing, str(tmp_path), io.BytesIO(), io.BytesIO())
    assert tuple(capsys.readouterr()) == ("a line, é\n", "an error\n")
