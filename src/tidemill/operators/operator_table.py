"""Which class runs which operation: the one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidemill.operators import aggregates, foreign_key, processors, stateless, stream_join, table_groups, table_join, tables
from tidemill.operators.aggregates import CogroupMerge
from tidemill.operators.context import Context, Operator
from tidemill.operators.session_windows import SessionAggregate
from tidemill.operators.sliding_windows import window_aggregate
from tidemill.operators.stream_table_join import GlobalTableJoin, StreamTableJoin
from tidemill.operators.suppress import Suppress
from tidemill.topology import operations as op

_OPERATORS: Mapping[type, Callable[[Any, Context], Operator]] = {
    op.Map: stateless.map_records,
    op.MapValues: stateless.map_values,
    op.FlatMap: stateless.flat_map,
    op.FlatMapValues: stateless.flat_map_values,
    op.Filter: stateless.filter_records,
    op.SelectKey: stateless.select_key,
    op.Peek: stateless.peek,
    op.Foreach: stateless.foreach,
    op.Print: stateless.print_records,
    op.PassThrough: stateless.pass_through,
    op.NullKeyFilter: stateless.null_key_filter,
    op.Branch: stateless.branch,
    op.Count: aggregates.count,
    op.Reduce: aggregates.reduce,
    op.Aggregate: aggregates.aggregate,
    op.TableSource: tables.TableSource,
    op.TableFilter: tables.table_filter,
    op.TableMapValues: tables.table_map_values,
    op.TableToStream: tables.TableToStream,
    op.TableSelect: table_groups.table_select,
    op.TableAggregate: table_groups.TableAggregate,
    op.TableReduce: table_groups.TableReduce,
    op.TableTransformValues: processors.TransformedTable,
    op.ProcessRecords: processors.ProcessorOperator,
    op.GlobalUpdate: processors.GlobalUpdate,
    op.WindowAggregate: window_aggregate,
    op.SessionAggregate: SessionAggregate,
    op.CogroupMerge: CogroupMerge,
    op.Suppress: Suppress,
    op.JoinWindowed: stream_join.JoinWindowed,
    op.StreamStreamJoin: stream_join.StreamStreamJoin,
    op.StreamSelfJoin: stream_join.StreamSelfJoin,
    op.StreamTableJoin: StreamTableJoin,
    op.GlobalTableJoin: GlobalTableJoin,
    op.TableTableJoin: table_join.TableTableJoin,
    op.TableJoinMerge: table_join.TableJoinMerge,
    op.ForeignKeySubscribe: foreign_key.ForeignKeySubscribe,
    op.ForeignKeyReceive: foreign_key.ForeignKeyReceive,
    op.ForeignKeyLookup: foreign_key.ForeignKeyLookup,
    op.ForeignKeyChange: foreign_key.ForeignKeyChange,
    op.ForeignKeyResolve: foreign_key.ForeignKeyResolve,
}


def operator_of(operation: op.Operation, context: Context) -> Operator:
    """The operator of one node."""
    return _OPERATORS[type(operation)](operation, context)
