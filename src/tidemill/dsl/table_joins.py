"""Joins of two tables by their keys.

Decides names, the store and the stores in which each side looks up the other; by foreign key it leaves all to ``foreign_key``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemill.dsl.arguments import python_joiner
from tidemill.dsl.foreign_key import join_on_foreign_key
from tidemill.dsl.functions import value_serde_of
from tidemill.dsl.joined import TableJoined, joined_as
from tidemill.dsl.materialized import Materialized, store_of
from tidemill.dsl.old_values import looked_up, send_old_values
from tidemill.dsl.table import KTable
from tidemill.errors import TopologyError
from tidemill.topology import join_operations as op
from tidemill.topology.functions import UserFunction
from tidemill.topology.logical import KTableJoin, LogicalNode
from tidemill.topology.naming import legal_name


@dataclass(frozen=True, slots=True)
class _Keeps:
    """The sides whose rows are in the result without a row of the other side."""

    left: bool
    right: bool


_KEEPS = {"join": _Keeps(False, False), "left_join": _Keeps(True, False), "outer_join": _Keeps(True, True)}


def join_tables_by(
    operator: str,
    left: KTable,
    right: object,
    joiner: UserFunction,
    foreign_key: UserFunction | None,
    asked: Materialized | None,
    joined: TableJoined | None,
    name: str | None,
) -> KTable:
    """The join that ``operator`` and its arguments ask for."""
    if not isinstance(right, KTable):
        raise TopologyError(f"{operator}: a table can be joined with a table only, got {right!r}")
    if right.recorder is not left.recorder:
        raise TopologyError(f"{operator}: the other table belongs to another StreamsBuilder; build both with one")
    keeps = _KEEPS[operator]
    if foreign_key is not None:
        by_key = joined_as(TableJoined, joined, name, operator)
        return join_on_foreign_key(left, right, foreign_key, joiner, by_key, asked, keeps_left=keeps.left)
    if joined is not None:
        raise TopologyError(f"{operator}: joined= is for joins by foreign key; give name= here, or foreign_key=")
    return _join_tables(operator, left, right, joiner, asked, name, keeps)


def _join_tables(
    operator: str, left: KTable, right: KTable, joiner: UserFunction, asked: Materialized | None, name: str | None,
    keeps: _Keeps,
) -> KTable:
    recorder = left.recorder
    serde = value_serde_of(joiner)
    function, takes_key = python_joiner(joiner, operator)
    given = None if name is None else legal_name(name, "a join")
    # a join that is given any description of a store is kept in one, named or not
    store = None if asked is None else store_of(recorder, asked, "KTABLE-MERGE-", key=left.key_serde, value=serde)
    merge = recorder.node_name("KTABLE-MERGE-", given)
    sources = left.sources | right.sources
    recorder.copartition(sources)
    if keeps.left:
        send_old_values(recorder, left.node)
    if keeps.right:
        send_old_values(recorder, right.node)

    def side(other: KTable, *, is_left: bool, keeps_this: bool, keeps_other: bool) -> op.TableTableJoin:
        return op.TableTableJoin(other.name, function, is_left, takes_key, keeps_this, keeps_other)

    effect = KTableJoin(
        this_name=recorder.node_name("KTABLE-JOINTHIS-", given, suffix="-join-this"),
        other_name=recorder.node_name("KTABLE-JOINOTHER-", given, suffix="-join-other"),
        this_table=left.name, other_table=right.name,
        this_operation=side(right, is_left=True, keeps_this=keeps.left, keeps_other=keeps.right),
        other_operation=side(left, is_left=False, keeps_this=keeps.right, keeps_other=keeps.left),
        this_uses=looked_up(recorder, right.node), other_uses=looked_up(recorder, left.node), store=store,
        key_serde=left.key_serde if store is None else store.key_serde,
        value_serde=serde if store is None else store.value_serde,
    )
    node = recorder.add(LogicalNode(name=merge, effect=effect), left.node)
    recorder.link(right.node, node)
    return replace(
        left, node=node, name=merge, sources=sources, key_serde=effect.key_serde, value_serde=effect.value_serde,
        store_name=None if store is None else store.name,
    )
