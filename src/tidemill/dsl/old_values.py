"""Demands of operators on the table above them: that its changes carry old values, or that its rows can be looked up.

Decides, as Kafka Streams does, which tables get a store only for that (``enableSendingOldValues``, ``valueGetterSupplier``).
The answers depend on the program so far, so they are computed at each call of the DSL.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.dsl.recorder import Recorder
from tidemill.java_collections.hash_table import HashTable, string_hash
from tidemill.operators.operation_table import TableRows, entry_of
from tidemill.topology import operations as op
from tidemill.topology.logical import Effect, KTableJoin, KTableSource, Process


def send_old_values(recorder: Recorder, table: int) -> None:
    """The changes of a table carry old values from now on; where that takes a store, it gets one."""
    _send(recorder, table, force=True)


def send_old_values_if_kept(recorder: Recorder, table: int) -> bool:
    """Like ``send_old_values``, but only if no source table needs a store for it; True if it was done."""
    return _send(recorder, table, force=False)


def looked_up(recorder: Recorder, table: int) -> tuple[str, ...]:
    """The stores in which rows of a table are looked up. A source table without a store gets one."""
    effect = recorder.graph.nodes[table].effect
    match effect:
        case KTableSource(store=store):
            _change(recorder, table, replace(effect, materialized=True))
            return (store.name,)
        case KTableJoin(store=None):
            this, other = effect.other_uses, effect.this_uses  # each side uses the stores of the other one
            return _sized_set((*_sized_set((*this, *other)), *_sized_set((*other, *this))))
        case KTableJoin(store=store):
            assert store is not None
            return (store.name,)
        case Process(operation=op.CogroupMerge(store=store_name)):
            return (store_name,)
        case Process(operation=op.Suppress(store=buffer)):
            return (buffer, *looked_up(recorder, _above(recorder, table)))
        case Process(store=None, operation=op.TableSource()):
            return (_materialized(recorder, table, effect),)
        case Process(store=None):
            return looked_up(recorder, _above(recorder, table))
        case Process(store=kept):
            assert kept is not None
            return (kept.name,)
        case _:
            raise AssertionError(f"{effect!r} makes no table")


def _send(recorder: Recorder, table: int, *, force: bool) -> bool:
    effect = recorder.graph.nodes[table].effect
    match effect:
        case KTableSource(sends_old=True) | KTableJoin(sends_old=True) | Process(sends_old=True):
            pass  # so do those above; asked again, tables that are joined with what is made of them would ask 2**n times
        case KTableSource(materialized=materialized):
            if not force and not materialized:
                return False
            _change(recorder, table, replace(effect, materialized=True, sends_old=True))
        case KTableJoin():
            for above in recorder.graph.parents[table]:
                _send(recorder, above, force=True)
            _change(recorder, table, replace(effect, sends_old=True))
        case Process(operation=op.TableSource(), store=store):
            if not force and store is None:
                return False
            _materialized(recorder, table, effect)
            _mark(recorder, table)
        case Process(operation=op.CogroupMerge()):
            for above in recorder.graph.parents[table]:
                _mark(recorder, above)
            _mark(recorder, table)
        case Process(operation=op.Suppress()):
            if not _send(recorder, _above(recorder, table), force=force):
                return False
            _mark(recorder, table)
        case Process(operation=operation, store=None) if entry_of(operation).table is TableRows.DERIVED:
            if not _send(recorder, _above(recorder, table), force=force):
                return False
            _mark(recorder, table)
        case Process(operation=operation) if entry_of(operation).table is not None:
            _mark(recorder, table)
        case _:
            raise AssertionError(f"{effect!r} makes no table")
    return True


def _materialized(recorder: Recorder, table: int, effect: Process) -> str:
    """Gives a table that was made from a stream its store; the store's name."""
    store = effect.store or effect.spare_store
    assert store is not None
    _change(recorder, table, replace(effect, operation=op.TableSource(store.name), store=store))
    return store.name


def _mark(recorder: Recorder, table: int) -> None:
    effect = recorder.graph.nodes[table].effect
    assert isinstance(effect, Process)
    _change(recorder, table, replace(effect, sends_old=True))


def _above(recorder: Recorder, table: int) -> int:
    """The parent of a derived table."""
    return recorder.graph.parents[table][0]


def _change(recorder: Recorder, table: int, effect: Effect) -> None:
    recorder.change(table, lambda node: replace(node, effect=effect))


def _sized_set(names: tuple[str, ...]) -> tuple[str, ...]:
    """In the order of a hash set that was made for just as many as are given, and filled with them."""
    return tuple(HashTable(string_hash, names, capacity=len(names)))
