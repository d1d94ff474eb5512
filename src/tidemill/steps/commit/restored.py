"""Conversion of changelog records to a store's rows, for restoring active tasks and for standbys.

Decides by who keeps the store: a vectorised step's row is the value behind its timestamp; the store classes of operators
know themselves what a record of their changelog means. Rows of most stores are made of a whole batch in columns, which takes
half the time or less. Bytes that none of them has written are an error that names the record (``changelog_records``). A source
topic that serves as changelog is different: a record that can't be read was skipped when it was processed, and is skipped here.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.dsl.serdes import Serdes
from tidemill.errors import CorruptStateError, RecordError, SerdeError, StateError
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.operators.stores import store_of
from tidemill.steps.commit.changelog_records import check_records, unreadable
from tidemill.steps.commit.restored_segments import are_in_segments, rows_in_segments, sorted_rows
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.intake import DeserializerEndedError, read_each
from tidemill.steps.rows.packed_rows import unpacked as unpacked_rows
from tidemill.steps.rows.task_rows import TaskRows, opened
from tidemill.steps.step_context import TaskStore
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StoreReader, StoreView, Written
from tidemill.steps.vector.arrays import big_endian, longs
from tidemill.task.batch import Positions
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import StoreKind

log = logging.getLogger("tidemill.state")

Rows = dict[bytes, "bytes | None"]

_NOT_OURS = (struct.error, IndexError, ValueError, OverflowError, SerdeError, StateError)
"""Errors that the stores' decoders raise for bytes of another form."""
_ROW_BY_KEY: Mapping[StoreKind, bool] = {
    StoreKind.KEY_VALUE: False,
    StoreKind.TIMESTAMPED_KEY_VALUE: True,
    StoreKind.SUBSCRIPTIONS: True,
}
"""Stores that keep of each key its last record alone, and whether its timestamp is before the value."""


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
        packed = tables.pop(spec.tag, None)
        if packed is None:
            continue
        records = unpacked_rows(packed.column("value").to_pylist())
        for task, (count, rows) in restored_writes(records, spec, stores).items():
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
    order, with the columns of ``PACKED_SCHEMA``."""
    # Of one key the last record counts, and the JVM may have brought them in any order.
    table = table.sort_by([("part", "ascending"), ("off", "ascending")])
    parts, begins, counts = np.unique(table.column("part").to_numpy(), return_index=True, return_counts=True)
    found: dict[TaskId, tuple[int, Rows]] = {}
    for part, begin, count in zip(parts.tolist(), begins.tolist(), counts.tolist(), strict=True):
        task, records = TaskId(store.subtopology, part), table.slice(begin, count)
        if store.changelog is None:
            records = _processed(records, store, task)
        if records.column("key").null_count:
            records = records.filter(pc.is_valid(records.column("key")))
        check_records(records, store, task)
        if store.kept is None or store.kept.kind in _ROW_BY_KEY:
            rows = _rows_by_key(records, store)
        else:
            with opened(readers.get(task)) as view:
                rows = _kept(records, store, view, task)
        found[task] = count, rows
    return found


def _rows_by_key(records: pa.Table, store: StoreSpec) -> Rows:
    """A row for each key, by its last record."""
    is_timed = store.timestamped if store.kept is None else _ROW_BY_KEY[store.kept.kind]
    values = records.column("value")
    if is_timed:
        values = pc.binary_join_element_wise(big_endian(longs(records, "ts")), values, b"")
    return sorted_rows(records.column("key"), values)


def _kept(records: pa.Table, store: StoreSpec, view: StoreView, task: TaskId) -> Rows:
    written = Written()
    rows = TaskRows(store.name, logged=False)
    rows.begin(view, written)
    assert store.kept is not None
    if are_in_segments(store.kept):
        return {**rows_in_segments(records, store.kept, rows), **written.rows}
    kept = store_of(store.kept, rows, KeyValueSerdes(key=Serdes.bytes(), value=Serdes.bytes()))
    columns = (records.column(name).to_pylist() for name in ("key", "value", "ts", "headers", "off"))
    for key, value, timestamp, headers, offset in zip(*columns, strict=True):
        try:
            kept.restore(key, value, timestamp, () if headers is None else tuple(unpacked(headers) or ()))
        except CorruptStateError:  # of what was restored before, not of this record
            raise
        except _NOT_OURS as refused:
            raise unreadable(store, task, offset, str(refused)) from refused
    return written.rows


def _processed(records: pa.Table, store: StoreSpec, task: TaskId) -> pa.Table:
    """Records of a source topic as the table processed them: all that its serdes can read."""
    assert store.key_serde is not None
    assert store.value_serde is not None
    offsets = records.column("off")
    try:
        keys, no_keys = read_each(store.key_serde.deserialize, records.column("key").to_pylist())
        values, no_values = read_each(store.value_serde.deserialize, records.column("value").to_pylist())
    except DeserializerEndedError as ended:
        topic, offset = store.source_topic or "", offsets[ended.at].as_py()
        what = f"store {store.name}: {ended}"
        raise RecordError(what, task=str(task), topic=topic, partition=task.partition, offset=offset) from ended
    misread = sorted({*no_keys, *no_values})
    if misread:
        log.warning(
            LogEvent(
                "restored-without", task=task, store=store.name, changelog=f"{store.source_topic}-{task.partition}",
                records=len(misread), first_offset=offsets[misread[0]].as_py(),
                problem="its serdes can't read them, so they were skipped when they were processed, too",
            )
        )  # fmt: skip
    # Bytes may also be read as null: such a key was skipped, such a value deleted its row.
    is_read = np.array([key is not None for key in keys], np.bool_)
    is_read[misread] = False
    has_value = pa.array([value is not None for value in values], pa.bool_())
    kept = pc.if_else(has_value, records.column("value"), None)
    return records.set_column(records.column_names.index("value"), "value", kept).filter(pa.array(is_read))
