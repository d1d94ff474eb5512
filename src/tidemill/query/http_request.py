"""HTTP requests: path and parameters, as questions about a store.

Decides which parameters there are. Anything malformed is a QueryError with a sentence; nothing else of a request is used. Leaves
to ``http_values`` how keys are written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote_to_bytes

from tidemill.errors import QueryError
from tidemill.operators.segments import LONG_MAX
from tidemill.query import http_values
from tidemill.query.http_answer import ARROW
from tidemill.query.http_values import from_hex
from tidemill.query.position import Position
from tidemill.query.rows import MEDIA_TYPE, PAGE_BYTES, RowsQuestion
from tidemill.query.store_info import StoreInfo

MOST_ROWS = 10_000
DEFAULT_ROWS = 1_000
UNASKED_BYTES = 32 << 20
"""Limit of rows for an instance whose request names none: it gets all rows or none."""
_MOST_PARAMETERS = 16
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``path``: its parts, decoded; ``parameters``: each once."""

    path: tuple[str, ...]
    parameters: Mapping[str, str]
    accept: str = ""

    @property
    def wants_arrow(self) -> bool:
        return any(kind == ARROW for kind, _ in self.accepted())

    def accepted(self) -> list[tuple[str, dict[str, str]]]:
        """Media types of the header Accept, with their parameters."""
        found = []
        for one in self.accept.split(","):
            kind, *parameters = (part.strip() for part in one.split(";"))
            pairs = (parameter.partition("=") for parameter in parameters)
            found.append((kind.lower(), {name.strip(): value.strip() for name, _, value in pairs}))
        return found


def parse_request(raw_path: bytes, query: bytes, accept: str) -> Request:
    """QueryError if path or parameters are not UTF-8 or have a '%' that begins no escape, or a parameter comes twice."""
    if _BROKEN_ESCAPE.search(raw_path) or _BROKEN_ESCAPE.search(query):
        raise QueryError("the address has a '%' that two hexadecimal digits do not follow: a '%' itself is written %25")
    try:
        path = tuple(unquote_to_bytes(part).decode("utf-8") for part in raw_path.split(b"/")[1:])
    except UnicodeDecodeError:
        raise QueryError("the path is not text in UTF-8: write the key's bytes as hex, with keys=hex") from None
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:
        raise QueryError(
            f"the part of the address behind '?' can't be read: expected at most {_MOST_PARAMETERS} times name=value in UTF-8"
        ) from None
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise QueryError("a parameter is given twice: give each once")
    return Request(path=path, parameters=parameters, accept=accept)


def key_question(request: Request, store: StoreInfo, key: str, partition: int, count: int) -> RowsQuestion:
    """``partition``: the key's by the partitioner; the request may name another."""
    asked = whole_number(request, "partition", partition, most=count - 1)
    return RowsQuestion(partitions=frozenset({asked}), key=key_bytes(request, store, key))


def windows_question(request: Request, store: StoreInfo, key: str, partition: int, count: int) -> RowsQuestion:
    """The windows of a key that begin from ``from`` to ``to``, or the sessions that touch this time: ms, both included. One more
    than wanted is asked for."""
    asked = key_question(request, store, key, partition, count)
    times = whole_number(request, "from", 0), whole_number(request, "to", LONG_MAX)
    limit = whole_number(request, "limit", DEFAULT_ROWS, least=1, most=MOST_ROWS)
    return replace(asked, times=times, limit=limit + 1)


def range_question(request: Request, store: StoreInfo, count: int) -> RowsQuestion:
    """One row more than wanted is asked for: it says whether, and where, there is more."""
    low, high = (
        key_bytes(request, store, request.parameters[name]) if name in request.parameters else None for name in ("from", "to")
    )
    limit = whole_number(request, "limit", DEFAULT_ROWS, least=1, most=MOST_ROWS)
    if "partition" in request.parameters:
        partitions = frozenset({whole_number(request, "partition", 0, most=count - 1)})
    else:
        partitions = frozenset(range(count))
    return RowsQuestion(partitions=partitions, low=low, high=high, limit=limit + 1)


