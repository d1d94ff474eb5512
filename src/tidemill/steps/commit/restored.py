"""Conversion of changelog records to a store's rows, for restoring active tasks and for standbys.

Decides by who keeps the store: a vectorised step's row is the value behind its timestamp; the store classes of operators
know themselves what a record of their changelog means. Bytes that none of them has written are an error that names the
record: nothing can be counted on from there on, and reading it again would end in the same way. A source topic that serves as
changelog is different: a record that can't be read was skipped when it was processed, and is skipped here.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableMapping

import pyarrow as pa

from tidemill.dsl.serdes import Serdes
from tidemill.errors import CorruptStateError, RecordError, SerdeError, StateError, StopError
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.operators.stores import store_of
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.intake import DeserializerEndedError, read_each
from tidemill.steps.rows.task_rows import TaskRows, opened
from tidemill.steps.step_context import TaskStore
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StoreReader, StoreView, Written
from tidemill.task.batch import Positions
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, StoreKind

log = logging.getLogger("tidemill.state")

Rows = dict[bytes, "bytes | None"]
Record = tuple["bytes | None", "bytes | None", int, "bytes | None", int]
"""Key, value, timestamp, headers, offset."""

_NOT_OURS = (struct.error, IndexError, ValueError, OverflowError, SerdeError, StateError)
"""Errors that the stores' decoders raise for bytes of another form."""
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


def apply_restored(
    tables: MutableMapping[int, pa.Table], specs: Collection[StoreSpec], changelog_ends: Positions,
    stores: Mapping[TaskId, TaskStore],
) -> Counter[tuple[TaskId, str]]:
    """Changelog records go straight to their stores, with where the changelog was left; how many of each store there were. Their
    ``tables`` are taken."""
    ends: dict[TaskId, dict[str, int]] = {}
    writes: dict[TaskId, dict[str, Rows]] = {}
    restored: Counter[tuple[TaskId, str]] = Counter()
    by_changelog = {spec.changelog or spec.source_topic: spec for spec in specs}
    for tp, end in changelog_ends.items():
        spec = by_changelog[tp.topic]
        ends.setdefault(TaskId(spec.subtopology, tp.partition), {})[spec.name] = end
    for spec in specs:
        table = tables.pop(spec.tag, None)
        if table is None:
            continue
        for task, (count, rows) in restored_writes(table, spec, stores).items():
            restored[task, spec.name] += count
            writes.setdefault(task, {})[spec.name] = rows
    for task, positions in ends.items():
        if task not in stores:
            continue
        store, found = stores[task], writes.get(task, {})
        known = store.at.changelog
        # Also without records: a changelog's end may be behind markers alone, and the store must know that it is there.
        if found or any(known.get(name) != position for name, position in positions.items()):
            store.apply(found, positions)
    return restored


def restored_writes(
    table: pa.Table, store: StoreSpec, readers: Mapping[TaskId, StoreReader]
) -> dict[TaskId, tuple[int, Rows]]:
    """Number of changelog records and rows to write (None deletes) by task. ``table``: changelog records of all tasks, in any
    order."""
    # Of one key the last record counts, and the JVM may have brought them in any order.
    table = table.sort_by([("part", "ascending"), ("off", "ascending")])
    parts, keys, values, times, offsets = (
        table.column(name).to_pylist() for name in ("part", "key", "value", "ts", "off")
    )
    headers = table.column("headers")
    packed = [None] * len(parts) if headers.null_count == len(parts) else headers.to_pylist()
    found: dict[TaskId, tuple[int, Rows]] = {}
    begin = 0
    while begin < len(parts):
        end = begin
        while end < len(parts) and parts[end] == parts[begin]:
            end += 1
        task = TaskId(store.subtopology, parts[begin])
        columns = (keys, values, times, packed, offsets)
        records: Iterator[Record] = zip(*(column[begin:end] for column in columns), strict=True)
        if store.changelog is None:
            records = _processed(records, store, task)
        if store.kept is None:
            rows = _plain(records, store, task)
        else:
            with opened(readers.get(task)) as view:
                rows = _kept(records, store, view, task)
        found[task] = end - begin, rows
        begin = end
    return found


