"""Asks another instance over HTTP, at its ``application.server``: for rows, and how far its copies are (GET /tasks).

Decides that every failure of the other instance (nothing listens, no answer in time, something else answers) is one error, a
RetriableError that names the host. The token goes into the request's header and nowhere else.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote, urlencode

from tidemill.deadline import Deadline
from tidemill.documents import Document
from tidemill.errors import RetriableError
from tidemill.membership.wire import HostInfo
from tidemill.printable import printable
from tidemill.query.document_reader import UnreadableDocumentError, read_document
from tidemill.query.group_documents import CopiesUnderWay
from tidemill.query.http_request import to_parameters
from tidemill.query.rows import MEDIA_TYPE, FoundRows, RowsQuestion
from tidemill.query.store_info import StoreInfo
from tidemill.query.windowed_rows import require_windows
from tidemill.task.progress import CopyProgress

ROWS_PATH = "rows"
MOST_BYTES = 32 << 20
"""Largest answer that is read; no instance sends a larger one."""
_SMALLER: Mapping[str, int] = {
    "instance": 8 << 20, "decisions": 8 << 20, "tasks": 4 << 20, "health": 1 << 16, "drain": 1 << 16,
}  # fmt: skip
"""Lower limits by the first part of the path: several times what an instance with 10,000 tasks answers."""
_BYTES_OF_A_VALUE = 16
"""Bytes of a document's limit for each value that it may have: small values take Python most time and memory."""
_PART_BYTES = 65_536
_MOST_TEXT = 300
_T = TypeVar("_T")
_FOREIGN = "answers, but is no instance of this application's version of Tidemill"


