"""Nodes in a program's words, for errors: the method that has made a node, and the name that the program gave there.

Decides nothing else; operations that only a plan has are none of a program's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemill.topology import batch_operations as batch_op
from tidemill.topology import join_operations as join_op
from tidemill.topology import operations as op
from tidemill.topology import spark_operations as spark_op
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

_METHODS: Mapping[type, str] = {
    op.Map: "map", op.MapValues: "map_values", op.FlatMap: "flat_map", op.FlatMapValues: "flat_map_values",
    op.Filter: "filter", op.SelectKey: "select_key or group_by", op.Branch: "split", op.Peek: "peek", op.Foreach: "foreach",
    op.Print: "print", op.PassThrough: "merge, a join or a branch of split",
    op.NullKeyFilter: "a repartition, of repartition, group_by, group_by_key, to_table or a join",
    batch_op.MapInBatches: "map", batch_op.MapValuesInBatches: "map_values", batch_op.FlatMapInBatches: "flat_map",
    batch_op.FlatMapValuesInBatches: "flat_map_values", batch_op.SelectKeyInBatches: "select_key or group_by",
    batch_op.FilterInBatches: "filter", batch_op.PeekInBatches: "peek",
    spark_op.ForeachBatch: "foreach_batch", spark_op.DataFrameJoin: "join_dataframe",
    op.Count: "count", op.Reduce: "reduce", op.Aggregate: "aggregate",
    op.WindowAggregate: "count, reduce or aggregate in windows", op.SessionAggregate: "count, reduce or aggregate in sessions",
    op.CogroupMerge: "aggregate of a cogroup", op.Suppress: "suppress",
    op.TableSource: "table, to_table or a join of tables", op.TableFilter: "filter of a table",
    op.TableMapValues: "map_values of a table", op.TableToStream: "to_stream", op.TableTransformValues: "transform_values",
    op.TableSelect: "group_by of a table", op.TableAggregate: "count or aggregate of a grouped table",
    op.TableReduce: "reduce of a grouped table",
    join_op.JoinWindowed: "join of streams", join_op.StreamStreamJoin: "join of streams",
    join_op.StreamSelfJoin: "join of a stream with itself", join_op.StreamTableJoin: "join with a table",
    join_op.GlobalTableJoin: "join with a global table", join_op.TableTableJoin: "join of tables",
    join_op.TableJoinMerge: "join of tables",
    join_op.ForeignKeySubscribe: "join by foreign key", join_op.ForeignKeyReceive: "join by foreign key",
    join_op.ForeignKeyLookup: "join by foreign key", join_op.ForeignKeyChange: "join by foreign key",
    join_op.ForeignKeyResolve: "join by foreign key",
    op.ProcessRecords: "process or add_processor", op.GlobalUpdate: "global_table or add_global_store",
}  # fmt: skip
_ENDINGS = re.compile(
    r"-(repartition(-filter|-sink|-source)?|sink|source|store|result|merge|(this|other)-windowed|join-(this|other)"
    r"|(outer-)?(this|other)-join|(outer|left)-shared-join|subscription-[a-z-]+|foreign-join-subscription)\Z"
)
"""What the DSL adds to a name where it makes several nodes of one."""


def method_of(node: Node) -> str:
    """The methods of the DSL that make such a node; for a source or a sink a phrase with its topics."""
    match node:
        case SourceNode():
            return f"the source of {node.topic_pattern or ', '.join(node.topics)}"
        case SinkNode():
            return f"the sink to {node.topic or 'topics named by a function'}"
        case ProcessorNode():
            return _METHODS[type(node.operation)]


def given_name(node: str) -> str:
    """The name that the program gave, of the name of a node."""
    return _ENDINGS.sub("", node)