def rows_question(request: Request) -> RowsQuestion:
    """Question of another instance: ``to_parameters``, read back."""
    allow_only(request, ("partitions", "key", "low", "high", "limit", "max_lag", "first", "last", "position", "most_age_ms"))
    try:
        partitions = frozenset(map(int, request.parameters["partitions"].split(",")))
    except (KeyError, ValueError):
        raise QueryError("partitions are whole numbers with commas between them, such as partitions=0,2") from None
    hexed = (request.parameters.get(name) for name in ("key", "low", "high"))
    key, low, high = (None if text is None else from_hex(text) for text in hexed)
    limit = whole_number(request, "limit", 1, least=1, most=MOST_ROWS + 1)
    times = (whole_number(request, "first", 0), whole_number(request, "last", 0)) if "last" in request.parameters else None
    if times is not None and key is None:
        raise QueryError("windows between two times, first and last, are those of a key: give it as key")
    most_bytes = _most_bytes(request) or UNASKED_BYTES
    asked = RowsQuestion(partitions=partitions, key=key, low=low, high=high, limit=limit, times=times, most_bytes=most_bytes)
    return bounded(request, asked, age="most_age_ms")


def bounded(
    request: Request, question: RowsQuestion, most_age_ms: int | None = None, *, age: str = "max_staleness_ms"
) -> RowsQuestion:
    """With the bounds that the request sets to where copies are, and to how old standbys are (else ``most_age_ms``)."""
    position = Position.parse(request.parameters["position"]) if "position" in request.parameters else Position()
    if age in request.parameters:
        most_age_ms = whole_number(request, age, 0)
    return replace(question, position=position, most_age_ms=most_age_ms)


def takes_part(request: Request) -> bool:
    """True if the instance that asks knows that an answer may end before the limit: version 0.1.0 does not."""
    return _most_bytes(request) is not None


def _most_bytes(request: Request) -> int | None:
    for kind, parameters in request.accepted():
        text = parameters.get("bytes", "")
        if kind == MEDIA_TYPE and text.isascii() and text.isdigit() and len(text) < 10:
            return max(1, min(int(text), PAGE_BYTES))
    return None


def to_parameters(question: RowsQuestion, max_lag: int | None) -> dict[str, str]:
    """A question as one instance asks another."""
    parameters = {"partitions": ",".join(map(str, sorted(question.partitions))), "limit": str(question.limit)}
    bounds = {"key": question.key, "low": question.low, "high": question.high}
    parameters |= {name: data.hex() for name, data in bounds.items() if data is not None}
    if question.times is not None:
        parameters |= {"first": str(question.times[0]), "last": str(question.times[1])}
    position = question.position.of(question.partitions)
    more = {"max_lag": max_lag, "most_age_ms": question.most_age_ms, "position": str(position) or None}
    return parameters | {name: str(value) for name, value in more.items() if value is not None}


def allow_only(request: Request, names: Collection[str]) -> None:
    unknown = sorted(set(request.parameters) - set(names))
    if unknown:
        raise QueryError(f"there is no parameter {unknown[0]!r} here; those there are: {', '.join(names) or 'none'}")


def whole_number(request: Request, name: str, default: int, *, least: int = 0, most: int = LONG_MAX) -> int:
    text = request.parameters.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        bounds = f"from {least} on" if most == LONG_MAX else f"from {least} to {most}"
        raise QueryError(f"{name} is {text[:40]!r}, expected a whole number {bounds}")
    return int(text)


def key_bytes(request: Request, store: StoreInfo, text: str) -> bytes:
    """A key as the store has it. QueryError if the text is none of its keys."""
    return http_values.key_bytes(store, text, request.parameters.get("keys", "text"))
