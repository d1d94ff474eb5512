"""A topology as one static Spark plan: source step, Catalyst layers, Python steps.

Decides the shape of the plan; which node runs where is ``stages``', what a Python step does is ``state_step``'s. A layer is
a sequence of *passes*; in each pass every tagged row moves on through its node, until it stands before a Python node or a
sink. A node with several children multiplies the rows' tags, not their contents; a flat map is one ``explode``. So nothing
is read or computed twice, and a DAG stays one linear plan without exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from tidemill.dsl.serdes import Serdes
from tidemill.errors import TopologyError
from tidemill.spark import rows
from tidemill.spark.clock import wall_clock_functions
from tidemill.spark.codecs import Encoded, decoded, encoded, readable, serde_for_type
from tidemill.spark.codecs_wire import Physical
from tidemill.spark.rows import DROPPED, UNREADABLE, Tags
from tidemill.spark.stages import Stages, outer_targets, parents_first, runs_in_python, targets
from tidemill.topology.nodes import (
    Aggregate,
    Branch,
    Count,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    NullKeyFilter,
    Operation,
    PassThrough,
    Peek,
    Print,
    ProcessorNode,
    Reduce,
    SelectKey,
    SinkNode,
    SourceNode,
    TableFilter,
    TableMapValues,
    TableSource,
    Topology,
)

ArrowStep = Callable[[Any], Any]
REPORT_DDL = "report string"
SEQUENCE_STEP = 1 << 20
"""Rows that one flat map may make of one record before their order could be mixed up with the next one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """How records that leave a node are written where they pass a Python step: the serdes of key and value."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class _Live:
    """A tag in a layer: the typed columns of its rows at this point."""

    key: Column
    key_type: DataType
    value: Column
    value_type: DataType


class Compiler:
    """Builds the plan of one stream thread. ``edges`` collects the serdes in use; the Python steps need them too."""

    def __init__(
        self,
        topology: Topology,
        plan: Stages,
        *,
        default_key: Any,
        default_value: Any,
        presum: bool,
    ) -> None:
        self.topology, self.stages, self.tags = topology, plan, Tags(topology)
        self._default_key, self._default_value = default_key, default_value
        self._summed_sinks = plan.summed_sinks if presum else frozenset()
        self._passes = 0
        self.edges: dict[str, Edge] = {}
        for name, node in topology.nodes.items():
            if isinstance(node, SourceNode):
                self.edges[name] = Edge(
                    key=self._serde(node.key_serde, default_key, f"key of {name}", "default.key.serde"),
                    value=self._serde(node.value_serde, default_value, f"value of {name}", "default.value.serde"),
                )

    def build(self, session: SparkSession, source: ArrowStep, steps: list[ArrowStep], pin: Callable[[str], None]) -> DataFrame:
        """The plan: ``source``, then for each of ``steps`` the JVM layer before it and the step; ``pin`` names each worker."""
        pin("source")
        frame = session.range(0, 1, 1, 1).mapInArrow(source, rows.ddl())
        entries = [n for n, node in self.topology.nodes.items() if isinstance(node, SourceNode)]
        for number, step in enumerate(steps, start=1):
            frame = self._layer(frame, entries, number)
            pin(f"step-{number}")
            last = number == self.stages.last
            frame = frame.mapInArrow(step, REPORT_DDL if last else rows.ddl())
            entries = self._finish_step(number)
        return frame

    # --- one JVM layer ---------------------------------------------------------------------------------------------

    def _layer(self, frame: DataFrame, entries: list[str], number: int) -> DataFrame:
        live: dict[str, _Live] = {}
        frame = self._set_aside_unreadable(frame, entries) if number == 1 else frame
        for name in entries:
            live[name] = self._entry(name)
        live = {name: _refreshed(frame, at) for name, at in live.items()}
        combinable: list[str] = []
        while live:
            frame, live = self._pass(frame, live, combinable)
        if combinable:
            frame = self._presummed(frame, combinable)
        return frame.filter(F.col("node") != DROPPED)

    def _entry(self, name: str) -> _Live:
        edge = self.edges[name]
        void = F.lit(None)
        return _Live(decoded(edge.key, "key"), void, decoded(edge.value, "value"), void)  # type: ignore[arg-type]

    def _set_aside_unreadable(self, frame: DataFrame, entries: list[str]) -> DataFrame:
        node, seq = F.col("node"), F.col("seq")
        for name in entries:
            edge = self.edges[name]
            checks = [c for c in (readable(edge.key, "key"), readable(edge.value, "value")) if c is not None]
            if not checks:
                continue
            condition = checks[0] if len(checks) == 1 else checks[0] & checks[1]
            bad = (F.col("node") == self.tags.leaving(name)) & ~condition
            node, seq = F.when(bad, F.lit(UNREADABLE)).otherwise(node), F.when(bad, F.lit(self.tags.index(name))).otherwise(seq)
        return frame.withColumns({"node": node, "seq": seq})

    def _pass(
        self, frame: DataFrame, live: dict[str, _Live], combinable: list[str]
    ) -> tuple[DataFrame, dict[str, _Live]]:
        """Moves the rows of every live tag from having left a node to having left the next one (or waiting for Python)."""
        frame, live = self._fan_out(frame, live)
        self._passes += 1
        changes = _Changes(frame, self._passes)
        after: dict[str, _Live] = {}
        for name, at in live.items():  # every live name now *enters* its node
            node = self.topology.nodes[name]
            tag = self.tags.entering(name)
            if self._ends_here(name):
                self._terminal(changes, tag, name, at, combinable)
                continue
            assert isinstance(node, ProcessorNode)
            after[name] = self._catalyst(changes, tag, node, at)
        frame = changes.apply(frame)
        return frame, {name: _refreshed(frame, at) for name, at in after.items()}

    def _ends_here(self, name: str) -> bool:
        return runs_in_python(self.topology, name) or isinstance(self.topology.nodes[name], SinkNode)

    def _children(self, name: str) -> tuple[str, ...]:
        if runs_in_python(self.topology, name):
            return outer_targets(self.topology, self.stages, name)
        return self.topology.children(name)

    def _fan_out(self, frame: DataFrame, live: dict[str, _Live]) -> tuple[DataFrame, dict[str, _Live]]:
        """Retags rows that have left a node to enter its children; several children multiply the tag only."""
        tags: list[tuple[int, list[Column]]] = []
        arrivals: dict[str, list[tuple[int, _Live]]] = {}
        for name, at in live.items():
            node = self.topology.nodes[name]
            leaving = self.tags.leaving(name)
            if isinstance(node, ProcessorNode) and isinstance(node.operation, Branch):
                tags.append((leaving, [self._branch(node.operation, at)]))
                default = [node.operation.default] if node.operation.default else []
                children: tuple[str, ...] = (*node.operation.children, *default)
            else:
                children = self._children(name)
                tags.append((leaving, [F.lit(self.tags.entering(c)) for c in children] or [F.lit(DROPPED)]))
            for child in children:
                arrivals.setdefault(child, []).append((leaving, at))
        entering, merged = self._merged(arrivals)
        if merged:
            frame = frame.withColumns(merged)
        if any(len(to) > 1 for _, to in tags):
            arrays = [(tag, F.array(*to)) for tag, to in tags]
            frame = frame.withColumn("node", F.explode(_by_tag(arrays, F.array(F.col("node")))))
        else:
            frame = frame.withColumn("node", _by_tag([(tag, to[0]) for tag, to in tags], F.col("node")))
        return frame, {name: _refreshed(frame, at) for name, at in entering.items()}

    def _merged(self, arrivals: dict[str, list[tuple[int, _Live]]]) -> tuple[dict[str, _Live], dict[str, Column]]:
        """A child that several live nodes feed gets typed columns of its own, filled by where each row comes from."""
        entering: dict[str, _Live] = {}
        columns: dict[str, Column] = {}
        for child, sources in arrivals.items():
            first = sources[0][1]
            for _, other in sources[1:]:
                if (other.key_type, other.value_type) != (first.key_type, first.value_type):
                    raise TopologyError(
                        f"{child} merges streams of different types: {_pair_text(first)} and {_pair_text(other)}"
                    )
            if len(sources) == 1:
                entering[child] = first
                continue
            key, value = f"mk:{self._passes}:{child}", f"mv:{self._passes}:{child}"
            columns[key] = _by_tag([(tag, at.key) for tag, at in sources], None)
            columns[value] = _by_tag([(tag, at.value) for tag, at in sources], None)
            entering[child] = _Live(F.col(f"`{key}`"), first.key_type, F.col(f"`{value}`"), first.value_type)
        return entering, columns

    def _finish_step(self, number: int) -> list[str]:
        """Settles the serdes of the step's Python nodes; gives those whose records travel on."""
        onward = []
        for name in parents_first(self.topology):
            if not (runs_in_python(self.topology, name) and self.stages.step_of[name] == number):
                continue
            entry = self.edges.get(name + "|in")
            if entry is None:
                entry = self.edges[name + "|in"] = self._edge_of_inline_parent(name)
            self.edges[name] = self._out_edge(name, entry)
            if outer_targets(self.topology, self.stages, name):
                onward.append(name)
        return onward

    def _edge_of_inline_parent(self, name: str) -> Edge:
        for parent, _ in self.edges.items():
            if parent in self.topology.nodes and name in targets(self.topology, parent):
                return self.edges[parent]
        raise TopologyError(f"{name} has no parent that is compiled before it")

    def _out_edge(self, name: str, entry: Edge) -> Edge:
        node = self.topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        operation = node.operation
        store_name = getattr(operation, "store", None)
        store = self.topology.stores[store_name] if store_name else None
        value = entry.value if store is None else store.value_serde or entry.value or self._default_value
        if isinstance(operation, Count):
            value = Serdes.long()
        return Edge(key=entry.key, value=value)

    def _branch(self, branch: Branch, at: _Live) -> Column:
        default = self.tags.entering(branch.default) if branch.default else DROPPED
        column = F.lit(default)
        for predicate, child in reversed(list(zip(branch.predicates, branch.children, strict=True))):
            column = F.when(_call(predicate, at.key, at.value), F.lit(self.tags.entering(child))).otherwise(column)
        return column

    def _catalyst(self, changes: _Changes, tag: int, node: ProcessorNode, at: _Live) -> _Live:
        leaving = self.tags.leaving(node.name)
        operation: Operation = node.operation
        if isinstance(operation, (PassThrough, Branch)):
            changes.retag(tag, F.lit(leaving))
            return at
        if isinstance(operation, (NullKeyFilter, TableSource)):
            changes.retag(tag, F.when(at.key.isNotNull(), F.lit(leaving)).otherwise(F.lit(DROPPED)))
            return at
        if isinstance(operation, Filter):
            passes = F.coalesce(_call(operation.predicate, at.key, at.value), F.lit(False))
            if operation.negate:
                passes = ~passes
            changes.retag(tag, F.when(passes, F.lit(leaving)).otherwise(F.lit(DROPPED)))
            return at
        changes.retag(tag, F.lit(leaving))
        if isinstance(operation, (TableFilter, TableMapValues)):
            return changes.value(tag, node.name, at, _table_value(operation, at))
        if isinstance(operation, MapValues):
            return changes.value(tag, node.name, at, _call_values(operation, at))
        if isinstance(operation, SelectKey):
            return changes.key(tag, node.name, at, _call(operation.function, at.key, at.value))
        if isinstance(operation, Map):
            pair = operation.function(at.key, at.value)
            if not (isinstance(pair, tuple) and len(pair) == 2):
                raise TopologyError(f"{node.name}: map's function gave {type(pair).__name__}, expected a pair (key, value)")
            keyed = changes.key(tag, node.name, at, _column(pair[0]))
            return changes.value(tag, node.name, keyed, _column(pair[1]))
        if isinstance(operation, FlatMapValues):
            return changes.explode_values(tag, node.name, at, _call_values(operation, at))
        if isinstance(operation, FlatMap):
            return changes.explode_pairs(tag, node.name, _call(operation.function, at.key, at.value))
        raise TopologyError(f"{node.name}: {type(operation).__name__} can't run in the JVM")

    # --- entering Python -------------------------------------------------------------------------------------------

    def _terminal(self, changes: _Changes, tag: int, name: str, at: _Live, combinable: list[str]) -> None:
        node = self.topology.nodes[name]
        where = f"into {name}"
        if isinstance(node, ProcessorNode) and isinstance(node.operation, Count):
            store = self.topology.stores[node.operation.store]
            key = self._side(store.key_serde, at.key, at.key_type, self._default_key, f"{where}, key")
            self.edges[name + "|in"] = Edge(key=key[0], value=None)
            counted = at.value.isNotNull() | F.col("n").isNotNull()
            # A record without a value counts nothing: it travels as a null key, which the count step drops and reports.
            changes.write(tag, "key", key[1], unless=~counted)
            changes.sum_all(tag)
            changes.retag(tag, F.lit(self.tags.arrived(name)))
            combinable.append(name)
            return
        if isinstance(node, ProcessorNode) and isinstance(node.operation, (TableFilter, TableMapValues)):
            at = changes.refined(at, _table_value(node.operation, at))
        serdes = self._in_serdes(name, at, where)
        changes.write(tag, "key", serdes[0][1])
        changes.write(tag, "value", serdes[1][1])
        self.edges[name + "|in"] = Edge(key=serdes[0][0], value=serdes[1][0])
        if name in self._summed_sinks:
            changes.sum_where(tag, at.value.isNotNull())
            combinable.append(name)
        changes.retag(tag, F.lit(self.tags.arrived(name)))

    def _in_serdes(self, name: str, at: _Live, where: str) -> tuple[tuple[Any, Encoded], tuple[Any, Encoded]]:
        node = self.topology.nodes[name]
        key: Any = None
        value: Any = None
        default_key, default_value = self._default_key, self._default_value
        if isinstance(node, SinkNode):
            key, value = node.key_serde, node.value_serde
        else:
            assert isinstance(node, ProcessorNode)
            operation = node.operation
            if isinstance(operation, (Reduce, Aggregate, TableSource, TableFilter, TableMapValues)) and operation.store:
                store = self.topology.stores[operation.store]
                key = store.key_serde
                value = None if isinstance(operation, Aggregate) else store.value_serde
            if isinstance(operation, (Peek, Foreach, Print, Aggregate)):
                default_key = default_value = None  # what the column is, says its type
        return (
            self._side(key, at.key, at.key_type, default_key, f"{where}, key"),
            self._side(value, at.value, at.value_type, default_value, f"{where}, value"),
        )

    def _side(self, serde: Any, column: Column, data_type: DataType, default: Any, where: str) -> tuple[Any, Encoded]:
        chosen = serde or default or serde_for_type(data_type, where)
        return chosen, encoded(chosen, column, data_type, where)

    def _serde(self, serde: Any, default: Any, what: str, setting: str) -> Any:
        if serde is None and default is None:
            raise TopologyError(f"no serde for the {what}: give one (key=, value=) or set {setting}")
        return serde or default

    def _presummed(self, frame: DataFrame, combinable: list[str]) -> DataFrame:
        """One row per (node, task, key) of combinable rows; all others keep themselves apart by ``rest``."""
        apart = ("off", "seq", "headers", "value", "value_num", "key_dbl", "value_dbl", "wall")
        sinks = [self.tags.arrived(n) for n in combinable if isinstance(self.topology.nodes[n], SinkNode)]
        part = F.col("part")
        if sinks:  # what is written to a repartition topic may be summed over the thread's tasks
            part = F.when(F.col("node").isin(sinks) & F.col("summed"), F.lit(-1)).otherwise(part)
        grouped = frame.select(
            "node", part.alias("part"), "key", "key_num", F.when(~F.col("summed"), F.struct(*apart)).alias("rest"), "n", "ts"
        ).groupBy("node", "part", "key", "key_num", "rest")
        summed = grouped.agg(F.sum(F.coalesce("n", F.lit(1))).alias("n"), F.max("ts").alias("ts"))
        return summed.select(*[F.col(f"rest.{c}").alias(c) if c in apart else F.col(c) for c in rows.DDL])


