"""A topology as one static Spark plan: source step, Catalyst layers, Python steps.

Decides the shape of the plan; which node runs where is ``stages``', execution is ``steps``', how a
projection is put together is ``changes``', what a node does in it ``column_nodes``'. Within a layer rows move in *waves*: all
rows of a tag run through as many nodes as one projection can hold. A node with several children multiplies the rows' tags, not
their contents; a flat map is one ``explode``. So nothing is read or computed twice, and a DAG stays one linear plan without
exchange.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemill.columns.check import called
from tidemill.columns.functions import ColumnFunction, Otherwise
from tidemill.columns.sentences import where
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import functions_of
from tidemill.spark.plan.changes import Changes, KeyValue, Wave, by_tag, exploded
from tidemill.spark.plan.clock import wall_clock_functions
from tidemill.spark.plan.codecs import Encoded, check_times, decoded
from tidemill.spark.plan.column_nodes import applied, choices, chosen, computed, multiplied, multiplies
from tidemill.spark.plan.combined_rows import Merging, can_be_grouped_by, check_function, fold, merged, presummed
from tidemill.spark.plan.graph_parts import left_to_columns
from tidemill.spark.plan.lookups import Lookups
from tidemill.spark.plan.planned_topology import only_forwards
from tidemill.spark.plan.python_steps import ArrowStep, idle, map_in_arrow, one_row
from tidemill.spark.plan.row_columns import in_layer, is_own, out_of_layer, own, row
from tidemill.spark.plan.serde_inference import SerdeInference
from tidemill.spark.plan.stages import Stages, outer_targets, runs_vectorised
from tidemill.spark.plan.udf_calls import udf_calls
from tidemill.spark.plan.user_columns import type_of
from tidemill.steps.rows import schema as rows
from tidemill.steps.rows.codecs_wire import EntriesSerde
from tidemill.steps.rows.schema import DROPPED, DROPPED_COUNT, Tags
from tidemill.topology.functions import UserFunction
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology

REPORT = pa.schema([("report", pa.string())])


class Compiler:
    """Builds plans of one topology. ``serdes`` are those in use, which the Python steps need too."""

    def __init__(
        self,
        topology: Topology,
        plan: Stages,
        *,
        default_serdes: KeyValueSerdes,
        presum: bool,
        lookups: Lookups,
        merges: Mapping[str, UserFunction],
    ) -> None:
        self.topology, self.stages, self.tags, self.lookups = topology, plan, Tags(topology), lookups
        self.merges = merges
        self.serdes = SerdeInference(topology, plan, default_serdes)
        self.summed_sinks = plan.summed_sinks if presum else frozenset()
        self._last_tag = rows.FRESH
        self.multiplying_layers: set[int] = set()
        """Numbers of the layers that make several rows of one."""
        self._mergings: dict[str, Merging] = {}
        self.has_sums = False
        """Rows of some layer may be summed or merged in the JVM."""
        self._sums = False
        self.has_udfs = False
        """Functions of Columns call UDFs of PySpark."""

    @property
    def can_stand(self) -> bool:
        """True if the JVM's part gives a row as soon as it has got one: those in the buffers of UDFs wait for the last one."""
        return not self.has_udfs

    @property
    def has_columns(self) -> bool:
        """True if anything runs in the JVM."""
        own = all(name in self.stages.part_of for name in self._sources())
        return not own or any(left_to_columns(self.topology, part) for part in self.stages.parts)

    def infer(self, session: SparkSession | None) -> DataFrame | None:
        """Finds the serdes of every edge. What the program leaves open is what arrives there: a repartition topic's source
        reads what its sinks write. No session is needed where nothing runs in the JVM; else gives the plan with steps that do
        nothing (``build``), in which no rows are summed.

        Raises:
            TopologyError: a serde is missing, or an expression can't be part of a static plan.
        """
        while unknown := [name for name in self._sources() if not self._is_settled(name)]:
            self._look(session)
            if not any(self.serdes.settle_source(name) for name in unknown):
                raise TopologyError(self.serdes.lacking(unknown))
        if session is None:
            self._look(None)
            return None
        frame = self.build(one_row(session), idle, [idle] * self.stages.last, lambda _step: None, sums=False)
        check_times(session, self.serdes.known)
        return frame

    def _look(self, session: SparkSession | None) -> None:
        """Settles the serdes of what is behind the sources that are settled."""
        if session is not None:
            # As text: one call of the JVM for each column instead of five.
            frame = session.range(0, 1, 1, 1).selectExpr(*(f"cast(null as {kind}) {name}" for name, kind in rows.DDL.items()))
        entries = [name for name in self._column_sources() if name in self.serdes.leaving]
        for number in range(1, self.stages.last + 1):
            if session is not None:
                self._layer(frame, entries, number)
            entries = self.serdes.finish_step(number)

    def _is_settled(self, source: str) -> bool:
        return source in self.serdes.leaving or self.serdes.settle_source(source)

    def _sources(self) -> list[str]:
        return [name for name, node in self.topology.nodes.items() if isinstance(node, SourceNode)]

    def _column_sources(self) -> list[str]:
        """Sources whose records enter the JVM."""
        return [name for name in self._sources() if name not in self.stages.part_of]

    def build(
        self, root: DataFrame, source: ArrowStep, steps: list[ArrowStep], pin: Callable[[str], None], *, sums: bool
    ) -> DataFrame:
        """The plan: ``source``, which ``root`` with its one partition sets off, then for each of ``steps`` the JVM layer before
        it and the step; ``pin`` names each worker. Not ``sums``: rows that may be summed or merged pass one by one."""
        self._sums = sums
        pin("source")
        frame = map_in_arrow(root, source, rows.SCHEMA)
        entries = self._column_sources()
        for number, step in enumerate(steps, start=1):
            frame = self._layer(frame, entries, number)
            pin(f"step-{number}")
            last = number == self.stages.last
            frame = map_in_arrow(frame, step, REPORT if last else rows.SCHEMA)
            entries = self.serdes.finish_step(number)
        return frame

    # --- one JVM layer ---------------------------------------------------------------------------------------------

    def _layer(self, frame: DataFrame, entries: list[str], number: int) -> DataFrame:
        passed, frame = frame, in_layer(frame)
        combinable: list[str] = []
        frame, left = self._left(frame, entries)
        entering = [
            Wave(self.tags.arrived(name), name, _typed(frame, self.serdes.from_parts[name]))
            for part in self.stages.parts
            if self.stages.step_of_part(part) == number - 1
            for name in left_to_columns(self.topology, part)
            if name in self.serdes.from_parts
        ]
        if not (left or entering):
            return passed
        multiplies = is_later = False
        while left or entering:
            if is_later:
                frame = _still_there(frame, [*left, *entering])
            is_later = True
            fan_out = self._fan_out(frame, left, entering)
            arrivals, entering = self._without_early(fan_out.arrivals)
            frame, whole = self._merge(fan_out.apply(frame), arrivals)
            changes = Changes(frame, self._fresh())
            left = [wave for wave in (self._run(changes, wave, combinable) for wave in whole) if wave is not None]
            frame = changes.apply()
            multiplies |= fan_out.multiplies or changes.multiply
        if multiplies:
            self.multiplying_layers.add(number)
            frame = frame.withColumn(own("place"), F.monotonically_increasing_id())  # among the rows that are made of one
        merging = [found for name in combinable if (found := self._mergings.get(name)) is not None]
        summed = [name for name in combinable if name not in self._mergings]
        if combinable and self.has_udfs:
            frame = frame.coalesce(1)  # it is one, but behind a UDF Spark knows nothing of partitions, and would shuffle
        if summed:
            frame = presummed(frame, self._sink_tags(summed))
        if merging:
            frame = merged(frame, merging)
        return out_of_layer(frame.filter(row("node") != DROPPED))

    def _left(self, frame: DataFrame, entries: list[str]) -> tuple[DataFrame, list[Wave]]:
        """The waves of nodes whose rows enter the layer. What a reduce merges becomes a column first: two of its fields are read,
        and it is to be computed once."""
        waves: list[Wave] = []
        for name in entries:
            tag, serdes = self.tags.leaving(name), self.serdes.leaving[name]
            at = _typed(frame, serdes)
            if isinstance(serdes.value, EntriesSerde):
                merge = f"merge:{tag}"
                frame = frame.withColumn(merge, F.when(row("node") == tag, fold(at.value, self.merges[name])))
                at = at.merged_as(frame, merge)
            waves.append(Wave(tag, name, at))
        return frame, waves

    def _sink_tags(self, names: list[str]) -> list[int]:
        return [self.tags.arrived(name) for name in names if isinstance(self.topology.nodes[name], SinkNode)]

    def _fresh(self) -> int:
        self._last_tag += 1
        return self._last_tag

    def _children(self, name: str) -> tuple[str, ...]:
        if runs_vectorised(self.topology, self.stages, name):
            return outer_targets(self.topology, self.stages, name)
        return self.topology.children(name)

    def _fan_out(self, frame: DataFrame, left: list[Wave], entering: list[Wave]) -> _FanOut:
        """Passes waves that have ``left`` a node to its children; ``entering``: waves that already have their next node."""
        fan_out = _FanOut()
        for wave in entering:
            fan_out.arrivals.setdefault(wave.node, []).append(wave)
        for wave in left:
            node = self.topology.nodes[wave.node]
            if isinstance(node, ProcessorNode) and choices(node.operation):
                children = choices(node.operation)
                tags = {child: self._fresh() for child in children}
                with self._calling(frame, wave.tag):
                    fan_out.retagged.append((wave.tag, [chosen(node, tags, frame, wave.at)]))
            else:
                children = self._children(wave.node)
                tags = {child: self._fresh() if len(children) > 1 else wave.tag for child in children}
                if len(children) != 1:
                    fan_out.retagged.append((wave.tag, [F.lit(tag) for tag in tags.values()] or [F.lit(DROPPED)]))
            for child in children:
                fan_out.arrivals.setdefault(child, []).append(Wave(tags[child], child, wave.at))
        return fan_out

    def _without_early(self, arrivals: Mapping[str, list[Wave]]) -> tuple[dict[str, list[Wave]], list[Wave]]:
        """The arrivals at nodes that no other wave is still on its way to; and the waves that wait for others. Paths of different
        lengths would else pass the nodes below one by one: behind n merges there were n + 1 copies of each."""
        below: set[str] = set()
        ahead = list(arrivals)
        while ahead:
            name = ahead.pop()
            reached = () if self._ends_here(name) else set(self._children(name)) - below
            below.update(reached)
            ahead += reached
        early = [wave for name, waves in arrivals.items() if name in below for wave in waves]
        return {name: waves for name, waves in arrivals.items() if name not in below}, early

    def _merge(self, frame: DataFrame, arrivals: Mapping[str, list[Wave]]) -> tuple[DataFrame, list[Wave]]:
        """One wave for each node that is entered. A node that several enter at once gets typed columns of its own, filled by
        where each row comes from."""
        entering: list[Wave] = []
        columns: dict[str, Column] = {}
        tags: list[tuple[int, Column]] = []
        for child, waves in arrivals.items():
            if len(waves) == 1:
                entering += waves
                continue
            first = waves[0].at
            for wave in waves[1:]:
                if wave.at.types_text != first.types_text:
                    raise TopologyError(
                        f"{child} merges streams of different types: {first.types_text} and {wave.at.types_text}; convert those"
                        " of one above it, as with map_values(lambda v: v.cast(...)), or give its source the serde of the other"
                    )
            tag = self._fresh()
            key, value = f"k:{tag}", f"v:{tag}"
            columns[key] = by_tag([(wave.tag, wave.at.key) for wave in waves], None)
            columns[value] = by_tag([(wave.tag, wave.at.value) for wave in waves], None)
            tags += [(wave.tag, F.lit(tag)) for wave in waves]
            entering.append(Wave(tag, child, first.kept(key, value)))
        if not tags:
            return frame, entering
        return frame.withColumns({**columns, own("node"): by_tag(tags, row("node"))}), entering

    def _run(self, changes: Changes, wave: Wave, combinable: list[str]) -> Wave | None:
        """Runs a wave through as many nodes as one projection can hold; None when it waits for a Python step.

        A projection ends where rows multiply or meet others, and before a node that reads what this very projection
        computes, so that no expression is computed twice.
        """
        name, at = wave.node, wave.at
        while True:
            node = self.topology.nodes[name]
            if self._ends_here(name):
                self._terminal(changes, wave.tag, name, at, combinable)
                return None
            assert isinstance(node, ProcessorNode)
            with self._calling(changes.frame, wave.tag):
                if multiplies(node.operation):
                    return Wave(wave.tag, name, multiplied(changes, wave.tag, node, at, self.lookups.sides))
                at = applied(changes, node, at)
            children = self.topology.children(name)
            if choices(node.operation) or len(children) != 1 or len(self.topology.parents[children[0]]) != 1:
                return Wave(wave.tag, name, changes.keep(wave.tag, at))
            if not self._may_follow(children[0], at):
                return Wave(wave.tag, name, changes.keep(wave.tag, at))
            name = children[0]

    def _may_follow(self, name: str, at: KeyValue) -> bool:
        """True if the node may run in the projection that filters rows out: such rows must reach no function, which could fail on
        them, no check of written values, and no explode."""
        if only_forwards(self.topology, name):
            return True
        if at.conditions:
            return self._ends_here(name) and not self._may_fail(name, at)
        return at.is_plain or self._ends_here(name)

    def _may_fail(self, name: str, at: KeyValue) -> bool:
        """True if a row may fail in the node: in a function, or as a struct that its schema refuses."""
        node = self.topology.nodes[name]
        calls = isinstance(node, ProcessorNode) and name not in self.stages.part_of and functions_of(node.operation)
        return bool(calls) or any(isinstance(kind, StructType) for kind in at.types)

    @contextlib.contextmanager
    def _calling(self, frame: DataFrame, tag: int) -> Iterator[None]:
        """Within it functions are called with Columns of the rows of a tag."""
        with udf_calls(frame, row("node") == tag) as calls:
            yield
        self.has_udfs |= bool(calls)

    def _ends_here(self, name: str) -> bool:
        node = self.topology.nodes[name]
        return isinstance(node, SinkNode) or name in self.stages.step_of

    # --- entering Python -------------------------------------------------------------------------------------------

    def _terminal(self, changes: Changes, tag: int, name: str, at: KeyValue, combinable: list[str]) -> None:
        node = self.topology.nodes[name]
        if isinstance(node, ProcessorNode) and name not in self.stages.part_of and functions_of(node.operation):
            with self._calling(changes.frame, tag):
                at = applied(changes, node, at)  # the step keeps what they give
        if name in self.merges:
            at = at.passing(at.key.isNotNull() & at.value.isNotNull(), lost=DROPPED_COUNT)
        key, value = self.serdes.enter(name, at)
        if value is None:
            # A record without a value counts nothing: it travels as a null key, which the count step drops and reports.
            counts = at.value.isNotNull() | row("n").isNotNull()
            changes.write(tag, "key", key, unless=~counts)
            if self._may_sum(key):
                changes.sum_all(tag)
                combinable.append(name)
        else:
            changes.write(tag, "key", key)
            changes.write(tag, "value", value)
            if name in self.summed_sinks and self._may_sum(key):
                changes.sum_where(tag, at.value.isNotNull())
                combinable.append(name)
            if name in self.merges:
                self._mergings[name] = self._merging(changes, name, at, key)
                if self._may_sum(key):
                    combinable.append(name)
        changes.arrive(tag, self.tags.arrived(name), at)

    def _may_sum(self, key: Encoded) -> bool:
        """True if rows of a key become one here; notes that they could."""
        could = can_be_grouped_by(key)
        self.has_sums |= could
        return could and self._sums

    def _merging(self, changes: Changes, name: str, at: KeyValue, key: Encoded) -> Merging:
        key_serde, value_serde = self.serdes.entering[name].settled
        function = self.merges[name]
        types = (at.value_type.simpleString(),) * 2
        node, names = name.partition("|")[0], ("aggregate", "value")  # the program's name of it
        use = ColumnFunction(node=node, operator="reduce", function=function, names=names, types=types, otherwise=Otherwise.PLAIN)
        if not can_be_grouped_by(key):
            raise TopologyError(
                f"{where(use)}: keys of {key_serde.name} can't be grouped in the JVM, to which 0.0 and -0.0 are one: "
                "reduce with a plain Python function"
            )
        with wall_clock_functions(), computed(use):
            made = type_of(changes.frame, called(use, at.value, at.value))
        if made.simpleString() != at.value_type.simpleString():  # what may be null is no matter
            raise TopologyError(
                f"{where(use)}: the function makes a {made.simpleString()} of two values of type {types[0]}: it must give their "
                "type and names of fields, since it also merges what it has made; convert what it gives: .cast(...), .alias(...)"
            )
        with computed(use):
            check_function(changes.frame, function, at.value)
        return Merging(self.tags.arrived(name), function, value_serde, at.value_type)


