"""The databases of a task's environment: their names, and checks when a state is opened.

Decides what an owner makes, and what it refuses: pages that can't be followed, another format, another task's state; and that a
store is emptied whose rows are laid out otherwise, or whose changelog is not the one it was made from. What meta's entries look
like is ``meta``'s, what pages must be ``pages``'; how a state is read and written, ``lmdb``'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import lmdb

from tidemill.errors import ForeignStateError, StateError, StopError
from tidemill.ids import TopicPartition
from tidemill.state import meta
from tidemill.state.directory import DATA_FILE
from tidemill.state.durability import ensure_dirty
from tidemill.state.meta import StateIdentity, other_owner
from tidemill.state.pages import find_fault
from tidemill.state.registry import SharedEnvironment

META = b"meta"
_STORE = b"store:"
PAGES_CHECKED_AT_OPEN = 256


def database_of(store: str) -> bytes:
    """The name of its database."""
    return _STORE + store.encode()


def stores_in(environment: SharedEnvironment) -> list[str]:
    """Every store that an owner has made."""
    with environment.read() as opened:
        names = [name for name, _ in opened.transaction.cursor()]
        return [meta.text_of(name[len(_STORE) :]) for name in names if name.startswith(_STORE)]


def require_sound(environment: SharedEnvironment, page_limit: int | None = PAGES_CHECKED_AT_OPEN) -> None:
    """CorruptStateError if one of the first ``page_limit`` pages (None: of all) is one that LMDB can't follow."""
    with environment.write():  # No other process can commit meanwhile; nothing is written.
        fault = find_fault(environment.directory / DATA_FILE, page_limit=page_limit)
    if fault is not None:
        raise fault


def require_made(environment: SharedEnvironment, whose: StateIdentity | None) -> None:
    """For a reader: StateError while the owner is making the state, CorruptStateError for one of another format,
    ForeignStateError for another task's."""
    with environment.read(META) as (transaction, (meta_db,)):
        if meta.is_empty(transaction, meta_db):
            raise StateError(f"{environment.directory} is being made by its owner: try again")
        meta.require_version(transaction, meta_db, environment.directory / DATA_FILE)
        _require_whose(environment, transaction, meta_db, whose)


def make_or_require(
    environment: SharedEnvironment,
    stores: Sequence[str],
    *,
    boot_id: str,
    whose: StateIdentity | None,
    changelogs: Mapping[str, TopicPartition] | None,
    from_sources: Collection[str],
    forms: Mapping[str, str],
) -> dict[str, str]:
    """For an owner: makes databases that are missing, stamps a new state with the format and whose it is or checks them, keeps
    the names of the changelogs and what stores are. CorruptStateError if it is another format; ForeignStateError if it is
    another's; StopError for rows that would have to be restored and have no changelog, and for those that are to have one which
    lacks them. Gives the stores that it has emptied, and why."""
    path = environment.directory / DATA_FILE
    databases = (META, *map(database_of, stores))
    try:
        with environment.read(*databases) as (transaction, (meta_db, *_)):
            if not meta.is_empty(transaction, meta_db):
                meta.require_version(transaction, meta_db, path)
                _require_whose(environment, transaction, meta_db, whose)
                are_kept = forms.items() <= meta.read_forms(transaction, meta_db).items()
                is_stamped = whose in (None, meta.read_identity(transaction, meta_db))
                if are_kept and is_stamped and changelogs in (None, _within(stores, meta.read_changelogs(transaction, meta_db))):
                    return {}
    except KeyError:
        ensure_dirty(environment.directory, boot_id)
        environment.create_databases(databases)
    with environment.write(*databases) as (transaction, (meta_db, *handles)):
        ensure_dirty(environment.directory, boot_id)  # here: the owner before removes the file within a write transaction
        if meta.is_empty(transaction, meta_db):
            meta.write_version(transaction, meta_db)
        meta.require_version(transaction, meta_db, path)
        _require_whose(environment, transaction, meta_db, whose)
        if whose is not None:
            meta.write_identity(transaction, meta_db, whose)
        followed = {} if changelogs is None else meta.read_changelogs(transaction, meta_db)
        handle_of = dict(zip(stores, handles, strict=True))
        emptied = _of_another_form(environment.directory, meta.read_forms(transaction, meta_db), forms)
        for store in emptied.keys() - (changelogs or {}).keys():
            if transaction.stat(handle_of[store])["entries"]:
                raise StopError(
                    f"{emptied[store]}, and has no changelog to be restored from. To keep its rows, go back to what it was; or "
                    f"give them up: stop the instance, remove {environment.directory} and start again"
                )
        for store, log in followed.items():
            if (now := (changelogs or {}).get(store, log)) != log:
                if store not in from_sources:  # with no rows, too: the changelog may have some that were deleted since
                    raise _with_stale_changelog(environment.directory, store, log, now)
                emptied[store] = f"store {store} in {environment.directory} was made from {log}, not from {now}"
        empty_stores(transaction, meta_db, {name: at for name, at in handle_of.items() if name in emptied})
        if changelogs is not None:
            for store in changelogs.keys() - followed.keys():
                if transaction.stat(handle_of[store])["entries"]:
                    raise _without_changelog(environment.directory, store, changelogs[store])
            meta.write_changelogs(transaction, meta_db, stores, changelogs)
        meta.write_forms(transaction, meta_db, forms)
    return emptied


