"""What a record of a store's changelog must be: lengths of keys and values, times and sequences in keys.

Decides which bytes no store has written: nothing can be counted on from there on, and reading them again would end in the same
way, so that the error names the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import StopError
from tidemill.ids import TaskId
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.nodes import Store, StoreKind

_NUMBERS_IN_KEYS: Mapping[StoreKind, tuple[int, tuple[int, ...]]] = {
    StoreKind.WINDOW: (12, (-12, -4)),
    StoreKind.TIMESTAMPED_WINDOW: (12, (-12, -4)),
    StoreKind.SESSION: (16, (-16, -8)),
    StoreKind.OUTER_JOIN: (9, (0,)),
    StoreKind.GRACE_BUFFER: (13, (1, -4)),
}
"""The least length of a changelog key, and where times and sequences begin in it, none of which is negative."""
_OF_WINDOWS = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW)
_BEHIND_KEYS: Mapping[StoreKind, int] = {
    StoreKind.KEY_VALUE: 0,
    StoreKind.TIMESTAMPED_KEY_VALUE: 0,
    StoreKind.VERSIONED: 0,
    StoreKind.WINDOW: 12,
    StoreKind.TIMESTAMPED_WINDOW: 12,
    StoreKind.SESSION: 16,
}
"""Stores whose changelogs hold what the serdes write, and how many bytes follow the key's there."""
_WIDTHS = {"long": 8, "double": 8, "integer": 4, "float": 4, "short": 2, "boolean": 1}


def check_lengths(records: pa.Table, store: StoreSpec, task: TaskId) -> None:
    """StopError for the first record whose key is too short for the store, or whose key or value is a number of fixed width and
    has another."""
    if store.kept is not None:
        least, _ = _NUMBERS_IN_KEYS.get(store.kept.kind, (0, ()))
        if least:
            _require(records, store, task, "key", f"{least} or more", lambda lengths: pc.greater_equal(lengths, least))
    behind = 0 if store.kept is None else _BEHIND_KEYS.get(store.kept.kind)
    if behind is None:
        return
    for side, serde, more in (("key", store.key_serde, behind), ("value", store.value_serde, 0)):
        width = _WIDTHS.get(getattr(serde, "name", ""))
        if width is not None:
            _require(records, store, task, side, str(width), partial(pc.equal, width), more)


def _require(
    records: pa.Table, store: StoreSpec, task: TaskId, side: str, expected: str, fits: Callable[[Any], Any], behind: int = 0
) -> None:
    lengths = pc.subtract(pc.binary_length(records.column(side)), behind)
    at = pc.index(pc.fill_null(fits(lengths), fill_value=True), value=False).as_py()
    if at >= 0:
        problem = f"its {side} has {lengths[at].as_py()} bytes, expected {expected}"
        raise unreadable(store, task, records.column("off")[at].as_py(), problem)


def check_key(store: Store, key: bytes) -> None:
    """ValueError if the store has not written such a key, whose length is right."""
    _, numbers = _NUMBERS_IN_KEYS.get(store.kind, (0, ()))
    if any(key[at] & 0x80 for at in numbers):
        raise ValueError("a time or a sequence in its key is negative")
    if store.kind in _OF_WINDOWS and not store.retain_duplicates and key[-4:] != bytes(4):
        raise ValueError("its key has a sequence, which only stores of a stream-stream join have")
    if store.kind is StoreKind.SESSION and key[-16:-8] < key[-8:]:
        raise ValueError("its session ends before it begins")


def unreadable(store: StoreSpec, task: TaskId, offset: int, found: str) -> StopError:
    topic = store.changelog or store.source_topic
    return StopError(
        f"task {task}: the record at offset {offset} of {topic}-{task.partition} is none of store {store.name} ({found}): "
        "something else writes to the changelog, or another version of the application has. Take its right to write away, and "
        "reset the application (tidemill reset) or give the store another name"
    )