def _plain(records: Iterator[Record], store: StoreSpec, task: TaskId) -> Rows:
    rows: Rows = {}
    for key, value, timestamp, _, offset in records:
        if key is not None:
            problem = _wrong_width(store, key, value)
            if problem is not None:
                raise _unreadable(store, task, offset, problem)
            rows[key] = timestamp.to_bytes(8, "big", signed=True) + value if store.timestamped and value is not None else value
    return rows


def _kept(records: Iterator[Record], store: StoreSpec, view: StoreView, task: TaskId) -> Rows:
    written = Written()
    rows = TaskRows(store.name, logged=False)
    rows.begin(view, written)
    assert store.kept is not None
    kept = store_of(store.kept, rows, KeyValueSerdes(key=Serdes.bytes(), value=Serdes.bytes()))
    for key, value, timestamp, headers, offset in records:
        if key is not None:
            try:
                _check_key(store.kept, key)
                problem = _wrong_width(store, key, value)
                if problem is not None:
                    raise ValueError(problem)
                kept.restore(key, value, timestamp, tuple(unpacked(headers) or ()))
            except CorruptStateError:  # of what was restored before, not of this record
                raise
            except _NOT_OURS as refused:
                raise _unreadable(store, task, offset, str(refused)) from refused
    return written.rows


def _processed(records: Iterator[Record], store: StoreSpec, task: TaskId) -> Iterator[Record]:
    """Records of a source topic as the table processed them: all that its serdes can read."""
    assert store.key_serde is not None
    assert store.value_serde is not None
    given = list(records)
    try:
        _, no_keys = read_each(store.key_serde.deserialize, [key for key, *_ in given])
        _, no_values = read_each(store.value_serde.deserialize, [value for _, value, *_ in given])
    except DeserializerEndedError as ended:
        topic, offset = store.source_topic or "", given[ended.at][-1]
        what = f"store {store.name}: {ended}"
        raise RecordError(what, task=str(task), topic=topic, partition=task.partition, offset=offset) from ended
    misread = {*no_keys, *no_values}
    yield from (record for at, record in enumerate(given) if at not in misread)
    left_out = [given[at][-1] for at in sorted(misread)]
    if left_out:
        log.warning(
            LogEvent(
                "restored-without", task=task, store=store.name, changelog=f"{store.source_topic}-{task.partition}",
                records=len(left_out), first_offset=left_out[0],
                problem="its serdes can't read them, so they were skipped when they were processed, too",
            )
        )  # fmt: skip


def _wrong_width(store: StoreSpec, key: bytes, value: bytes | None) -> str | None:
    """The problem with a changelog record whose key or value is a number of fixed width; None if there is none."""
    behind = 0 if store.kept is None else _BEHIND_KEYS.get(store.kept.kind)
    if behind is None:
        return None
    sides = [("key", len(key) - behind, store.key_serde)]
    if value is not None:
        sides.append(("value", len(value), store.value_serde))
    for side, length, serde in sides:
        width = _WIDTHS.get(getattr(serde, "name", ""))
        if width is not None and length != width:
            return f"its {side} has {length} bytes, expected {width}"
    return None


def _check_key(store: Store, key: bytes) -> None:
    least, numbers = _NUMBERS_IN_KEYS.get(store.kind, (0, ()))
    if len(key) < least:
        raise ValueError(f"its key has {len(key)} bytes, expected {least} or more")
    if any(key[at] & 0x80 for at in numbers):
        raise ValueError("a time or a sequence in its key is negative")
    if store.kind in _OF_WINDOWS and not store.retain_duplicates and key[-4:] != bytes(4):
        raise ValueError("its key has a sequence, which only stores of a stream-stream join have")
    if store.kind is StoreKind.SESSION and key[-16:-8] < key[-8:]:
        raise ValueError("its session ends before it begins")


def _unreadable(store: StoreSpec, task: TaskId, offset: int, found: str) -> StopError:
    topic = store.changelog or store.source_topic
    return StopError(
        f"task {task}: the record at offset {offset} of {topic}-{task.partition} is none of store {store.name} ({found}): "
        "something else writes to the changelog, or another version of the application has. Take its right to write away, and "
        "reset the application (tidemill reset) or give the store another name"
    )