def _of_another_form(directory: Path, found: Mapping[str, str], forms: Mapping[str, str]) -> dict[str, str]:
    return {
        store: f"store {store} in {directory} is kept as ({found[store]}) and is to be ({form})"
        for store, form in forms.items()
        if found.get(store, form) != form
    }


def _within(stores: Sequence[str], changelogs: Mapping[str, TopicPartition]) -> dict[str, TopicPartition]:
    return {store: changelog for store, changelog in changelogs.items() if store in stores}


def _with_stale_changelog(directory: Path, store: str, source: TopicPartition, changelog: TopicPartition) -> StopError:
    return StopError(
        f"store {store} in {directory} had the source topic {source} as its changelog until now: {changelog} lacks what changed "
        "meanwhile, and the store would get old rows. Go back to topology.optimization=all (or reuse.ktable.source.topics); "
        "or compute the results again: tidemill reset APP.py --execute --local-state"
    )


def _without_changelog(directory: Path, store: str, changelog: TopicPartition) -> StopError:
    """Emptying it would destroy the only copy of its rows; with them it would differ from every copy that is restored."""
    return StopError(
        f"store {store} in {directory} had no changelog until now: {changelog} may lack rows of it, which would be gone wherever "
        "the task is restored. To keep them, go back (logged=False, and no topology.optimization that makes a source topic the "
        "changelog); or give them up: stop the instance, remove that directory and start again"
    )


def empty_stores(
    transaction: lmdb.Transaction[bytes], meta_db: lmdb._Database, handles: Mapping[str, lmdb._Database]
) -> None:
    """Without rows, position and topic id; the other stores and all inputs' positions stay."""
    for handle in handles.values():
        transaction.drop(handle, delete=False)
    before = meta.read_positions(transaction, meta_db)
    kept = {name: at for name, at in before.changelog.items() if name not in handles}
    meta.write_positions(transaction, meta_db, before, replace(before, changelog=kept))
    meta.write_topic_ids(transaction, meta_db, dict.fromkeys(handles))


def _require_whose(
    environment: SharedEnvironment,
    transaction: lmdb.Transaction[bytes],
    meta_db: lmdb._Database,
    whose: StateIdentity | None,
) -> None:
    if whose is None:
        return
    found = meta.read_identity(transaction, meta_db)
    owner = other_owner(whose, found, meta.read_changelogs(transaction, meta_db).values())
    if owner is not None:
        raise ForeignStateError(str(environment.directory), found=owner, expected=str(whose))
