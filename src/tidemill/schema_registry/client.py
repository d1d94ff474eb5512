"""confluent-kafka's registry client, which tells what the registry says of a schema from a registry that does not work.

Decides that only a registry's own answer about a schema (there is none of this id, an incompatible one ...) is a
SchemaRegistryError. Everything else is a RetriableError: no connection, no answer in time, a refused login, too many requests, a
redirect, another server's page. No record is to blame for these, so none is skipped for them. Invariants: what is no answer is
not cached; a request ends within twice its limit, however slowly its answer comes, and takes no more memory than a schema may.
The server that gives the client its tokens is held to the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidemill.errors import RetriableError

TIMEOUT_S = 10
"""The limit of each request, where none is set: the client's own default is to wait without limit."""
_MOST_BYTES = 16 << 20
"""Largest answer that is read; no schema is larger."""
_OF_A_SCHEMA = frozenset({*range(40401, 40500), 409, 42201})
"""The registry's codes: no such subject, version or schema; an incompatible schema; an invalid one."""

_Answer = TypeVar("_Answer")


class RegistryClient(SchemaRegistryClient):
    """``told``: gives an error's text without the credentials of the settings and these."""

    def __init__(self, conf: dict[str, Any], told: Callable[[Exception, Sequence[str]], str]) -> None:
        super().__init__({"timeout": TIMEOUT_S, **conf})
        self._name, self._told = conf["url"], told
        self._tokens = self._rest_client.bearer_field_provider
        for session in (self._rest_client.session, getattr(self._tokens, "client", None)):
            if session is not None:
                _limit_bytes(session)
                if self._rest_client.timeout is not None:
                    _limit_time(session, self._rest_client.timeout)

    def get_schema(self, *args: Any, **options: Any) -> Schema:
        ask = super().get_schema
        return self._asked(lambda: ask(*args, **options), _is_schema)

    def get_version(self, *args: Any, **options: Any) -> RegisteredSchema:
        ask = super().get_version
        return self._asked(lambda: ask(*args, **options), lambda found: _is_schema(found.schema))

    def register_schema_full_response(self, *args: Any, **options: Any) -> RegisteredSchema:
        ask = super().register_schema_full_response
        return self._asked(lambda: ask(*args, **options), _has_id)

    def lookup_schema(self, *args: Any, **options: Any) -> RegisteredSchema:
        ask = super().lookup_schema
        return self._asked(lambda: ask(*args, **options), _has_id)

    def _said(self, problem: Exception) -> str:
        token = getattr(self._tokens, "token", None)  # as the token's server gave it, None before that
        return self._told(problem, [token] if isinstance(token, str) else [])

    def _asked(self, ask: Callable[[], _Answer], is_answer: Callable[[_Answer], bool]) -> _Answer:
        """SchemaRegistryError, or RetriableError."""
        try:
            answer = ask()
        except SchemaRegistryError as refused:
            if refused.error_code in _OF_A_SCHEMA:
                raise
            raise RetriableError(f"schema registry {self._name}: {self._said(refused)}") from None
        except Exception as problem:  # of the network, or of text that is no answer
            said = f"{type(problem).__name__}: {self._said(problem)}"
            raise RetriableError(f"schema registry {self._name} does not answer as one: {said}") from None
        if not is_answer(answer):
            self.clear_caches()  # type: ignore[no-untyped-call]
            raise RetriableError(f"schema registry {self._name} does not answer as one: its answer has no schema, or no id")
        return answer


def _limit_bytes(session: httpx.Client) -> None:
    """Reads no more of an answer, nor of what it unfolds to."""

    def read(answer: httpx.Response) -> None:
        encoding = answer.headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in ("identity", "gzip"):  # others, and several at once, unfold to any size in one step
            raise ValueError(f"its answer is encoded as {encoding[:80]!r}, which was not asked for")
        parts, size = [], 0
        for part in answer.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                raise ValueError(f"its answer has more than {_MOST_BYTES} bytes")
        answer._content = b"".join(parts)  # which the client then finds read

    session.headers["Accept-Encoding"] = "gzip"
    session.event_hooks["response"].append(read)


def _limit_time(session: httpx.Client, limit_s: float) -> None:
    """Ends each request of the session after this time. Its own time-out is that of each read: one byte now and then would do.

    The connections are closed, which the next byte, or the time-out for it, tells the one who waits.
    """
    request = session.request

    def limited(*args: Any, **options: Any) -> httpx.Response:
        is_over = threading.Event()

        def end() -> None:
            is_over.set()
            for transport in (session._transport, *session._mounts.values()):
                if transport is not None:
                    transport.close()

        timer = threading.Timer(limit_s, end)
        timer.daemon = True
        timer.start()
        try:
            return request(*args, **options)
        except Exception:
            if is_over.is_set():
                raise httpx.ReadTimeout(f"no whole answer within {limit_s:g} s") from None
            raise
        finally:
            timer.cancel()

    session.request = limited  # type: ignore[method-assign]


def _is_schema(found: Schema) -> bool:
    return isinstance(found.schema_str, str)


def _has_id(found: RegisteredSchema) -> bool:
    return isinstance(found.schema_id, int)