class HttpRefusalError(RetriableError):
    """An instance answers with another status than one of success; ``sentence``: why, if it says so."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"answers with status {status}")
        self.status = status
        try:
            self.sentence = str(document(body).get("error", ""))
        except RetriableError:
            self.sentence = ""


@dataclass(frozen=True, slots=True)
class HttpInstances:
    """``RemoteInstances`` over HTTP, or over HTTPS with ``tls``. All instances of an application have the same token."""

    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    def read(
        self, host: HostInfo, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None, timeout_s: float
    ) -> FoundRows:
        """RetriableError if no rows come."""
        return _without_its_frames(lambda: self._read(host, store, question, max_lag, timeout_s))

    def _read(
        self, host: HostInfo, store: StoreInfo, question: RowsQuestion, max_lag: int | None, timeout_s: float
    ) -> FoundRows:
        target = f"/{ROWS_PATH}/{quote(store.name, safe='')}?{urlencode(to_parameters(question, max_lag))}"
        accept = f"{MEDIA_TYPE};bytes={question.most_bytes}"
        body = fetch(host, target, token=self.token, timeout_s=timeout_s, accept=accept, tls=self.tls)
        try:
            rows = FoundRows.from_bytes(body, question.limit)
            if rows.layout not in (None, store.layout):
                found = printable(rows.layout, longest=_MOST_TEXT)
                raise RetriableError(f"runs another program: its {store.name} is ({found}), and here it is ({store.layout})")
            rows.require_answer(question)
            if question.key is not None and question.times is not None:
                require_windows(store, rows, question.key)
        except ValueError as error:
            raise RetriableError(f"{_FOREIGN}: {error}") from None
        return rows

    def document(self, host: HostInfo, target: str, *, timeout_s: float) -> Document:
        """A JSON object of the instance. RetriableError if none comes."""
        def ask() -> Document:
            body = fetch(host, target, token=self.token, timeout_s=timeout_s, tls=self.tls)
            return document(body, most_values=most_bytes(target) // _BYTES_OF_A_VALUE)

        return _without_its_frames(ask)


def _without_its_frames(ask: Callable[[], _T]) -> _T:
    """Whoever waits for the result on an event loop is part of a cycle with the error, until Python looks for cycles. The frames
    that an error comes from hold what has arrived: of an answer that is too large, 32 MB for each attempt."""
    try:
        return ask()
    except RetriableError as error:
        error.__context__ = None
        raise error.with_traceback(None)  # noqa: B904  # the same error


def most_bytes(target: str) -> int:
    """Largest answer that is read of those to this target."""
    return _SMALLER.get(target.lstrip("/").partition("?")[0].partition("/")[0], MOST_BYTES)


def document(body: bytes, *, most_values: int = MOST_BYTES // _BYTES_OF_A_VALUE) -> Document:
    """RetriableError if this is no JSON object, or holds more values: while it is read, nothing else runs in this process."""
    values = sum(map(body.count, (b",", b"[", b"{")))  # no fewer: each but the first in a list or object is behind a comma
    if values > most_values:
        raise RetriableError(f"{_FOREIGN}: it answers with up to {values} values, expected at most {most_values}")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RetriableError(_FOREIGN)
    return found


def fetch(
    host: HostInfo,
    target: str,
    *,
    token: str,
    timeout_s: float,
    accept: str = "application/json",
    tls: ssl.SSLContext | None = None,
    method: str = "GET",
) -> bytes:
    """The body of the answer, within ``timeout_s`` for its head and as long again for all of it, of at most
    ``most_bytes(target)``. RetriableError, with why, if the instance is away in whatever way, its address being none included;
    HttpRefusalError if it answers with another status than one of success."""
    headers = {"Accept": accept, "Connection": "close"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection = line = answer = None
    try:
        if tls is None:
            connection = http.client.HTTPConnection(host.host, host.port, timeout=timeout_s)
        else:
            connection = http.client.HTTPSConnection(host.host, host.port, timeout=timeout_s, context=tls)
        connection.request(method, target, headers=headers)
        line = _Line(connection.sock, timeout_s)
        answer = http.client.HTTPResponse(line, method=method)  # type: ignore[arg-type]  # makefile is all that it needs
        answer.begin()
        line.deadline = Deadline.after(timeout_s)
        body = _body(answer, most_bytes(target))
    except (OSError, http.client.HTTPException) as error:
        raise RetriableError(f"does not answer ({type(error).__name__}: {str(error)[:_MOST_TEXT]})") from None
    except (ValueError, OverflowError) as error:  # of idna, http.client or the socket, before anyone is asked
        raise RetriableError(f"is no address that can be connected to ({type(error).__name__}: {error})") from None
    finally:
        for opened in (answer, line, connection):
            if opened is not None:
                opened.close()
    if answer.status not in (http.client.OK, http.client.ACCEPTED):
        raise HttpRefusalError(answer.status, body)
    return body


class _Line(io.RawIOBase):
    """What comes from a socket until ``deadline``: with a limit for each part alone, a head or a body could arrive in small parts
    without an end."""

    def __init__(self, line: socket.socket, timeout_s: float) -> None:
        self._line, self._raw = line, line.makefile("rb", buffering=0)
        self.deadline = Deadline.after(timeout_s)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        left_s = self.deadline.left_s
        if left_s <= 0:
            raise TimeoutError("its answer is still coming")
        self._line.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _body(answer: http.client.HTTPResponse, most: int) -> bytes:
    if (answer.length or 0) > most:
        raise RetriableError(f"answers with {answer.length} bytes, expected at most {most}")
    parts, size = [], 0
    while not answer.isclosed():  # from Python 3.13 on the last part closes it, and the line with it
        part = answer.read1(_PART_BYTES)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > most:
            raise RetriableError(f"answers with more than {most} bytes, which is the limit")
    if answer.length:
        raise http.client.IncompleteRead(b"".join(parts), answer.length)
    return b"".join(parts)


def copies_at(
    host: HostInfo, *, token: str, timeout_s: float, tls: ssl.SSLContext | None = None
) -> tuple[CopyProgress, ...]:
    """RetriableError, with why, if the instance does not answer."""
    try:
        found = document(fetch(host, "/tasks", token=token, timeout_s=timeout_s, tls=tls))
        copies = read_document(CopiesUnderWay, found)
    except UnreadableDocumentError as error:
        raise RetriableError(f"{host} answers, but is no instance of this version of Tidemill: {error}") from None
    except RetriableError as error:
        raise RetriableError(f"{host} {error}") from None
    return tuple(
        CopyProgress(task=one.task, is_active=one.role == "restoring", lag=one.lag, offsets_per_s=one.offsets_per_s)
        for one in copies.tasks
    )
