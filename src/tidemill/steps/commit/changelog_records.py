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

from tidemill.dsl.serdes import BooleanSerde, DoubleSerde, FloatSerde, WholeNumberSerde
from tidemill.errors import StopError
from tidemill.ids import TaskId
from tidemill.steps.rows.codecs_wire import fixed_width
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.nodes import StoreKind
from tidemill.topology.values import Serde

_NUMBERS_IN_KEYS: Mapping[StoreKind | None, tuple[int, tuple[int, ...]]] = {
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
_OF_FIXED_WIDTH = (WholeNumberSerde, DoubleSerde, FloatSerde, BooleanSerde)
"""Of exactly these classes: one that is derived from them, or has such a name, may write others."""


def check_records(records: pa.Table, store: StoreSpec, task: TaskId) -> None:
    """StopError for the first record whose key is too short for the store or has what it never writes there, or whose key or
    value is a number of fixed width and has another. ``records``: in the order of their offsets, none without a key."""
    keys = records.column("key")
    kind = None if store.kept is None else store.kept.kind
    least, numbers = _NUMBERS_IN_KEYS.get(kind, (0, ()))
    _require_length(records, store, task, "key", f"{least} or more", lambda lengths: pc.less(lengths, least))
    behind = 0 if kind is None else _BEHIND_KEYS.get(kind)
    if behind is not None:
        for side, serde, more in (("key", store.key_serde, behind), ("value", store.value_serde, 0)):
            width = _width_of(serde)
            if width is not None:
                _require_length(records, store, task, side, str(width), partial(pc.not_equal, width), more)
    for at in numbers:
        is_negative = pc.greater(pc.binary_slice(keys, at, at + 1), b"\x7f")
        _refuse(records, store, task, is_negative, "a time or a sequence in its key is negative")
    if kind in _OF_WINDOWS and store.kept is not None and not store.kept.retain_duplicates:
        has_sequence = pc.not_equal(pc.binary_slice(keys, -4, None), bytes(4))
        _refuse(records, store, task, has_sequence, "its key has a sequence, which only stores of a stream-stream join have")
    if kind is StoreKind.SESSION:
        ends_early = pc.less(pc.binary_slice(keys, -16, -8), pc.binary_slice(keys, -8, None))
        _refuse(records, store, task, ends_early, "its session ends before it begins")


def _width_of(serde: Serde | None) -> int | None:
    """None if what it writes has no fixed width."""
    if serde is None or type(serde) not in _OF_FIXED_WIDTH:
        return None
    fixed = fixed_width(serde.sql_type)
    return None if fixed is None else fixed.width


def _require_length(
    records: pa.Table, store: StoreSpec, task: TaskId, side: str, expected: str, is_wrong: Callable[[Any], Any], behind: int = 0
) -> None:
    lengths = pc.subtract(pc.binary_length(records.column(side)), behind)

    def problem(at: int) -> str:
        return f"its {side} has {lengths[at].as_py()} bytes, expected {expected}"

    _refuse(records, store, task, is_wrong(lengths), problem)


def _refuse(
    records: pa.Table, store: StoreSpec, task: TaskId, is_wrong: pa.ChunkedArray, problem: str | Callable[[int], str]
) -> None:
    at = pc.index(is_wrong, value=True).as_py()
    if at >= 0:
        raise unreadable(store, task, records.column("off")[at].as_py(), problem if isinstance(problem, str) else problem(at))


def unreadable(store: StoreSpec, task: TaskId, offset: int, found: str) -> StopError:
    topic = store.changelog or store.source_topic
    return StopError(
        f"task {task}: the record at offset {offset} of {topic}-{task.partition} is none of store {store.name} ({found}): "
        "something else writes to the changelog, or another version of the application has. Take its right to write away, and "
        "reset the application (tidemill reset) or give the store another name"
    )
