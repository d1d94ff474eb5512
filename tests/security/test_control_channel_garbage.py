"""The control channel, which only the own user can reach: strangers and garbage end their own connection and nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.channel import ControlServer
from tidemill.control.messages import Asked, AskMembership, DriverAnswer, Hello, Purpose, Welcome
from tidemill.ids import TopicPartition
from tidemill.task.batch import BatchRequest, CommittingMember, Positions
from tidemill.task.message_pack import pack, unpack

HELLO = Hello(purpose=Purpose.QUESTIONS, thread="thread", step="s", pid=os.getpid(), host="here", run=1)
FIELDS = {"purpose": "questions", "thread": "thread", "step": "s", "pid": os.getpid(), "host": "here"}


class Desk:
    def next_request(self, run: int) -> BatchRequest | None:
        return BatchRequest(batch_id=7, inputs={TopicPartition("in", 0): 3})

    def membership(self) -> CommittingMember:
        return CommittingMember(generation=2, member_id="m", instance_id=None, incarnation=5, may_commit=True)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return {}

    def worker_joined(self, run: int, step: str, worker: object) -> None:
        return

    def worker_left(self, step: str, worker: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[ControlServer]:
    made = ControlServer()
    made.register("thread", Desk())
    yield made
    made.close()


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What threads have ended with that nobody caught."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def _still_answers(server: ControlServer) -> bool:
    with Client(server.address, "AF_UNIX", authkey=server.key) as worker:
        worker.send_bytes(pack(HELLO))
        assert unpack(worker.recv_bytes(), Welcome) == Welcome(lock=False)
        worker.send_bytes(pack(Asked(question=AskMembership())))
        return unpack(unpack(worker.recv_bytes(), DriverAnswer).value, CommittingMember).generation == 2


STRANGERS = {
    "nothing": b"",
    "a length of -1": struct.pack("!i", -1),
    "a length of -1 and a huge one": struct.pack("!iQ", -1, 1 << 62),
    "a huge length": struct.pack("!i", 2**31 - 1),
    "zeros": bytes(500),
    "all bits set": b"\xff" * 500,
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "half an answer": struct.pack("!i", 20) + b"x",
    "an empty answer": struct.pack("!i", 0),
    "a wrong answer": struct.pack("!i", 16) + bytes(16),
    "another digest": struct.pack("!i", 24) + b"{md5}" + bytes(19),
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_learns_nothing_and_harms_nobody(server: ControlServer, crashes: list[Any], said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(server.address)
        stranger.settimeout(60)
        heard = b""
        with contextlib.suppress(ConnectionError):
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            while data := stranger.recv(4096):
                heard += data
    assert server.key not in heard
    assert b"generation" not in heard
    assert _still_answers(server)
    assert not crashes


def test_another_key_is_refused(server: ControlServer, crashes: list[Any]) -> None:
    with pytest.raises((AuthenticationError, EOFError, ConnectionError)):
        Client(server.address, "AF_UNIX", authkey=bytes(32))
    assert _still_answers(server)
    assert not crashes


FIRST_WORDS = {
    "text": b"hello",
    "nothing": b"",
    "JSON": b'{"purpose": "questions"}',
    "a list": pack([]),
    "nil": pack(None),
    "no fields": pack({}),
    "cut short": pack(HELLO)[:-1],
    "more than one": pack(HELLO) * 2,
    "an unknown purpose": pack({**FIELDS, "purpose": "stop"}),
    "a purpose that is a list": pack({**FIELDS, "purpose": []}),
    "an unknown thread": pack({**FIELDS, "thread": "x"}),
    "a thread that is no text": pack({**FIELDS, "thread": 7}),
    "no step": pack({name: value for name, value in FIELDS.items() if name != "step"}),
    "a run that is text": pack({**FIELDS, "run": "1"}),
    "a field that no worker sends": pack({**FIELDS, "batch": 1}),
    "text that is not UTF-8": pack(HELLO).replace(b"here", b"\xff\xfe\xfd\xfc"),
    "reads of an unknown worker": pack({**FIELDS, "purpose": "reads"}),
    "a question before hello": pack(Asked(question=AskMembership())),
    "nested too deep": b"\x91" * 100_000,
    "a length of four gigabytes": b"\xdd\xff\xff\xff\xff",
    "a megabyte of spaces": b" " * (1 << 20),
}
LATER_WORDS = {
    "nothing": b"",
    "hello again": pack(HELLO),
    "an unknown question": pack({"question": {"type": "Stop"}}),
    "a question without its field": pack({"question": {"type": "NextRequest"}}),
    "a number that is text": pack({"question": {"type": "NextRequest", "run": "1"}}),
    "a report of a batch that is none": pack({"question": {"type": "Report", "run": 1, "report": {"batch_id": 1}}}),
    "an outcome that is none": pack({"question": {"type": "Report", "run": 1, "report": {"batch_id": 1, "outcome": "fine"}}}),
    "a partition of three": pack({"question": {"type": "AskCommitted", "partitions": [["in", 0, 1]]}}),
}


@pytest.mark.parametrize("said", FIRST_WORDS.values(), ids=FIRST_WORDS)
def test_garbage_from_one_with_the_key_ends_that_connection_alone(
    server: ControlServer, crashes: list[Any], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    with Client(server.address, "AF_UNIX", authkey=server.key) as worker:
        worker.send_bytes(said)
        with pytest.raises((EOFError, ConnectionError)):
            worker.recv_bytes()
    assert _still_answers(server)
    assert not crashes
    assert "control-garbage" in caplog.text


@pytest.mark.parametrize("said", LATER_WORDS.values(), ids=LATER_WORDS)
def test_garbage_after_hello_does_too_and_what_was_expected_is_logged(
    server: ControlServer, crashes: list[Any], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    with Client(server.address, "AF_UNIX", authkey=server.key) as worker:
        worker.send_bytes(pack(HELLO))
        worker.recv_bytes()
        worker.send_bytes(said)
        with pytest.raises((EOFError, ConnectionError)):
            worker.recv_bytes()
    assert _still_answers(server)
    assert not crashes
    assert f"{len(said)} bytes that begin with" in caplog.text
    assert "are no Asked" in caplog.text


def test_nobody_else_on_the_machine_gets_near_it(server: ControlServer) -> None:
    assert stat.S_IMODE(Path(server.address).parent.stat().st_mode) == 0o700