@dataclass(slots=True)
class _FanOut:
    """Waves between two nodes, and the new tags of their rows."""

    arrivals: dict[str, list[Wave]] = field(default_factory=dict)
    """Waves by the node that they enter."""
    retagged: list[tuple[int, list[Column]]] = field(default_factory=list)
    """New tags of the rows of a tag; several tags multiply the rows by ``explode``, without copying expressions."""

    @property
    def multiplies(self) -> bool:
        return any(len(to) > 1 for _, to in self.retagged)

    def apply(self, frame: DataFrame) -> DataFrame:
        if self.multiplies:
            arrays = [(tag, F.array(*to)) for tag, to in self.retagged]
            return exploded(frame, by_tag(arrays, F.array(row("node"))), own("node"))
        if self.retagged:
            return frame.withColumn(own("node"), by_tag([(tag, to[0]) for tag, to in self.retagged], row("node")))
        return frame


def _still_there(frame: DataFrame, waves: list[Wave]) -> DataFrame:
    """The rows that no node has dropped, with the columns that ``waves`` read, behind a projection that isn't deterministic, so
    that Catalyst pushes no filter through it. Pushed through n projections a filter has 2**n copies of what the first one reads,
    since each projection names the tag that it changes twice: nine filters in a row took all memory."""
    node = F.when(F.spark_partition_id() >= 0, row("node")).alias(own("node"))
    made = {name for wave in waves for name in wave.at.made}
    others = [F.col(f"`{name}`") for name in frame.columns if name != own("node") and (is_own(name) or name in made)]
    return frame.filter(row("node") != DROPPED).select(node, *others)


def _typed(frame: DataFrame, edge: KeyValueSerdes) -> KeyValue:
    """Rows that have left Python, by the serdes that they are written with."""
    key_serde, value_serde = edge.settled
    return KeyValue.typed(frame, decoded(key_serde, "key"), decoded(value_serde, "value"))
