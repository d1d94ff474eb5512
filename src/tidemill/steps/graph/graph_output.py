"""Output of a part of the topology in a batch: records to send by destination, records for columns by node.

Decides which records share a list, since their order among each other counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemill.ids import TaskId
from tidemill.operators.record import Record
from tidemill.operators.task_graph import HandedOver, Produced
from tidemill.steps.outputs import Destination, ToSink, ToTopic
from tidemill.steps.rows.records import ANY_PARTITION, Records
from tidemill.steps.step_spec import GraphSpec
from tidemill.topology.nodes import SinkNode
from tidemill.topology.partitioning import Partitioning


@dataclass(slots=True)
class GraphOutput:
    """Filled in the order in which the part's records cause each other."""

    spec: GraphSpec
    onward: dict[str, Records] = field(default_factory=dict)
    """Records for columns, by node."""
    _sent: dict[Destination, Records] = field(default_factory=dict)
    _by_sink: dict[tuple[str, str], Records] = field(default_factory=dict)
    """The lists of ``_sent`` by sink and topic."""
    _handed_on: int = 0
    _made: int = 0
    """Number of records for sinks so far."""

    @property
    def sent(self) -> Iterable[tuple[Destination, Records]]:
        return self._sent.items()

    def of_sink(self, sink: str, topic: str) -> Records:
        """The list of a sink's records for a topic. Sinks without a choice left share the topic's list, since the order among
        their records counts."""
        found = self._by_sink.get((sink, topic))
        if found is None:
            node = self.spec.topology.nodes[sink]
            assert isinstance(node, SinkNode)
            to: Destination = ToTopic(topic)
            if sink in self.spec.choosing_sinks:
                to = ToSink(sink, None if node.topic_extractor is None else topic)
            names_partitions = node.partitioner is None and node.partitioning is Partitioning.BY_SUBSCRIPTION
            new = Records.empty(partitions=names_partitions, places=bool(self.spec.choosing_sinks))
            found = self._by_sink[sink, topic] = self._sent.setdefault(to, new)
        return found

    def of_node(self, node: str) -> Records:
        """The list of a join's results for a node of columns. One path leads there, so they need no places."""
        return self.onward.setdefault(node, Records.empty())

    def put(
        self, task: TaskId, produced: Iterable[Produced], handed_over: Iterable[HandedOver], sequence: int, offset: int | None
    ) -> None:
        """Adds the results of one record, or of punctuators (``offset`` None)."""
        partition = task.partition
        offset = -1 if offset is None else offset  # None means summed
        for made in produced:
            records = self.of_sink(made.sink, made.topic)
            if records.partitions is not None:
                records.partitions.append(ANY_PARTITION if made.partition is None else made.partition)
            if records.places is not None:
                records.places.append(self._made)
                self._made += 1
            _append(records, partition, made.key, made.value, made.record, offset, sequence)
        for given in handed_over:
            _append(self._next_handed_on(given.node), partition, given.key, given.value, given.record, offset, sequence)

    def put_all(self, task: TaskId, produced: Iterable[Produced]) -> None:
        """Adds all results of a task in a batch, where only their own order counts."""
        grouped: dict[int, tuple[Records, list[Produced], list[int]]] = {}
        for made in produced:
            records = self.of_sink(made[0], made[1])
            _, several, places = grouped.setdefault(id(records), (records, [], []))
            several.append(made)
            places.append(self._made)
            self._made += 1
        for records, several, places in grouped.values():
            count = len(several)
            records.parts += [task.partition] * count
            records.keys += [made[2] for made in several]
            records.values += [made[3] for made in several]
            records.timestamps += [made[4][2] for made in several]
            records.offsets += [-1] * count  # None means summed
            records.sequences += places
            if records.places is not None:
                records.places += places
            assert records.headers is not None
            records.headers += [made[4][3] or None for made in several]
            if records.partitions is not None:
                records.partitions += [ANY_PARTITION if made[5] is None else made[5] for made in several]

    def _next_handed_on(self, node: str) -> Records:
        """The list for the next record for a node of columns. The record gets its place among those of all nodes, since results
        of one record on several paths may meet again."""
        records = self.onward.get(node)
        if records is None:
            records = self.onward[node] = Records.empty(places=True)
        assert records.places is not None
        records.places.append(self._handed_on)
        self._handed_on += 1
        return records


def _append(
    records: Records, partition: int, key: bytes | None, value: bytes | None, record: Record, offset: int, sequence: int
) -> None:
    records.parts.append(partition)
    records.keys.append(key)
    records.values.append(value)
    records.timestamps.append(record[2])
    records.offsets.append(offset)
    records.sequences.append(sequence)
    assert records.headers is not None
    records.headers.append(record[3] or None)
