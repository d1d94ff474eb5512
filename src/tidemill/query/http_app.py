"""Remote reads as an ASGI application: authorization, routes, and the status of each answer.

    GET /stores                                 the stores, and the instances that host their partitions
    GET /stores/{store}/{key}                   one key, from the instance that hosts it
    GET /stores/{store}?from=&to=&limit=        a range over all partitions
    GET /stores/{store}/{key}?from=&to=&limit=  the windows or sessions of one key between two times
    GET /tasks                                  restores and standbys of this instance, with their rates
    GET /rows/{store}?partitions=...            requests of other instances; answered from the copies here, never forwarded
    GET /                                       the web page (http_pages), which asks for the rest
    GET /group, /metrics, /health/ready ...     documents of the instance and its group (http_status)

    200 found    400 a malformed question    401 no or another token    403 a foreign name for a loopback address
    404 no such store, key or address        405 not GET                409 can't be done now, with the reason
    202 has started                          503 no copy can be read now, or the group rebalances (Retry-After)

Invariant: every answer that is not 200 is JSON with one sentence, ``error`` (but health's); none holds a token or a stack
trace. The page's files hold no data and probes may ask for health: these need no token.
Leaves to others where rows come from (``routing``) and how they are written (``http_answer``).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from tidemill.config.rules import is_loopback
from tidemill.deadline import Deadline
from tidemill.errors import (
    DrainRefusedError,
    InvalidStateStoreError,
    QueryError,
    RetriableError,
    SerdeError,
    StopError,
    StreamsNotStartedError,
    TidemillError,
    UnknownStoreError,
)
from tidemill.log_format import LogEvent
from tidemill.query import http_answer, http_pages, http_request, http_values
from tidemill.query.http_request import Request
from tidemill.query.http_status import CHANGES, HEALTH, StatusPages
from tidemill.query.routing import Router
from tidemill.query.rows import MEDIA_TYPE, FoundRows, Row, RowsQuestion
from tidemill.query.store_info import StoreInfo, readable_store
from tidemill.query.windowed_rows import is_windowed, kind_of, window_entry
from tidemill.task.progress import CopyProgress
from tidemill.topology.nodes import StoreKind
from tidemill.topology.partitioning import partition_of_key

MOST_UNSENT_BYTES = 64 << 20
_PIECE_BYTES = 65_536
_LAST_ATTEMPT_S = 1.0
"""How long the answers to what was asked just before the end of a read's time are waited for."""
T = TypeVar("T")
_NOSNIFF = ("x-content-type-options", "nosniff")
_BOUNDS = ("partition", "position", "max_staleness", "max_staleness_ms")
_CLOSE = ("connection", "close")
"""The rest of the request is not read."""