class _Changes:
    """Collects, for one pass, what happens to which tag; applies it as one projection (and one explode per flat map)."""

    def __init__(self, frame: DataFrame, number: int) -> None:
        self._frame, self._number = frame, number
        self._node: list[tuple[int, Column]] = []
        self._columns: dict[str, list[tuple[int, Column]]] = {}
        self._typed: dict[str, Column] = {}
        self._exploded: list[tuple[int, str, Column, ArrayType]] = []
        self._summed: list[tuple[int, Column]] = []

    def retag(self, tag: int, to: Column) -> None:
        self._node.append((tag, to))

    def refined(self, at: _Live, value: Column) -> _Live:
        """``at`` with another value, as an expression of this very pass."""
        return _Live(at.key, at.key_type, value, _type_of(self._frame, value))

    def key(self, tag: int, name: str, at: _Live, column: Column) -> _Live:
        return _Live(self._keep(tag, f"k:{self._number}:{name}", column), at.key_type, at.value, at.value_type)

    def value(self, tag: int, name: str, at: _Live, column: Column) -> _Live:
        return _Live(at.key, at.key_type, self._keep(tag, f"v:{self._number}:{name}", column), at.value_type)

    def _keep(self, tag: int, alias: str, column: Column) -> Column:
        self._typed[alias] = F.when(F.col("node") == tag, column)
        return F.col(f"`{alias}`")

    def explode_values(self, tag: int, name: str, at: _Live, array: Column) -> _Live:
        kind = _type_of(self._frame, array)
        if not isinstance(kind, ArrayType):
            raise TopologyError(f"{name}: flat_map_values gave {kind.simpleString()}, expected an array of values")
        self._exploded.append((tag, f"v:{self._number}:{name}", array, kind))
        return _Live(at.key, at.key_type, F.col(f"`v:{self._number}:{name}`"), kind.elementType)

    def explode_pairs(self, tag: int, name: str, array: Column) -> _Live:
        kind = _type_of(self._frame, array)
        if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType) and len(kind.elementType) == 2):
            raise TopologyError(f"{name}: flat_map gave {kind.simpleString()}, expected an array of struct(key, value)")
        self._exploded.append((tag, f"p:{self._number}:{name}", array, kind))
        first, second = kind.elementType.names
        pair = F.col(f"`p:{self._number}:{name}`")
        return _Live(pair[first], kind.elementType[0].dataType, pair[second], kind.elementType[1].dataType)

    def write(self, tag: int, side: str, to: Encoded, unless: Column | None = None) -> None:
        for kind in Physical:
            column = to.column if kind is to.kind else F.lit(None)
            if unless is not None and kind is to.kind:
                column = F.when(~unless, column)
            self._columns.setdefault(side + kind.value, []).append((tag, column))

    def sum_all(self, tag: int) -> None:
        """Makes the rows summable as they are: how many they stand for is all that counts."""
        for name in ("value", "value_num", "value_dbl"):
            self._columns.setdefault(name, []).append((tag, F.lit(None)))
        self._summed.append((tag, F.lit(True)))

    def sum_where(self, tag: int, condition: Column) -> None:
        """Turns the rows that meet ``condition`` into summable ones: their value is gone."""
        for name in ("value", "value_num", "value_dbl"):
            writes = self._columns[name]
            at = next(i for i, (t, _) in enumerate(writes) if t == tag)
            writes[at] = (tag, F.when(~condition, writes[at][1]))
        self._summed.append((tag, condition))

    def apply(self, frame: DataFrame) -> DataFrame:
        for tag, alias, array, kind in self._exploded:
            other = F.array(F.lit(None).cast(kind.elementType))
            several = F.when(F.col("node") == tag, array).otherwise(other)
            frame = frame.select("*", F.posexplode(several).alias(f"at:{alias}", alias))
            seq = F.when(F.col("node") == tag, F.col("seq") * SEQUENCE_STEP + F.col(f"`at:{alias}`")).otherwise(F.col("seq"))
            frame = frame.withColumn("seq", seq).drop(f"at:{alias}")
        columns: dict[str, Column] = {}
        for name, writes in self._columns.items():
            columns[name] = _by_tag(writes, F.col(name)).cast(rows.DDL[name])
        columns.update(self._typed)
        if self._summed or "summed" in frame.columns:
            before = F.col("summed") if "summed" in frame.columns else F.lit(False)
            columns["summed"] = _by_tag(self._summed, before)
        if self._node:
            columns["node"] = _by_tag(self._node, F.col("node"))
        return frame.withColumns(columns) if columns else frame


