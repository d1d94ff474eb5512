"""Asking another instance: an answer that does not come whole and in time is one error, whatever is wrong with it."""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from tidemill.errors import RetriableError
from tidemill.membership.wire import HostInfo
from tidemill.query.http_forward import MOST_BYTES, HttpInstances, fetch

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
Answer = Callable[[socket.socket], None]


@pytest.fixture
def answering() -> Iterator[Callable[[Answer], HostInfo]]:
    """Where one request is answered so."""
    with ExitStack() as open_:

        def serve(answer: Answer) -> HostInfo:
            listener = open_.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                line, _ = listener.accept()
                with line, suppress(OSError):  # who asked may have gone
                    line.recv(65_536)
                    answer(line)

            threading.Thread(target=run, daemon=True).start()
            return HostInfo("127.0.0.1", listener.getsockname()[1])

        yield serve


def trickle(line: socket.socket) -> None:
    line.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
    for _ in range(600):
        line.sendall(b"x")
        time.sleep(0.05)


def pieces(line: socket.socket) -> None:
    line.sendall(HEAD + b"Content-Length: 6\r\n\r\nabc")
    time.sleep(0.05)
    line.sendall(b"def")


def chunks(line: socket.socket) -> None:
    line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")


def until_closed(line: socket.socket) -> None:
    line.sendall(HEAD + b"\r\nabcdef")


@pytest.mark.parametrize("answer", [pieces, chunks, until_closed])
def test_an_answer_in_whatever_parts_is_whole(answering: Callable[[Answer], HostInfo], answer: Answer) -> None:
    assert fetch(answering(answer), "/", token="", timeout_s=60) == b"abcdef"


def test_an_answer_that_trickles_has_a_limit_too(answering: Callable[[Answer], HostInfo]) -> None:
    began = time.monotonic()
    with pytest.raises(RetriableError, match=r"still coming|timed out"):
        fetch(answering(trickle), "/", token="", timeout_s=0.5)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("part", [b"HTTP/1.1 100 Continue\r\n\r\n", b"X"])
def test_a_head_without_an_end_has_a_limit_too(answering: Callable[[Answer], HostInfo], part: bytes) -> None:
    def go_on(line: socket.socket) -> None:
        while True:  # until the one who asked has gone
            line.sendall(part)
            time.sleep(0.05)

    with pytest.raises(RetriableError, match=r"still coming|timed out"):
        fetch(answering(go_on), "/", token="", timeout_s=0.5)


def test_nothing_of_an_answer_stays_with_its_error(answering: Callable[[Answer], HostInfo]) -> None:
    large = f"Content-Length: {MOST_BYTES + 1}\r\n\r\n".encode()
    for answer in (large, b"Content-Length: 9\r\n\r\nabc", b"Content-Length: 3\r\n\r\nabc"):
        host = answering(lambda line, answer=answer: line.sendall(HEAD + answer))  # type: ignore[misc]
        with pytest.raises(RetriableError) as caught:
            HttpInstances().document(host, "/", timeout_s=60)
        assert not {"fetch", "_body"} & {frame.name for frame in traceback.extract_tb(caught.tb)}
        assert caught.value.__context__ is None


@pytest.mark.parametrize(("target", "most"), [("/instance", 8 << 20), ("/health/ready", 1 << 16), ("/tasks?x=1", 4 << 20)])
def test_an_answer_is_read_up_to_what_is_much_for_its_kind(
    answering: Callable[[Answer], HostInfo], target: str, most: int
) -> None:
    for size, said in ((most, "no instance of this"), (most + 1, f"{most + 1} bytes, expected at most {most}")):
        answer = HEAD + f"Content-Length: {size}\r\n\r\n".encode() + b" " * size
        host = answering(lambda line, answer=answer: line.sendall(answer))  # type: ignore[misc]
        with pytest.raises(RetriableError, match=said):
            HttpInstances().document(host, target, timeout_s=60)


@pytest.mark.parametrize("small", [b"[]", b"{}", b"1", b'""'])
def test_a_document_of_many_small_values_is_not_read(answering: Callable[[Answer], HostInfo], small: bytes) -> None:
    """A million of them would hold the whole process for a second and take a hundred MB."""
    body = b'{"a":[' + b",".join([small] * 600_000) + b"]}"
    answer = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    host = answering(lambda line: line.sendall(answer))
    with pytest.raises(RetriableError, match=r"with up to \d+ values, expected at most 524288"):
        HttpInstances().document(host, "/instance", timeout_s=60)


def test_what_is_said_of_an_answer_that_is_none_is_short(answering: Callable[[Answer], HostInfo]) -> None:
    with pytest.raises(RetriableError) as caught:
        fetch(answering(lambda line: line.sendall(b"\xff" * 60_000 + b"\r\n\r\n")), "/", token="", timeout_s=60)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "answer",
    [
        lambda line: line.sendall(HEAD + b"Content-Length: 100\r\n\r\nabc"),
        lambda line: line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n64\r\nabc"),
        lambda line: line.sendall(b"garbage\r\n\r\n"),
        lambda line: None,
    ],
    ids=["cut short", "chunk cut short", "garbage", "nothing"],
)
def test_what_is_not_a_whole_answer_is_none(answering: Callable[[Answer], HostInfo], answer: Answer) -> None:
    with pytest.raises(RetriableError, match="does not answer"):
        fetch(answering(answer), "/", token="", timeout_s=60)
