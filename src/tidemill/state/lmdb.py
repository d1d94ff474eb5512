"""The state of one task in LMDB: reads, writes, durability.

    <task directory>/data.mdb, lock.mdb    one environment: a database per store, one for meta
                     dirty                 while unsynced writes may exist (``durability``)
                     .checkpoint           Kafka's text, as of the last clean close, for people and tools

Meta (``meta``) holds format version, owner's epoch and positions; a batch writes them in the transaction of its data. So after a
process crash at any point a store is at some committed batch, and applying is compare-and-swap. There is no sync:
``durability`` says what a power cut costs.

Leaves to others: what is made and checked at opening (``databases``), when to restore (StateBehindError, ``opened_after``), when
to wipe (CorruptStateError), what values mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import disk_usage

import lmdb

from tidemill.errors import StateBehindError, StateDiskError, StateError, StopError
from tidemill.ids import TopicPartition
from tidemill.state import keys as store_keys
from tidemill.state import meta
from tidemill.state.checkpoint import offset_of_position
from tidemill.state.databases import (
    META,
    PAGES_CHECKED_AT_OPEN,
    database_of,
    empty_stores,
    make_or_require,
    require_made,
    require_sound,
    stores_in,
)
from tidemill.state.directory import CHECKPOINT_FILE, DATA_FILE, LMDB_LOCK_FILE, write_checkpoint
from tidemill.state.durability import (
    DIRTY_FILE,
    Shutdown,
    current_boot_id,
    ensure_dirty,
    last_shutdown,
    mark_clean,
    needing_the_disk,
    sync_directory,
)
from tidemill.state.meta import StateIdentity
from tidemill.state.pages import require_readable
from tidemill.state.registry import (
    Databases,
    SharedEnvironment,
    close_environment,
    is_open_for_writing,
    open_environment,
)
from tidemill.state.snapshot import Snapshot, chunk_backward, chunk_forward
from tidemill.state.store import CheckedWrites, Positions, Writes, require_epoch_kept, unknown_store

FIRST_MAP_SIZE = 64 << 20


class TaskState:
    """``TaskStores`` on disk. Open with ``open``; one owner writes, any number of processes read."""

    def __init__(self, environment: SharedEnvironment, stores: Sequence[str], opened_after: Shutdown, boot_id: str) -> None:
        self._environment = environment
        self._databases = {store: database_of(store) for store in sorted(stores)}
        self._is_open = True
        self._boot_id = boot_id
        #: How the last owner left the directory; after LOST_POWER the state was wiped and must be restored.
        self.opened_after = opened_after
        #: Stores that were emptied at opening, and why: they had followed another changelog, or their rows had another layout.
        self.emptied: dict[str, str] = {}

    @classmethod
    def open(
        cls,
        directory: Path,
        stores: Sequence[str],
        *,
        whose: StateIdentity | None = None,
        changelogs: Mapping[str, TopicPartition] | None = None,
        from_sources: Collection[str] = (),
        forms: Mapping[str, str] | None = None,
        map_size: int = FIRST_MAP_SIZE,
        boot_id: str | None = None,
    ) -> TaskState:
        """Open the state of the task `directory` for its owner, making what is missing.

        ``whose``: the task that it must be the state of, else ForeignStateError; kept with it, so that a copy elsewhere is known.
        ``changelogs``: the changelog partition of each logged store, kept for ``.checkpoint``; ``from_sources``: the stores whose
        changelog is a source topic, which has all rows whatever the store has followed before. ``forms``: what each store's bytes
        are, kept with them; a store that was something else is emptied (``emptied``). A state that a power cut or copying may
        have damaged is wiped first (``opened_after``). Raises CorruptStateError: wipe (``wipe_files``) and open again. StopError
        if rows would be lost that have no changelog, if there can be no folder, or a folder is in the place of a file,
        StateDiskError if its disk takes nothing.
        """
        boot_id = boot_id or current_boot_id()
        with needing_the_disk(directory):
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError) as error:
                raise StopError(
                    f"{directory} can't be made: there is something else that is no folder. Remove it, and start again"
                ) from error
            _require_no_folder_for_a_file(directory)
            opened_after = last_shutdown(directory, boot_id)
            if opened_after is Shutdown.LOST_POWER:
                wipe_files(directory)
            environment = open_environment(directory, read_only=False, map_size=map_size)
            try:
                state = cls(environment, stores, opened_after, boot_id)
                require_sound(environment)
                state.emptied = make_or_require(
                    environment,
                    state.stores,
                    boot_id=boot_id,
                    whose=whose,
                    changelogs=changelogs,
                    from_sources=from_sources,
                    forms=forms or {},
                )
            except BaseException:
                close_environment(environment)
                raise
        return state

    @classmethod
    def open_to_read(
        cls, directory: Path, *, whose: StateIdentity | None = None, boot_id: str | None = None
    ) -> TaskState:
        """Opens all stores for reading, while an owner in this or another process may write.

        Raises StateError if there is no state yet, none that can be believed, or another task's than ``whose``; CorruptStateError
        if LMDB would fall over one of its pages. A wiped and restored state is followed.
        """
        boot_id = boot_id or current_boot_id()
        try:
            opened_after = last_shutdown(directory, boot_id)
            if opened_after is Shutdown.LOST_POWER:
                raise StateError(
                    f"{directory} was in use when the machine went down, or when it was copied, and may be damaged: "
                    "its next owner wipes and restores it"
                )
            environment = open_environment(directory, read_only=True, map_size=0)
        except OSError as error:
            raise StateError(f"{directory} can't be read: {error}. Its files must be readable for this user") from error
        try:
            require_readable(directory / DATA_FILE, page_limit=PAGES_CHECKED_AT_OPEN)
            state = cls(environment, stores_in(environment), opened_after, boot_id)
            with state._missing():
                require_made(environment, whose)
            return state
        except BaseException:
            close_environment(environment)
            raise

    @property
    def directory(self) -> Path:
        """The task's directory."""
        return self._environment.directory

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(self._databases)

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        database = self._database(store)
        # One get per key in the order that they have: a multi-get, or sorting first, took 1.4 to 1.8 times as long for 10,000.
        encoded = store_keys.encode_many(keys)
        with self._read(database) as (transaction, (handle,)):
            found = list(map(transaction.cursor(handle).get, encoded))
        if max(map(len, encoded), default=0) < store_keys.LONG_SIZE:
            return found
        return [
            value if value is None or not store_keys.is_long(key) else store_keys.unwrap_value(key, value, self.directory)[1]
            for key, value in zip(encoded, found, strict=True)
        ]

    def scan(
        self,
        store: str,
        low: bytes | None = None,
        high: bytes | None = None,
        *,
        reverse: bool = False,
        chunk: int = 1000,
    ) -> Iterator[tuple[bytes, bytes]]:
        database = self._database(store)
        first = b"" if low is None else store_keys.scan_start(low)
        end = None if high is None else store_keys.scan_end(high)
        more = True
        while more:
            with self._read(database) as (transaction, (handle,)):
                cursor = transaction.cursor(handle)
                entries = (chunk_backward if reverse else chunk_forward)(cursor, first, end, chunk)
            more = len(entries) >= chunk
            if entries and reverse:
                end = store_keys.resume_before(entries[-1][0])
            elif entries:
                first = store_keys.resume_after(entries[-1][0])
            for key, value in store_keys.decode_in_order(entries, self.directory, reverse=reverse):
                if (low is None or key >= low) and (high is None or key < high):
                    yield key, value

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Many reads of all stores from one transaction; close it before anything is checked or applied."""
        with self._read(META, *self._databases.values()) as (transaction, (meta_db, *handles)):
            yield Snapshot(self.directory, transaction, dict(zip(self._databases, handles, strict=True)), meta_db)

    def positions(self) -> Positions:
        with self._read(META) as (transaction, (meta_db,)):
            return meta.read_positions(transaction, meta_db)

    def checkpoint(self) -> dict[TopicPartition, int]:
        """The offset of the last applied record per changelog partition, as in ``.checkpoint``."""
        with self._read(META) as (transaction, (meta_db,)):
            changelogs = meta.read_changelogs(transaction, meta_db)
            positions = meta.read_positions(transaction, meta_db).changelog
        return {
            partition: offset_of_position(positions.get(store, 0))
            for store, partition in changelogs.items()
            if store in self._databases
        }

    def forms(self) -> dict[str, str]:
        """Form of each store's bytes, as far as an owner has recorded it."""
        with self._read(META) as (transaction, (meta_db,)):
            return meta.read_forms(transaction, meta_db)

    def whose(self) -> StateIdentity | None:
        """The recorded owner: application and task; None in a state of version 0.1.0."""
        with self._read(META) as (transaction, (meta_db,)):
            return meta.read_identity(transaction, meta_db)

    def follow_topics(self, topic_ids: Mapping[str, str], *, epoch: str) -> dict[str, str]:
        """The ids of the topics that stores' positions are of, by store. A store that has followed another topic is emptied: its
        changelog was created again. Returns those, with their old topic ids. Does nothing if ``epoch`` is no longer the
        owner's."""
        stores = tuple(sorted(self._databases.keys() & topic_ids.keys()))
        with self._write(META, *(self._databases[name] for name in stores)) as (transaction, (meta_db, *handles)):
            if meta.read_positions(transaction, meta_db).epoch != epoch:
                return {}
            kept = meta.read_topic_ids(transaction, meta_db)
            moved = {name: kept[name] for name in stores if kept.get(name, topic_ids[name]) != topic_ids[name]}
            empty_stores(transaction, meta_db, {name: at for name, at in zip(stores, handles, strict=True) if name in moved})
            meta.write_topic_ids(transaction, meta_db, {name: topic_ids[name] for name in stores})
        return moved

    def topic_ids(self) -> dict[str, str]:
        """Topic id of each store's changelog at its position, as far as the owner knew it."""
        with self._read(META) as (transaction, (meta_db,)):
            return meta.read_topic_ids(transaction, meta_db)

    def entries(self, store: str) -> int:
        """Number of keys in the store."""
        with self._read(self._database(store)) as (transaction, (handle,)):
            return transaction.stat(handle)["entries"]

    def claim(self, epoch: str) -> Positions:
        with self._write(META) as (transaction, (meta_db,)):
            meta.write_epoch(transaction, meta_db, epoch)
            return meta.read_positions(transaction, meta_db)

    def check(self, writes: Writes) -> CheckedWrites:
        puts: dict[str, list[tuple[bytes, bytes]]] = {}
        deletes: dict[str, list[bytes]] = {}
        for store, items in writes.items():
            self._database(store)
            puts[store], deletes[store] = store_keys.encode_writes(dict(items))
        checked = CheckedWrites(puts=puts, deletes=deletes)
        self._make_room(checked)
        return checked

    def apply(self, *, expected: Positions, new: Positions, writes: Writes | CheckedWrites) -> None:
        require_epoch_kept(expected, new)
        checked = writes if isinstance(writes, CheckedWrites) else self.check(writes)
        while True:
            try:
                return self._apply_once(expected, new, checked)
            except lmdb.MapFullError:
                map_size, _ = self._environment.size()
                self._environment.grow(2 * map_size)

    def wipe(self, store: str | None = None) -> None:
        wiped = self.stores if store is None else (store,)
        with self._write(META, *(self._database(name) for name in wiped)) as (transaction, (meta_db, *handles)):
            for handle in handles:
                transaction.drop(handle, delete=False)
            positions = meta.read_positions(transaction, meta_db)
            kept = {name: at for name, at in positions.changelog.items() if name not in wiped}
            inputs = {} if store is None else positions.inputs
            meta.write_positions(transaction, meta_db, positions, Positions(changelog=kept, inputs=inputs, epoch=positions.epoch))

    def close(self, *, clean: bool) -> None:
        if not self._is_open:
            return
        try:
            if clean and not self._environment.read_only and (self.directory / DIRTY_FILE).exists():
                checkpoint = self.checkpoint()
                # No other process can commit while this transaction is open, so nothing unsynced is called clean.
                with self._environment.write():
                    self._environment.sync()
                    write_checkpoint(self.directory / CHECKPOINT_FILE, checkpoint)
                    mark_clean(self.directory)
        finally:
            self._is_open = False
            close_environment(self._environment)

    def reader_check(self) -> int:
        """Free what dead readers hold, so that the file stops growing; call it after a process died. How many there were."""
        return self._environment.reader_check()

    def is_replaced(self) -> bool:
        """True if another file, or none, is where this state's was when it was opened."""
        return self._environment.is_replaced()

    def inspect(self) -> None:
        """Raises CorruptStateError if any page of the file is not what LMDB can follow; reads the whole file."""
        self._require_open()
        require_sound(self._environment, page_limit=None)

    def size(self) -> tuple[int, int]:
        """(bytes of the map, bytes in use up to the last page)."""
        return self._environment.size()

    def _apply_once(self, expected: Positions, new: Positions, checked: CheckedWrites) -> None:
        stores = tuple(checked.puts)
        with self._write(META, *(self._database(store) for store in stores)) as (transaction, (meta_db, *handles)):
            found = meta.read_positions(transaction, meta_db)
            if not expected.may_follow(found):
                raise StateBehindError(
                    str(self.directory),
                    expected_epoch=expected.epoch,
                    found_epoch=found.epoch,
                    expected_offsets=expected.changelog,
                    found_offsets=found.changelog,
                )
            for store, handle in zip(stores, handles, strict=True):
                transaction.cursor(handle).putmulti(checked.puts[store])
                for key in checked.deletes[store]:
                    transaction.delete(key, db=handle)
            meta.write_positions(transaction, meta_db, found, new)

    def _make_room(self, checked: CheckedWrites) -> None:
        """Grow the map to what the writes can need at most: address space only, the file grows with what is used."""
        payload = needed = 0
        with self._read(*(self._databases[store] for store in checked.puts)) as (transaction, handles):
            for handle, puts, deletes in zip(handles, checked.puts.values(), checked.deletes.values(), strict=True):
                new = payload_of(puts)
                payload += new
                needed += room_for(transaction.stat(handle), payload=new, changed=len(puts) + len(deletes))
        free = disk_usage(self.directory).free
        if free < payload:
            raise StateDiskError(
                f"{self.directory}: a batch needs {payload} bytes, but only {free} are free on its disk; make room there"
            )
        map_size, used = self._environment.size()
        if used + needed > map_size:
            self._environment.grow(used + needed)

    @contextmanager
    def _read(self, *databases: bytes) -> Iterator[Databases]:
        self._require_open()
        with ExitStack() as held:
            with self._missing():
                opened = held.enter_context(self._environment.read(*databases))
            yield opened

    @contextmanager
    def _write(self, *databases: bytes) -> Iterator[Databases]:
        self._require_open()
        if self._environment.read_only:
            raise StateError(f"{self.directory} was opened to be read; its owner writes")
        with ExitStack() as held:
            with self._missing():
                opened = held.enter_context(self._environment.write(*databases))
            # Inside of the transaction, because the owner before us may be removing the file in one of his.
            with needing_the_disk(self.directory):
                ensure_dirty(self.directory, self._boot_id)
            yield opened

    @contextmanager
    def _missing(self) -> Iterator[None]:
        """Around the opening of databases alone: a KeyError of those who work on them is another."""
        try:
            yield
        except KeyError as missing:
            raise StateError(
                f"{self.directory} has no database {missing.args[0]!r}: its owner has not made it yet, "
                "or the topology names the store otherwise"
            ) from None

    def _database(self, store: str) -> bytes:
        try:
            return self._databases[store]
        except KeyError:
            raise StateError(unknown_store(str(self.directory), store, self.stores)) from None

    def _require_open(self) -> None:
        if not self._is_open:
            raise StateError(f"the state in {self.directory} is closed")


