"""Contents of a task's meta database, as bytes: format version, owner's epoch, positions, changelog partitions.

    version                            1
    epoch                              text
    position/<store>                   next changelog offset, 8 bytes
    changelog/<store>                  partition, 4 bytes | topic
    input/<partition, 4 bytes><topic>  next input offset, 8 bytes
    changelog-id/<store>               text: the topic id of that changelog (Kafka's own text, base64)
    form/<store>                       text: what the store's bytes are
    application, task                  text: whose the state is; version 0.1.0 wrote neither, nor topic ids

Numbers are big endian. Only what changed is written. Bytes that are none of these are a ContentsError: LMDB has no checksums, so
a disk that has changed them is noticed only by who reads them.

Also says whose state it is (``StateIdentity``), since a directory can be copied or put back in the wrong place, and its name
then says nothing of what is in it. A state that version 0.1.0 has made does not say whose it is; the partitions of its
changelogs do. The code that opens a state decides what happens to one of another task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import lmdb

from tidemill.errors import CorruptStateError
from tidemill.ids import TaskId, TopicPartition
from tidemill.state.registry import ContentsError
from tidemill.state.store import Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class StateIdentity:
    application_id: str
    task: TaskId

    def __str__(self) -> str:
        return f"task {self.task} of application {self.application_id}"


def other_owner(
    wanted: StateIdentity, found: StateIdentity | None, changelogs: Iterable[TopicPartition]
) -> str | None:
    """The owner of the state if it is not ``wanted``; ``found``: the recorded owner, ``changelogs``: those of its stores."""
    if found is not None:
        return None if found == wanted else str(found)
    elsewhere = sorted(log for log in changelogs if log.partition != wanted.task.partition)
    return f"the task that has the changelog {elsewhere[0]}" if elsewhere else None


VERSION = b"1"
_VERSION, _EPOCH = b"version", b"epoch"
_APPLICATION, _TASK = b"application", b"task"
_POSITION, _CHANGELOG, _INPUT, _FORM = b"position/", b"changelog/", b"input/", b"form/"
_TOPIC_ID = b"changelog-id/"
_OFFSET_BYTES, _NUMBER_BYTES = 8, 4
_SHOWN = 60


def require_version(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, path: Path) -> None:
    """Raises CorruptStateError unless the stores were written in this format."""
    found = transaction.get(_VERSION, db=meta_db)
    if found != VERSION:
        raise CorruptStateError(
            str(path),
            found=f"store format {found.decode(errors='replace')!r}" if found else "no store format",
            expected=f"{VERSION.decode()!r}",
        )


def is_empty(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database) -> bool:
    """True if nothing was written yet: the state is new, or its first owner died while making it."""
    return transaction.stat(meta_db)["entries"] == 0


def write_version(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database) -> None:
    """Stamp a new state with the format."""
    transaction.put(_VERSION, VERSION, db=meta_db)


def read_positions(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database) -> Positions:
    return Positions(
        changelog={text_of(name): _offset(value) for name, value in _entries(transaction, meta_db, _POSITION)},
        inputs={_partition(name): _offset(value) for name, value in _entries(transaction, meta_db, _INPUT)},
        epoch=text_of(transaction.get(_EPOCH, db=meta_db) or b""),
    )


def write_positions(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, found: Positions, new: Positions) -> None:
    """Turn the positions `found` in this transaction into `new`; the epoch stays."""
    before, after = _encoded(found), _encoded(new)
    for key in before.keys() - after.keys():
        transaction.delete(key, db=meta_db)
    for key, value in after.items():
        if before.get(key) != value:
            transaction.put(key, value, db=meta_db)


def write_epoch(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, epoch: str) -> None:
    transaction.put(_EPOCH, epoch.encode(), db=meta_db)


def read_identity(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database) -> StateIdentity | None:
    """The recorded owner of the state; None if there is none."""
    application, task = transaction.get(_APPLICATION, db=meta_db), transaction.get(_TASK, db=meta_db)
    if application is None or task is None:
        return None
    try:
        return StateIdentity(application_id=text_of(application), task=TaskId.parse(text_of(task)))
    except ValueError as problem:
        raise ContentsError(str(problem)) from None


def write_identity(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, whose: StateIdentity) -> None:
    transaction.put(_APPLICATION, whose.application_id.encode(), db=meta_db)
    transaction.put(_TASK, str(whose.task).encode(), db=meta_db)


def read_topic_ids(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database) -> dict[str, str]:
    """Topic id of each store's changelog at its position."""
    return {text_of(name): text_of(value) for name, value in _entries(transaction, meta_db, _TOPIC_ID)}


def write_topic_ids(
    transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, topic_ids: Mapping[str, str | None]
) -> None:
    """Records topic ids of these stores (None: unknown); those of others stay."""
    for store, topic_id in topic_ids.items():
        if topic_id is None:
            transaction.delete(_TOPIC_ID + store.encode(), db=meta_db)
        else:
            transaction.put(_TOPIC_ID + store.encode(), topic_id.encode(), db=meta_db)


def read_changelogs(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database) -> dict[str, TopicPartition]:
    return {text_of(name): _partition(value) for name, value in _entries(transaction, meta_db, _CHANGELOG)}


def write_changelogs(
    transaction: lmdb.Transaction[bytes],
    meta_db: lmdb._Database,
    stores: Iterable[str],
    changelogs: Mapping[str, TopicPartition],
) -> None:
    """Records which of these stores have changelogs; those of others stay."""
    for store in set(stores) - changelogs.keys():
        transaction.delete(_CHANGELOG + store.encode(), db=meta_db)
    for store, (topic, partition) in changelogs.items():
        transaction.put(_CHANGELOG + store.encode(), partition.to_bytes(4, "big") + topic.encode(), db=meta_db)


def read_forms(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database) -> dict[str, str]:
    return {text_of(name): text_of(value) for name, value in _entries(transaction, meta_db, _FORM)}


def write_forms(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, forms: Mapping[str, str]) -> None:
    """Records the forms of these stores; those of others stay."""
    for store, form in forms.items():
        transaction.put(_FORM + store.encode(), form.encode(), db=meta_db)


def _encoded(positions: Positions) -> dict[bytes, bytes]:
    logged = {_POSITION + store.encode(): offset for store, offset in positions.changelog.items()}
    read = {_INPUT + at.partition.to_bytes(4, "big") + at.topic.encode(): o for at, o in positions.inputs.items()}
    return {key: offset.to_bytes(8, "big") for key, offset in {**logged, **read}.items()}


def text_of(written: bytes) -> str:
    """ContentsError if it is no UTF-8."""
    try:
        return written.decode()
    except UnicodeDecodeError:
        raise ContentsError(f"{written[:_SHOWN]!r} in the place of a text") from None


def _offset(written: bytes) -> int:
    if len(written) != _OFFSET_BYTES:
        raise ContentsError(f"{written[:_SHOWN]!r} in the place of an offset")
    return int.from_bytes(written, "big")


def _partition(written: bytes) -> TopicPartition:
    if len(written) <= _NUMBER_BYTES:
        raise ContentsError(f"{written!r} in the place of a partition")
    return TopicPartition(text_of(written[_NUMBER_BYTES:]), int.from_bytes(written[:_NUMBER_BYTES], "big"))


def _entries(transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(rest of the key, value) of the entries of one kind."""
    cursor = transaction.cursor(meta_db)
    if cursor.set_range(kind):
        for key, value in cursor:
            if not key.startswith(kind):
                return
            yield key[len(kind) :], value