log = logging.getLogger("tidemill.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
"""ASGI's, as uvicorn has them."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    kind: str = http_answer.JSON
    headers: tuple[tuple[str, str], ...] = ()


class _NotFoundError(TidemillError):
    """Nothing is at this address."""


async def _send(answer: Answer, send: Send, *, has_body: bool) -> None:
    """The body in pieces, each produced when the one before it has been sent. In between others have their turn, also the end of
    this connection: asyncio logs a line for each piece that is written before uvicorn knows of it."""
    is_text = answer.kind == http_answer.JSON or answer.kind.startswith("text/")
    kind = answer.kind + ("; charset=utf-8" if is_text else "")
    headers = [("content-type", kind), ("content-length", str(len(answer.body))), _NOSNIFF, *answer.headers]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
    left = memoryview(answer.body if has_body else b"")
    while len(left) > _PIECE_BYTES:
        await send({"type": "http.response.body", "body": bytes(left[:_PIECE_BYTES]), "more_body": True})
        left = left[_PIECE_BYTES:]
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": bytes(left)})


async def _unless_gone(answering: Coroutine[Any, Any, Answer], receive: Receive) -> Answer | None:
    """The answer. None if the client goes away before it is there: then what still waits for a thread is not computed."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answer, leaving = asyncio.create_task(answering), asyncio.create_task(gone())
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None
    finally:
        answer.cancel()
        leaving.cancel()


def _refusal(status: int, sentence: str, *headers: tuple[str, str]) -> Answer:
    return Answer(status, http_answer.to_json({"error": sentence}), headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsApp:
    """``token``: what every request must carry; "" = none, only for servers that listen on a loopback address.
    ``max_staleness``, ``max_staleness_ms``: how many offsets a standby may be behind, and how old, if the request says nothing.
    ``any_name``: the client has shown a certificate, under whatever host name it asks."""

    router: Router
    application_id: str
    token: str = field(default="", repr=False)
    any_name: bool = False
    max_staleness: int = 10_000
    max_staleness_ms: int | None = None
    status: StatusPages | None = None
    unsent: dict[str, int] = field(default_factory=lambda: {"bytes": 0}, compare=False)
    """Bytes of answers that clients have not taken yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Answer | None
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                is_change = scope["path"] in CHANGES or _has_body(scope)
                answer = await (self._answer(scope) if is_change else _unless_gone(self._answer(scope), receive))
            except asyncio.CancelledError:  # by uvicorn, which waits no longer; else it would log a stack trace
                answer = _refusal(503, "this instance is closing: ask another", ("retry-after", "1"), _CLOSE)
            if answer is None:
                return
            if len(answer.body) > _PIECE_BYTES and self.unsent["bytes"] + len(answer.body) > MOST_UNSENT_BYTES:
                answer = _refusal(503, "too many long answers are on their way to others: ask again", ("retry-after", "1"))
            self.unsent["bytes"] += len(answer.body)
            try:
                await _send(answer, send, has_body=scope["method"] != "HEAD")
            finally:
                self.unsent["bytes"] -= len(answer.body)

    async def _answer(self, scope: Scope) -> Answer:
        try:
            refused = self._refused(scope)
            return refused if refused is not None else await self._find(scope)
        except (UnknownStoreError, _NotFoundError) as error:
            return _refusal(404, str(error))
        except QueryError as error:
            return _refusal(400, str(error))
        except DrainRefusedError as error:
            return _refusal(409, str(error))
        except (RetriableError, StreamsNotStartedError, StopError) as error:
            return _refusal(503, str(error), ("retry-after", "1"))
        except SerdeError as error:
            return _refusal(500, f"an entry of the store can't be read with its serde: {error}")
        except Exception as error:
            log.exception(LogEvent("request-failed", kind=type(error).__name__))
            return _refusal(500, "this should not have happened; the instance's log says more")

    def _has_token(self, scope: Scope) -> bool:
        given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        return hmac.compare_digest(token.strip(), self.token.encode()) and scheme.lower() == b"bearer"

    def _refused(self, scope: Scope) -> Answer | None:
        if self.token:
            if not (self._has_token(scope) or http_pages.is_page(scope["path"]) or scope["path"] in HEALTH):
                sentence = "this needs the header 'Authorization: Bearer' with the token of tidemill.http.token"
                return _refusal(401, sentence, ("www-authenticate", "Bearer"))
        elif not self.any_name and not _is_loopback_name(_header(scope, b"host")):
            # A page in a browser may give its own name this address; without a token only the name distinguishes it.
            return _refusal(403, "without a token this answers only under a loopback name, such as localhost")
        is_change = scope["path"] in CHANGES
        if is_change and any(name == b"origin" for name, _ in scope["headers"]):
            return _refusal(403, "this is not for web pages, which send the header Origin: use tidemill drain, or curl", _CLOSE)
        if scope["method"] not in (("POST",) if is_change else ("GET", "HEAD")):
            allowed = "POST" if is_change else "GET, HEAD"
            why = "this changes the instance: use POST" if is_change else "this is for reading: use GET"
            return _refusal(405, why, ("allow", allowed), _CLOSE)
        if _has_body(scope):
            return _refusal(400, "a request has no body here: what is asked for is in its address", _CLOSE)
        return None

    async def _find(self, scope: Scope) -> Answer:
        if http_pages.is_page(scope["path"]):
            body, media = http_pages.page(scope["path"])
            return Answer(200, body, media, http_pages.HEADERS)
        raw_path = scope.get("raw_path") or scope["path"].encode()
        request = http_request.parse_request(raw_path, scope["query_string"], _header(scope, b"accept"))
        if scope["path"] in CHANGES:
            return await self._change(request)
        match request.path:
            case ("stores",) | ("stores", ""):
                http_request.allow_only(request, ())
                return await self._stores()
            case ("tasks",):
                http_request.allow_only(request, ())
                return Answer(200, http_answer.to_json({"tasks": [_shown(copy) for copy in self.router.directory.progress()]}))
            case ("stores", name):
                return await self._range(request, self._store(name))
            case ("stores", name, key):
                return await self._key(request, self._store(name), key)
            case ("rows", name):
                return await self._rows(request, self._store(name))
            case _:
                return await self._status(request, scope)

    async def _status(self, request: Request, scope: Scope) -> Answer:
        tells_reasons = not self.token or self._has_token(scope)
        found = None if self.status is None else await self.status.find(request, tells_reasons=tells_reasons)
        if found is None:
            raise _NotFoundError(
                "nothing is at this address; there are /stores, /stores/{store}/{key}, "
                "/stores/{store}?from=&to=&limit=, /tasks, /group, /instance, /topology, /decisions, /history, /scale, /metrics, "
                "/health/live and /health/ready (a '/' within a key is written %2F)"
            )
        status, body, media = found
        return Answer(status, body, media or http_answer.JSON)

    async def _change(self, request: Request) -> Answer:
        done = None if self.status is None else await self.status.change(request)
        if done is None:
            raise _NotFoundError("this server has no status pages and accepts no changes")
        return Answer(*done)

    def _store(self, name: str) -> StoreInfo:
        return readable_store(self.router.directory.stores, name)

    async def _stores(self) -> Answer:
        directory, deadline = self.router.directory, self._deadline()
        stores = []
        for store in directory.stores.values():
            count = await self._count(store, deadline)
            owners = [directory.owners(store, partition) for partition in range(count)]
            stores.append(
                {
                    "name": store.name,
                    "key": store.key_serde.name,
                    "value": store.value_serde.name,
                    "timestamped": store.timestamped or kind_of(store) is StoreKind.TIMESTAMPED_WINDOW,
                    "partitions": [
                        {
                            "partition": found.partition,
                            "active": None if found.active_host is None else str(found.active_host),
                            "standbys": [str(host) for host in found.standby_hosts],
                        }
                        for found in owners
                    ],
                }
            )
        own = directory.own_host
        answer = {"application": self.application_id, "host": None if own is None else str(own), "stores": stores}
        return Answer(200, http_answer.to_json(answer))

    async def _key(self, request: Request, store: StoreInfo, key: str) -> Answer:
        windowed = is_windowed(store)
        http_request.allow_only(request, ("keys", *_BOUNDS, *(("from", "to", "limit") if windowed else ())))
        data, deadline = http_request.key_bytes(request, store, key), self._deadline()
        count = await self._count(store, deadline)
        partition = partition_of_key(data, count)
        ask = http_request.windows_question if windowed else http_request.key_question
        question = ask(request, store, key, partition, count)
        found = await self._read(request, store, question, deadline)
        others = frozenset(range(count)) - question.partitions
        if not found.rows and others and not store.is_placed and "partition" not in request.parameters:
            # A foreign client, a partitioner or a processor may have placed the key elsewhere.
            found = await self._read(request, store, replace(question, partitions=others), deadline)
        hex_keys = request.parameters.get("keys") == "hex"
        if not found.rows:
            what = "window or session of this key that is shown and between these times" if windowed else "such key"
            raise _NotFoundError(f"{store.name} has no {what}")
        held_by = found.rows[0].partition
        info = {"store": store.name, "partition": held_by, "stale_by": found.covered[held_by], **_at(found, held_by)}
        if windowed:
            return await self._written(question, partial(_windows, request, store, found, question, info))
        if request.wants_arrow:
            return Answer(200, http_answer.to_arrow(store, found.rows, info, hex_keys=hex_keys), http_answer.ARROW)
        return Answer(200, http_answer.to_json({**info, **http_answer.entry(store, found.rows[0], hex_keys=hex_keys)}))

    async def _range(self, request: Request, store: StoreInfo) -> Answer:
        if is_windowed(store):
            raise QueryError(f"{store.name} has windows or sessions, which are asked for by key: /stores/{store.name}/{{key}}")
        http_request.allow_only(request, ("from", "to", "limit", "keys", *_BOUNDS))
        deadline = self._deadline()
        count = await self._count(store, deadline)
        question = http_request.range_question(request, store, count)
        found = await self._read(request, store, question, deadline)
        return await self._written(question, partial(_range_answer, request, store, question, found))

    async def _written(self, question: RowsQuestion, write: Callable[[], Answer]) -> Answer:
        """Off the loop: an answer may be long."""
        return await asyncio.get_running_loop().run_in_executor(self.router.reading(question), write)

    async def _read(self, request: Request, store: StoreInfo, question: RowsQuestion, deadline: Deadline) -> FoundRows:
        max_lag = http_request.whole_number(request, "max_staleness", self.max_staleness)
        bounded = http_request.bounded(request, question, self.max_staleness_ms)
        return await self._within(deadline, store, self.router.read(store, bounded, max_lag=max_lag))

    async def _count(self, store: StoreInfo, deadline: Deadline) -> int:
        """The partition count of the store's tasks. A local read must not wait for brokers that others' questions wait for."""
        known = self.router.directory.known_partition_count(store)
        if known is not None:
            return known
        return await self._within(deadline, store, self.router.call(partial(self.router.directory.partition_count, store)))

    def _deadline(self) -> Deadline:
        """Of a whole request: a broker that is asked for partition counts or a standby's lag has limits of its own, and threads
        that all wait for one keep others waiting."""
        return Deadline.after(self.router.timeout_s + _LAST_ATTEMPT_S)

    async def _within(self, deadline: Deadline, store: StoreInfo, asked: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(asked, deadline.left_s)
        except asyncio.TimeoutError:
            said = f"{store.name}: a broker or another instance has not answered in {self.router.timeout_s:g} s; ask again"
            raise InvalidStateStoreError(said, store=store.name) from None

    async def _rows(self, request: Request, store: StoreInfo) -> Answer:
        question = http_request.rows_question(request)
        if question.times is not None and not is_windowed(store):
            raise QueryError(f"{store.name} has no windows or sessions here: it is a {store.layout} store")
        max_lag = http_request.whole_number(request, "max_lag", 0) if "max_lag" in request.parameters else None
        found = await self.router.read_here(store, question, max_lag=max_lag)
        if found.more_from is not None and not http_request.takes_part(request):
            raise QueryError(f"these rows are more than {question.most_bytes} bytes: ask for fewer, with a lower limit")
        return await self._written(question, lambda: Answer(200, replace(found, layout=store.layout).to_bytes(), MEDIA_TYPE))


def _at(found: FoundRows, *partitions: int) -> dict[str, str]:
    """The ``position`` header: positions of the copies that have answered, as far as known, for a later request."""
    position = str(found.position.of(partitions))
    return {"position": position} if position else {}


def _range_answer(request: Request, store: StoreInfo, question: RowsQuestion, found: FoundRows) -> Answer:
    hex_keys = request.parameters.get("keys") == "hex"
    rows, next_key = _page(store, found, question.limit - 1)
    info = {
        "store": store.name,
        "stale_by": max(found.covered.values()),
        **_at(found, *found.covered),
        "next": None if next_key is None else _next(store, next_key, hex_keys=hex_keys),
    }
    if request.wants_arrow:
        return Answer(200, http_answer.to_arrow(store, rows, info, hex_keys=hex_keys), http_answer.ARROW)
    entries = [http_answer.entry(store, row, hex_keys=hex_keys) for row in rows]
    return Answer(200, http_answer.to_json({**info, "entries": entries}))


def _page(store: StoreInfo, found: FoundRows, limit: int) -> tuple[tuple[Row, ...], bytes | None]:
    """A page's rows, and the key at which the next one begins. Rows of one key, which are in several partitions if a program
    places them so, stay together: a page that began in the middle of them would have some again."""
    rows, more = found.rows[:limit], found.rows[limit:]
    if not more:
        return rows, found.more_from
    whole = tuple(row for row in rows if row.key != more[0].key)
    if not whole:
        raise QueryError(
            f"limit is {limit}, and {store.name} has a key in more partitions than that: ask with a higher limit"
        )
    return whole, more[0].key


def _next(store: StoreInfo, key: bytes, *, hex_keys: bool) -> str:
    """Where the next page begins. QueryError if a request can't say that in text: pages would lack keys, or have them twice."""
    if not hex_keys and not http_values.has_text(store, key):
        raise QueryError(
            f"the next page of {store.name} begins at a key that another program has written in its own way, so that its text"
            " doesn't give its bytes: ask with keys=hex, from the first page on"
        )
    return http_values.key_text(store, key, hex_keys=hex_keys)


def _windows(request: Request, store: StoreInfo, found: FoundRows, question: RowsQuestion, info: dict[str, object]) -> Answer:
    if request.wants_arrow:
        raise QueryError(f"{store.name} has windows or sessions, which are answered as JSON only")
    shown, more = found.rows[: question.limit - 1], found.rows[question.limit - 1 :] or found.more_from is not None
    assert question.key is not None
    key = http_values.shown_key(store, question.key, hex_keys=request.parameters.get("keys") == "hex")
    entries = [window_entry(store, row) for row in shown]
    return Answer(200, http_answer.to_json({**info, "key": key, "windows": entries, "more": bool(more)}))


def _shown(copy: CopyProgress) -> dict[str, object]:
    return {
        "task": str(copy.task),
        "role": "restoring" if copy.is_active else "standby",
        "lag": copy.lag,
        "offsets_per_s": None if copy.offsets_per_s is None else round(copy.offsets_per_s, 1),
        "seconds_left": None if copy.seconds_left is None else round(copy.seconds_left, 1),
    }


def _has_body(scope: Scope) -> bool:
    given = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
    return b"transfer-encoding" in given or given.get(b"content-length", b"0").strip(b"0") != b""


def _is_loopback_name(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return is_loopback(name if colon and port.isdigit() else host)


def _header(scope: Scope, name: bytes) -> str:
    found = [value.decode("latin-1") for given, value in scope["headers"] if given == name]
    return found[0] if len(found) == 1 else ""


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return


