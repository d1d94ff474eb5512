"""Windows and sessions of one copy: the operators' stores over its rows, and other instances' queries for a key.

Decides how instances send each other a window: the key's bytes, then start (a window) or end and start (a session), eight
bytes each, and the value as the store has it. The operators' stores apply the retention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import NoReturn, TypeVar

from tidemill.dsl.serdes import Serdes
from tidemill.operators.session_store import SessionStore
from tidemill.operators.stores import store_of
from tidemill.operators.versioned_store import VersionedStore
from tidemill.operators.window_store import WindowStore
from tidemill.query.local_copies import CopyReader, StoreSnapshot
from tidemill.query.rows import FoundRows, Row, RowsQuestion, first_page
from tidemill.query.store_info import StoreInfo
from tidemill.state.keys import TIMESTAMP_SIZE
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import StoreKind

WINDOWS = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW)
WINDOWED = (*WINDOWS, StoreKind.SESSION)
T = TypeVar("T")
Kind = TypeVar("Kind", WindowStore, SessionStore, VersionedStore)
_LONG, _TWO_LONGS = Struct(">q"), Struct(">qq")


def kind_of(store: StoreInfo) -> StoreKind | None:
    return None if store.store is None else store.store.kind


def is_windowed(store: StoreInfo) -> bool:
    return kind_of(store) in WINDOWED


def first_windows(reader: CopyReader, store: StoreInfo, question: RowsQuestion, lag: int) -> FoundRows:
    """Windows or sessions of a key between two times, in one copy. InvalidStateStoreError if it can't be read."""
    assert question.key is not None
    assert question.times is not None
    key, times = question.key, question.times
    in_bytes = replace(store, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())

    def page(found: Iterator[tuple[bytes, bytes]]) -> tuple[tuple[Row, ...], bytes | None]:
        return first_page((Row(key + bounds, stored, reader.partition) for bounds, stored in found), question)

    if kind_of(store) is StoreKind.SESSION:
        rows, more_from = at_one_commit(reader, in_bytes, SessionStore, lambda kept: page(_sessions(kept, key, times)))
    else:
        rows, more_from = at_one_commit(reader, in_bytes, WindowStore, lambda kept: page(_windows(kept, key, times)))
    reader.position()  # what was read is only as good as what the files stood for
    return FoundRows(rows=rows, covered={reader.partition: lag}, more_from=more_from)


def require_windows(store: StoreInfo, rows: FoundRows, key: bytes) -> None:
    """ValueError if rows that another instance sent can't be a key's windows, or sessions."""
    bounds = _TWO_LONGS.size if kind_of(store) is StoreKind.SESSION else _LONG.size
    least = TIMESTAMP_SIZE if kind_of(store) is StoreKind.TIMESTAMPED_WINDOW else 0
    if any(len(row.key) != len(key) + bounds or len(row.stored) < least for row in rows.rows):
        raise ValueError("rows that are no windows of the key")


def _windows(kept: WindowStore, key: bytes, times: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    for start, found in kept.read_range(key, *times):
        yield _LONG.pack(start), _LONG.pack(found[1]) + found[0] if kept.timestamped else found


def _sessions(kept: SessionStore, key: bytes, times: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    for session, value in kept.read_sessions(key, *times):
        yield _TWO_LONGS.pack(session.end, session.start), value


def window_entry(store: StoreInfo, row: Row) -> dict[str, object]:
    """A window as a client sees it. SerdeError if the store's serde can't read its value."""
    assert store.store is not None
    stored = row.stored
    if kind_of(store) is StoreKind.SESSION:
        end, start = _TWO_LONGS.unpack(row.key[-_TWO_LONGS.size :])
        return {"start": start, "end": end, "value": store.value_serde.deserialize(stored)}
    [start] = _LONG.unpack(row.key[-_LONG.size :])
    bounds = {"start": start, "end": store.store.window_end(start)}
    if kind_of(store) is not StoreKind.TIMESTAMPED_WINDOW:
        return {**bounds, "value": store.value_serde.deserialize(stored)}
    value = store.value_serde.deserialize(stored[TIMESTAMP_SIZE:])
    return {**bounds, "value": value, "timestamp": _LONG.unpack_from(stored)[0]}


def opened_store(reader: CopyReader, store: StoreInfo, kind: type[Kind]) -> Kind:
    """The operators' store over the rows of a copy, as they are now; each chunk of a scan is a snapshot of its own."""
    return _over(_CopyRows(reader.row, reader.rows), store, kind)


def at_one_commit(reader: CopyReader, store: StoreInfo, kind: type[Kind], read: Callable[[Kind], T]) -> T:
    """What ``read`` finds in the operators' store over one snapshot of a copy: a key's windows, sessions and versions lie in
    several places, between which a batch moves them."""

    def from_view(view: StoreSnapshot) -> T:
        return read(_over(_CopyRows(partial(view.get, store.name), partial(view.scan, store.name)), store, kind))

    return reader.at_one_commit(from_view)


def _over(rows: _CopyRows, store: StoreInfo, kind: type[Kind]) -> Kind:
    assert store.store is not None
    described = replace(store.store, key_serde=store.key_serde, value_serde=store.value_serde)
    opened = store_of(described, rows, KeyValueSerdes(key=store.key_serde, value=store.value_serde))
    assert isinstance(opened, kind)
    return opened


class _CopyRows:
    """A copy's rows, to be read only."""

    def __init__(self, get: Callable[[bytes], bytes | None], scan: Callable[..., Iterator[tuple[bytes, bytes]]]) -> None:
        self.get, self.scan = get, scan

    def entries(self) -> int:
        return sum(1 for _ in self.scan())

    def put(self, *_row: object) -> NoReturn:
        raise TypeError("a store that is read from outside can't be written")

    def log(self, *_record: object) -> NoReturn:
        raise TypeError("a store that is read from outside can't be written")