def wipe_files(directory: Path) -> None:
    """Remove a task's state files, sound or not; readers elsewhere find the next state in its place.

    Raises StateError if this process has the state open for writing or its disk does not let it, StopError if a folder is in the
    place of one.
    """
    if is_open_for_writing(directory):
        raise StateError(f"{directory} is open for writing in this process: close it before its files are wiped")
    _require_no_folder_for_a_file(directory)
    with needing_the_disk(directory):
        # `dirty` goes last: a crash in between must not make half a wipe look clean.
        for name in (DATA_FILE, LMDB_LOCK_FILE, CHECKPOINT_FILE):
            (directory / name).unlink(missing_ok=True)
        sync_directory(directory)
        mark_clean(directory)


def _require_no_folder_for_a_file(directory: Path) -> None:
    """Somebody has put it there: it is not ours to remove, and no further attempt would find a file."""
    for name in (DATA_FILE, LMDB_LOCK_FILE, CHECKPOINT_FILE, DIRTY_FILE):
        if (directory / name).is_dir():
            raise StopError(f"{directory / name} is a folder, expected a file of a task's state. Remove it, and start again")


_NODE_OVERHEAD = 16  # At most: LMDB's header of an entry, its slot and padding.
_BIG_VALUE = 1900  # From about here on a value has pages of its own (LMDB: half a page of 4096 bytes).


def payload_of(puts: Collection[tuple[bytes, bytes]]) -> int:
    """Size of the entries in bytes, without pages."""
    return sum(len(key) + len(value) + _NODE_OVERHEAD for key, value in puts)


def room_for(shape: lmdb._StatDict, *, payload: int, changed: int) -> int:
    """Upper bound of the bytes that a commit needs; ``shape``: the database's ``stat``, ``changed``: number of entries."""
    copied = min(changed, shape["leaf_pages"]) + min(changed, shape["branch_pages"]) + shape["depth"]
    # Copied pages, new leaves at half their fill, the ends of big values, the list of freed pages, meta.
    pages = copied + 2 * payload // shape["psize"] + payload // _BIG_VALUE + copied // 128 + 64
    return pages * shape["psize"]
