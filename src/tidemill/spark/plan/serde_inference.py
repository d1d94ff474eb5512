"""Inference of serdes: those of keys and values on every edge of a plan, in every store and for every sink.

Walks in the order of the data, a layer and a step after the other, as ``compile`` does: a repartition topic's source has
the serdes of its sinks, a Python node those of its columns' types. By which rules an edge's serdes follow from those above it is
``serde_rules``', how columns are written ``codecs``'.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import Column
from pyspark.sql.types import DataType

from tidemill.dsl.serdes_json import JsonClassSerde
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import (
    Enters,
    Leaves,
    entry_of,
    kept_store,
    value_leaves,
)
from tidemill.spark.plan.changes import KeyValue
from tidemill.spark.plan.codecs import Encoded, encoded, serde_for_type
from tidemill.spark.plan.graph_parts import GraphPart, entered_by_columns, left_to_columns
from tidemill.spark.plan.planned_topology import is_batch_sink
from tidemill.spark.plan.serde_rules import (
    PartEntries,
    PartSerdes,
    exit_edge,
    leaving_in_step,
    makers_of,
    merges_different,
    other_serdes,
    pair_of_sides,
    serdes_of_part,
    sink_edge,
    writes_as_it_came,
    writes_the_same,
)
from tidemill.spark.plan.stages import Stages, outer_targets, runs_vectorised, targets
from tidemill.steps.rows.codecs_wire import EntriesSerde, PairSerde, before_it_is_written, in_transit, transit_of
from tidemill.topology.key_value_serdes import NO_SERDES, KeyValueSerdes
from tidemill.topology.methods import method_of
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology, parents_first, place_of_sink, processor_node
from tidemill.topology.spark_operations import HeldAggregates, makes_pairs
from tidemill.topology.values import Serde


@dataclass(slots=True)
class SerdeInference:
    """The serdes of a plan's edges as far as they are known, by node."""

    topology: Topology
    stages: Stages
    default: KeyValueSerdes
    leaving: dict[str, KeyValueSerdes] = field(default_factory=dict)
    """Serdes of records that leave a source, or a node that runs in Python."""
    entering: dict[str, KeyValueSerdes] = field(default_factory=dict)
    """Serdes of records that enter a sink, a node of a vectorised step, or from columns a node of a part."""
    letters: dict[str, KeyValueSerdes] = field(default_factory=dict)
    """With which serdes what enters a Python node came to the functions of Columns above, if it enters in other bytes."""
    from_parts: dict[str, KeyValueSerdes] = field(default_factory=dict)
    """Serdes of records that leave a part for a node of columns below it."""

    @property
    def known(self) -> list[Serde | None]:
        """All of them."""
        edges = [edge for found in (self.leaving, self.entering, self.from_parts) for edge in found.values()]
        return [serde for edge in edges for serde in (edge.key, edge.value)]

    def settle_source(self, name: str) -> bool:
        """Settles what a source reads, if that is known by now."""
        node = self.topology.nodes[name]
        assert isinstance(node, SourceNode)
        known = KeyValueSerdes(key=node.key_serde, value=node.value_serde).otherwise(self.default)
        for sink, above in self.topology.nodes.items():
            if isinstance(above, SinkNode) and above.topic in node.topics and sink in self.entering:
                known = known.otherwise(self.entering[sink])
        if known.key is None or known.value is None:
            return False
        self.leaving[name] = KeyValueSerdes(key=known.complete(known.key), value=self.default.complete(known.value))
        return True

    def lacking(self, sources: list[str]) -> str:
        """The message about sources that can't be settled: about the program's own topics, as long as there are any; else about
        the first internal one, since what the others hold may follow from it."""
        nodes = [node for node in map(self.topology.nodes.get, sources) if isinstance(node, SourceNode)]
        own = [node for node in nodes if self.topology.repartition_topics.keys().isdisjoint(node.topics)]
        if not own:
            return self._lacking_internally(nodes[0])
        named = []
        for node in own:
            sides = KeyValueSerdes(key=node.key_serde, value=node.value_serde).otherwise(self.default).missing
            of, give = node.topic_pattern or ", ".join(node.topics), " and ".join(f"{side}=" for side in sides)
            named.append(f"the {'s and the '.join(sides)}s of {of} ({node.name}: give {give})")
        return f"no serde for {'; for '.join(named)}, where the topic is read, or set default.key.serde and default.value.serde"

    def _lacking_internally(self, source: SourceNode) -> str:
        writers = [n for n, node in self.topology.nodes.items() if isinstance(node, SinkNode) and node.topic in source.topics]
        known = KeyValueSerdes(key=source.key_serde, value=source.value_serde).otherwise(self.default)
        for sink in writers:
            known = known.otherwise(self.entering.get(sink, NO_SERDES))
        sides = known.missing
        makers = sorted({maker for sink in writers for side in sides for maker in makers_of(self.topology, sink, side)})
        made = " and ".join(f"{maker} ({method_of(self.topology.nodes[maker])})" for maker in makers)
        give, settings = " and ".join(f"{side}=" for side in sides), " and ".join(f"default.{side}.serde" for side in sides)
        return (
            f"no serde for the {'s and the '.join(sides)}s that {made} makes, which the repartition topic {source.topics[0]} "
            f"holds: give the function one (per_record(f, serde=...)), give {give} to the method below it (a join takes it in "
            f"joined=), or set {settings}"
        )

    def finish_step(self, number: int) -> list[str]:
        """Settles the serdes of the step's Python nodes; gives those whose records travel on."""
        onward = []
        for name in parents_first(self.topology):
            if not (runs_vectorised(self.topology, self.stages, name) and self.stages.step_of[name] == number):
                continue
            entry = self.entering.get(name)
            if entry is None and (given := self._inline(name)) is not None:
                entry = self._as_stored(name)[0].otherwise(given)
            if entry is None:
                continue  # behind a source whose serdes are not known yet
            left = self._leaving_step(name, entry)
            if left is None:
                continue
            self.entering[name], self.leaving[name] = entry, left
            above = None if name in self.letters else self._inline_parent(name)
            if above is not None:
                self.letters[name] = self._letters_left(above)
            if outer_targets(self.topology, self.stages, name):
                onward.append(name)
        for part in self.stages.parts:
            if self.stages.step_of_part(part) == number:
                self._leave_part(part)
        return onward

    def _leaving_step(self, name: str, entry: KeyValueSerdes) -> KeyValueSerdes | None:
        """The serdes of records that leave a vectorised node; None while those of a table in its pairs are unknown.

        Raises:
            TopologyError: nothing says how its keys or its values are written.
        """
        node = processor_node(self.topology, name)
        if makes_pairs(node.operation):
            pair = pair_of_sides(self.topology, name, [entry], self.leaving, self.default)
            return None if pair is None else KeyValueSerdes(key=entry.key, value=pair)
        found = leaving_in_step(self.topology, name, entry, self.default)
        for side in found.missing:
            raise TopologyError(
                f"no serde for the {side}s of {name} ({method_of(node)}): give its result one (per_record(f, serde=...) "
                f"or per_batch(f, serde=...) as its function, {side}= in the .to(...) or group below it), "
                f"or set default.{side}.serde"
            )
        if isinstance(node.operation, HeldAggregates):
            return replace(found, value=EntriesSerde(found.settled[1]))
        return found

    def entries_of(self, part: GraphPart) -> PartEntries | None:
        """The serdes of what enters the part; None while they are not all known."""
        entered = entered_by_columns(self.topology, part)
        if not (self.leaving.keys() >= set(part.sources) and self.entering.keys() >= set(entered)):
            return None
        return PartEntries(
            sources={name: self.leaving[name] for name in part.sources}, columns={name: self.entering[name] for name in entered}
        )

    def serdes_of(self, part: GraphPart) -> PartSerdes:
        """The serdes inside a part, once all are settled."""
        entries = self.entries_of(part)
        assert entries is not None
        return replace(serdes_of_part(self.topology, part, entries, self.default), letters=self.letters)

    def _leave_part(self, part: GraphPart) -> None:
        if self.entries_of(part) is None:
            return
        known = self.serdes_of(part).leaving
        for name in (*part.sources, *part.nodes):
            if name in part.nodes:
                self.leaving[name] = known[name]
            for child in self.topology.children(name):
                if isinstance(self.topology.nodes[child], SinkNode):
                    self.entering[child] = sink_edge(self.topology, child, known, self.default)
        for name in left_to_columns(self.topology, part):
            self.from_parts[name] = exit_edge(self.topology, name, known)

    def _inline(self, name: str) -> KeyValueSerdes | None:
        """Serdes of records that reach the node from a Python node of the same step; None if there is none."""
        parent = self._inline_parent(name)
        return None if parent is None else self.leaving[parent]

    def _inline_parent(self, name: str) -> str | None:
        for parent in parents_first(self.topology):
            in_step = runs_vectorised(self.topology, self.stages, parent)
            if parent in self.leaving and in_step and name in targets(self.topology, parent, self.stages.part_of):
                return parent
        return None

    def _letters_left(self, name: str) -> KeyValueSerdes:
        """The serdes of ``letters`` for what a node passes on as it is."""
        entry, found = entry_of(processor_node(self.topology, name).operation), self.letters.get(name, NO_SERDES)
        passes = entry.is_stateless
        return KeyValueSerdes(
            key=found.key if passes and entry.key is Leaves.ARRIVING else None,
            value=found.value if passes and entry.value is Leaves.ARRIVING else None,
        )

    def _as_stored(self, name: str) -> tuple[KeyValueSerdes, Enters]:
        """The serdes of the store of a Python node, of what enters it in the store's bytes."""
        node = processor_node(self.topology, name)
        enters, store = entry_of(node.operation).enters, kept_store(node.operation)
        if enters is Enters.BY_TYPE or store is None:
            return NO_SERDES, enters
        kept = self.topology.stores[store]
        return KeyValueSerdes(key=kept.key_serde, value=kept.value_serde if enters is Enters.AS_STORED else None), enters

    # --- from columns -----------------------------------------------------------------------------------------------

    def enter(self, name: str, at: KeyValue) -> tuple[Encoded, Encoded | None]:
        """Settles what enters a node from a layer; gives key and value as they are written. Value None: it has none, since rows
        are counted there."""
        node, is_counted, place = self.topology.nodes[name], False, name
        said, default = NO_SERDES, NO_SERDES  # what the column is, says its type
        if isinstance(node, SinkNode):
            said = KeyValueSerdes(key=node.key_serde, value=node.value_serde)
            default = default if is_batch_sink(node) else self.default
            place = name if is_batch_sink(node) else self._place_of(node)
        elif name not in self.stages.part_of:
            assert isinstance(node, ProcessorNode)
            said, enters = self._as_stored(name)
            is_counted = enters is Enters.KEY_ONLY
            default = self.default if enters in (Enters.AS_STORED, Enters.KEY_ONLY) else default
        if not is_batch_sink(node):
            said = said.otherwise(self._with_own_values(name, at))
        is_python = name in self.stages.part_of
        is_vectorised = not is_python and isinstance(node, ProcessorNode)

        def written(own: Serde | None, of_all: Serde | None, side: str, column: Column, kind: DataType) -> tuple[Serde, Encoded]:
            where = f"into {place}, {side}" + (f" by default.{side}.serde" if of_all is not None and own is None else "")
            chosen = own or of_all
            if chosen is None:
                chosen = serde_for_type(kind, where)
                if is_vectorised and not writes_as_it_came(self.topology, name, side, self.default):
                    chosen = before_it_is_written(chosen)
            return chosen, encoded(before_it_is_written(chosen) if is_python else chosen, column, kind, where)

        key_serde, key = written(said.key, default.key, "key", at.key, at.key_type)
        if is_counted:
            self.entering[name] = KeyValueSerdes(key=key_serde, value=None)
            return key, None
        value_serde, value = written(said.value, default.value, "value", at.value, at.value_type)
        self.entering[name] = KeyValueSerdes(key=key_serde, value=value_serde)
        if not isinstance(node, SinkNode):
            came = self.came_to(name)
            self.letters[name] = KeyValueSerdes(key=_unlike(came.key, key_serde), value=_unlike(came.value, value_serde))
        return key, value

    def _place_of(self, sink: SinkNode) -> str:
        topic = f"{sink.topic}{self._moved_above(sink)}" if sink.topic else ""
        return place_of_sink(sink.name, topic, sink.written_at)

    def _moved_above(self, sink: SinkNode) -> str:
        """What a message says of a repartition that stood below processors, whose results have the serdes of the topic."""
        nodes = self.topology.nodes.items()
        reached = {name for name, node in nodes if isinstance(node, SourceNode) and sink.topic in node.topics}
        moved = []
        for name in parents_first(self.topology):
            if not reached.isdisjoint(self.topology.parents.get(name, ())):
                reached.add(name)
                moved += [name] * (name in self.topology.processors_below_merged_repartition)
        if not moved:
            return ""
        above = ", ".join(moved)
        return f", which merge.repartition.topics has moved above {above}: call repartition() behind what converts values"

    def at_sink(self, name: str) -> KeyValueSerdes:
        """The serdes of a sink's records: of those that enter it, or leave the Python node whose step sends them."""
        node = self.topology.nodes[name]
        assert isinstance(node, SinkNode)
        inline = self._inline(name) or NO_SERDES
        own = self._own(node, inline)
        found = self.entering.get(name) or own.otherwise(inline)
        return found.otherwise(own).otherwise(self.default)

    def rewritten(self, name: str, leaving: KeyValueSerdes) -> tuple[Serde | None, Serde | None]:
        """The serdes of a sink in whose step records already are as bytes, as ``leaving`` writes them; None for a side whose
        bytes are the sink's too."""
        node = self.topology.nodes[name]
        assert isinstance(node, SinkNode)
        return other_serdes(leaving, self._own(node, leaving))

    def _own(self, node: SinkNode, arriving: KeyValueSerdes) -> KeyValueSerdes:
        """A sink's serdes: those that the program names, of what arrives with values of its own, and the defaults."""
        named = KeyValueSerdes(key=node.key_serde, value=node.value_serde).completed_by(self.default)
        kept = KeyValueSerdes(
            key=arriving.key if _has_own_values(arriving.key) else None,
            value=arriving.value if _has_own_values(arriving.value) else None,
        )
        return named.otherwise(kept).otherwise(self.default)

    def _with_own_values(self, name: str, at: KeyValue) -> KeyValueSerdes:
        """The serdes of what has come through the JVM unchanged, where their values are none of Spark's: functions of Python get
        the same behind functions of Columns, and stores and topics the same bytes."""
        came = self.came_to(name)

        def kept(serde: Serde | None, kind: DataType) -> Serde | None:
            return serde if serde is not None and _has_own_values(serde) and serde.sql_type == kind.simpleString() else None

        return KeyValueSerdes(key=kept(came.key, at.key_type), value=kept(came.value, at.value_type))

    def came_to(self, name: str) -> KeyValueSerdes:
        """The serdes with which what arrives at a node below columns came to them; None where it came with several. The nodes
        above are asked parents first: by recursion a chain of 300 functions would be too long."""
        above: set[str] = set()
        todo = [name]
        while todo:
            new = {parent for parent in self.topology.parents[todo.pop()] if parent not in self.stages.part_of} - above
            above |= new
            todo += new - self.leaving.keys()
        known: dict[str, KeyValueSerdes] = {}
        for each in parents_first(self.topology):
            if each in above:
                known[each] = self._came_from(each, known)
        return self._of_parents(name, known)

    def _of_parents(self, name: str, known: dict[str, KeyValueSerdes]) -> KeyValueSerdes:
        of_columns = [parent for parent in self.topology.parents[name] if parent not in self.stages.part_of]
        above = [known[parent] for parent in of_columns]
        above += [self.from_parts[name]] if name in self.from_parts else []
        first, *others = above or [NO_SERDES]
        return KeyValueSerdes(
            key=first.key if all(edge.key == first.key for edge in others) else None,
            value=first.value if all(edge.value == first.value for edge in others) else None,
        )

    def _came_from(self, name: str, known: dict[str, KeyValueSerdes]) -> KeyValueSerdes:
        """The serdes with which what leaves a node came to columns: those that the program names, or else those with which a
        source or a node in Python has left it; functions of Columns pass on what they leave as it is. ``known``: of the nodes
        above."""
        node = self.topology.nodes[name]
        own = KeyValueSerdes(key=node.key_serde, value=node.value_serde)
        if name in self.leaving:
            letters = self._letters_left(name) if isinstance(node, ProcessorNode) else NO_SERDES
            left = self.leaving[name]
            if isinstance(left.value, EntriesSerde):  # of which functions of Columns get one
                left = replace(left, value=left.value.of)
            return own.otherwise(letters).otherwise(left)
        if not isinstance(node, ProcessorNode):
            return own
        came = self._of_parents(name, known)
        passes_keys = entry_of(node.operation).key is Leaves.ARRIVING
        passes_values = value_leaves(node.operation) is Leaves.ARRIVING
        return own.otherwise(
            KeyValueSerdes(key=came.key if passes_keys else None, value=came.value if passes_values else None)
        )

    def at_batch_sink(self, name: str) -> KeyValueSerdes:
        """The serdes of records that reach a ``foreach_batch`` node, on whichever way.

        Raises:
            TopologyError: on two ways in two forms.
        """
        found = [edge for edge in (self.entering.get(name), self._inline(name)) if edge is not None]
        if len(found) == 2 and found[0] != found[1]:
            raise TopologyError(merges_different(name))
        node = self.topology.nodes[name]
        assert isinstance(node, SinkNode)
        said = found[0] if found else KeyValueSerdes(key=node.key_serde, value=node.value_serde)
        return said.otherwise(self.default)


def _has_own_values(serde: Serde | None) -> bool:
    """True if its values are other ones than those of its Spark type: instances of a class, ``Windowed``, or what is text in the
    JVM only (a UUID, a JSON document)."""
    if serde is None:
        return False
    is_text_in_transit = serde.sql_type == "string" and transit_of(serde) is not None
    return is_text_in_transit or isinstance(serde, (JsonClassSerde, TimeWindowedSerde, SessionWindowedSerde))


def _unlike(came_by: Serde | None, serde: Serde) -> Serde | None:
    """``came_by``, if values of its Spark type are written by ``serde`` in other bytes."""
    if came_by is None or isinstance(came_by, PairSerde) or writes_the_same(serde, came_by) or transit_of(came_by) is None:
        return None
    return came_by if in_transit(came_by).sql_type == in_transit(serde).sql_type else None
