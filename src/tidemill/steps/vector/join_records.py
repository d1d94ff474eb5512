"""The records of both sides of a join, brought together: rows of two tags in, a task's arrivals and its results out.

Decides their order (that of their ``seq``) and the bytes at the borders: bytes that a serde would only read and write again are
taken as they came. What joins what is ``window_join``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.dsl.serdes import BooleanSerde, BytesSerde, StringSerde, WholeNumberSerde
from tidemill.errors import RecordError, SerdeError, TidemillError
from tidemill.ids import TaskId
from tidemill.operators.function_failures import function_failure
from tidemill.printable import said_by
from tidemill.steps.rows.decoded import DecodedRows
from tidemill.steps.rows.order import topic_of
from tidemill.steps.rows.records import Records, side_bytes
from tidemill.steps.step_spec import GraphEntry, WindowJoin
from tidemill.steps.vector.join_waiting import JoinerError, JoinResults
from tidemill.steps.vector.window_join import Arrivals, JoinTask
from tidemill.topology.values import Serde

_ONE_FORM = (StringSerde, BytesSerde, WholeNumberSerde, BooleanSerde)


class BothSides:
    """A batch's rows of both sides; ``of`` gives those of one partition."""

    def __init__(self, join: WindowJoin, arrived: Sequence[DecodedRows]) -> None:
        self._by_part: dict[int, npt.NDArray[np.int64]] = {}
        if not arrived:
            return
        side_of = {side.source: which for which, side in enumerate(join.sides)}
        which = [side_of[a.entry.node] for a in arrived]
        stores = [join.sides[number].store for number in which]
        self._entries = {number: a.entry for number, a in zip(which, arrived, strict=True)}
        self._is_right = np.concatenate([np.full(len(a.keys), n, np.bool_) for n, a in zip(which, arrived, strict=True)])
        self._keys = _objects([_written(a, "key", store.key_serde) for a, store in zip(arrived, stores, strict=True)])
        self._rows = _objects([_written(a, "value", store.value_serde) for a, store in zip(arrived, stores, strict=True)])
        self._decoded_keys, self._values = _objects([a.keys for a in arrived]), _objects([a.values for a in arrived])
        self._headers = _objects([a.headers for a in arrived]) if any(any(a.headers) for a in arrived) else None
        self._offsets = _objects([a.offsets for a in arrived])
        self._timestamps = np.concatenate([np.array(a.timestamps, np.int64) for a in arrived])
        self._sequences = np.concatenate([a.sequences for a in arrived])
        parts = np.concatenate([a.parts for a in arrived])
        order = np.argsort(self._sequences, kind="stable")
        ordered = parts[order]
        self._by_part = {int(part): order[ordered == part] for part in np.unique(parts)}

    def of(self, partition: int) -> TaskRecords | None:
        """The records of a partition in their order; None if there are none."""
        at = self._by_part.get(partition)
        if at is None:
            return None
        arrivals = Arrivals(
            is_right=self._is_right[at],
            timestamps=self._timestamps[at],
            keys=self._keys[at].tolist(),
            rows=self._rows[at].tolist(),
            decoded_keys=self._decoded_keys[at].tolist(),
            values=self._values[at].tolist(),
            headers=None if self._headers is None else self._headers[at].tolist(),
        )
        return TaskRecords(self._entries, arrivals, self._sequences[at].tolist(), self._offsets[at].tolist())


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """One task's records, and where each came from."""

    entries: dict[int, GraphEntry]
    arrivals: Arrivals
    sequences: list[int]
    offsets: list[int | None]

    def joined_by(self, task: JoinTask, of: TaskId, now_ms: int) -> JoinResults:
        """Raises RecordError: the joiner failed, and for which record."""
        try:
            return task.run(self.arrivals, now_ms)
        except JoinerError as failed:
            problem = failed.__cause__ or failed
            raise self._problem(failed.node, problem, of, failed.at) from problem

    def forward(self, made: JoinResults, target: str, key_serde: Serde, of: TaskId, out: Records) -> None:
        """Adds the results, as bytes, to ``out``. ``target``: the node that they are for.

        Raises:
            RecordError: a key can't be written.
        """
        causes = made.causes
        out.keys += self._keys_of(made, target, key_serde, of)
        out.values += made.values
        out.parts += [of.partition] * len(causes)
        out.timestamps += made.timestamps
        offsets, sequences, headers = self.offsets, self.sequences, self.arrivals.headers
        out.offsets += [-1 if (offset := offsets[at]) is None else offset for at in causes]  # None means summed
        out.sequences += [sequences[at] for at in causes]
        assert out.headers is not None
        out.headers += [None] * len(causes) if headers is None else [headers[at] or None for at in causes]

    def _keys_of(self, made: JoinResults, target: str, serde: Serde, of: TaskId) -> list[bytes | None]:
        given, causes = self.arrivals, made.causes
        if made.keys is None and all(writes_as_read(entry.key_serde, serde) for entry in self.entries.values()):
            keys = given.keys
            return [keys[at] for at in causes]
        found: list[bytes | None] = []
        for number, at in enumerate(causes):
            try:
                found.append(serde.serialize(given.decoded_keys[at] if made.keys is None else made.keys[number]))
            except BaseException as problem:
                raise self._problem(target, problem, of, at) from problem
        return found

    def _problem(self, node: str, problem: BaseException, of: TaskId, at: int) -> Exception:
        if isinstance(problem, TidemillError) and not isinstance(problem, SerdeError):
            return problem
        what = f"{node}: {said_by(problem)}"
        if not isinstance(problem, SerdeError):
            what = function_failure(node, problem)
        topics = self.entries[int(self.arrivals.is_right[at])].topics
        offset = self.offsets[at]
        topic = topic_of(topics, self.sequences[at], offset)
        return RecordError(what, task=str(of), topic=topic, partition=of.partition, offset=offset)


def _objects(lists: Sequence[Sequence[object]]) -> npt.NDArray[np.object_]:
    found = np.empty(sum(map(len, lists)), object)
    begin = 0
    for one in lists:
        found[begin : begin + len(one)] = one
        begin += len(one)
    return found


def writes_as_read(read: Serde, written: Serde) -> bool:
    """True if ``written`` gives back the very bytes that ``read`` could read (of text: where they are UTF-8)."""
    return type(read) in _ONE_FORM and read == written


def _written(arrived: DecodedRows, side: str, serde: Serde | None) -> list[bytes | None]:
    """One side of the records as ``serde`` writes it."""
    assert serde is not None
    entry = arrived.entry
    came_as = entry.key_serde if side == "key" else entry.value_serde
    if writes_as_read(came_as, serde):
        if entry.source is None:
            return side_bytes(arrived.table, side, serde)
        column = arrived.table.column(side)
        if type(serde) is not StringSerde or _is_text(column):
            data: list[bytes | None] = column.to_pylist()
            return data
    return [serde.serialize(value) for value in (arrived.keys if side == "key" else arrived.values)]


def _is_text(column: pa.ChunkedArray) -> bool:
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