def _by_tag(writes: list[tuple[int, Column]], otherwise: Column | None) -> Column:
    if not writes:
        return otherwise if otherwise is not None else F.lit(None)
    column = F.when(F.col("node") == writes[0][0], writes[0][1])
    for tag, to in writes[1:]:
        column = column.when(F.col("node") == tag, to)
    return column if otherwise is None else column.otherwise(otherwise)


def _pair_text(at: _Live) -> str:
    return f"({at.key_type.simpleString()}, {at.value_type.simpleString()})"


def _refreshed(frame: DataFrame, at: _Live) -> _Live:
    key, value = _types(frame, at.key, at.value)
    return _Live(at.key, key, at.value, value)


def _types(frame: DataFrame, key: Column, value: Column) -> tuple[DataType, DataType]:
    schema = frame.select(key.alias("key"), value.alias("value")).schema
    return schema["key"].dataType, schema["value"].dataType


def _type_of(frame: DataFrame, column: Column) -> DataType:
    return frame.select(column.alias("column")).schema["column"].dataType


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else F.lit(value)


def _table_value(operation: TableFilter | TableMapValues, at: _Live) -> Column:
    """What a table passes on: null stays null, and what a filter refuses becomes null."""
    if isinstance(operation, TableMapValues):
        return F.when(at.value.isNotNull(), _call_values(operation, at))
    passes = F.coalesce(_call(operation.predicate, at.key, at.value), F.lit(False))
    return F.when(~passes if operation.negate else passes, at.value)


def _call(function: Callable[..., Any], key: Column, value: Column) -> Column:
    with wall_clock_functions():
        return _column(function(key, value))


def _call_values(operation: MapValues | FlatMapValues | TableMapValues, at: _Live) -> Column:
    with wall_clock_functions():
        return _column(operation.function(at.key, at.value) if operation.takes_key else operation.function(at.value))


__all__ = ["REPORT_DDL", "Compiler", "Edge"]
