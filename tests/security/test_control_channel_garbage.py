"""The control channel, which only the own user can reach: strangers and garbage end their own connection and nothing else."""

from __future__ import annotations

import contextlib
import json
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
from tidemill.ids import TopicPartition
from tidemill.task.batch import BatchRequest, Membership, Positions


class Desk:
    def next_request(self, run: int) -> BatchRequest | None:
        return BatchRequest(batch_id=7, inputs={TopicPartition("in", 0): 3})

    def membership(self) -> Membership:
        return Membership(generation=2, member_id="m", instance_id=None, incarnation=5, may_commit=True)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return {}

    def worker_joined(self, step: str, worker: object) -> None:
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
        worker.send_bytes(json.dumps({"op": "hello", "thread": "thread", "step": "s", "pid": os.getpid()}).encode())
        assert json.loads(worker.recv_bytes())["lock"] is False
        worker.send_bytes(b'{"op": "membership"}')
        return bool(json.loads(worker.recv_bytes())["generation"] == 2)


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
        stranger.settimeout(5)
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


QUESTIONS = {
    "no JSON": b"hello",
    "nothing": b"",
    "not UTF-8": b"\xff\xfe\xfd",
    "a list": b"[]",
    "null": b"null",
    "no operation": b"{}",
    "an unknown operation": b'{"op": "stop"}',
    "a question before hello": b'{"op": "request"}',
    "a hello without a thread": b'{"op": "hello"}',
    "a hello of an unknown thread": b'{"op": "hello", "thread": "x", "step": "s", "pid": 1}',
    "a hello without a step": b'{"op": "hello", "thread": "thread"}',
    "nested too deep": b"[" * 100_000,
    "a number of ten thousand digits": b"9" * 10_000,
    "a megabyte of spaces": b" " * (1 << 20),
    "an operation that is a list": b'{"op": []}',
}


@pytest.mark.parametrize("said", QUESTIONS.values(), ids=QUESTIONS)
def test_garbage_from_one_with_the_key_ends_that_connection_alone(server: ControlServer, crashes: list[Any], said: bytes) -> None:
    with Client(server.address, "AF_UNIX", authkey=server.key) as worker:
        worker.send_bytes(said)
        with pytest.raises((EOFError, ConnectionError)):
            worker.recv_bytes()
    assert _still_answers(server)
    assert not crashes


def test_nobody_else_on_the_machine_gets_near_it(server: ControlServer) -> None:
    assert stat.S_IMODE(Path(server.address).parent.stat().st_mode) == 0o700
