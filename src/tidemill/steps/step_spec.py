"""A Python step's part of the topology: one value, which is sent to the worker once.

Decides nothing: it is cut from the compiled plan. Topic names here are the real ones, with the application id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.steps.rows.intake import Intake
from tidemill.topology.functions import UserFunction
from tidemill.topology.join_operations import StreamStreamJoin
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, Topology, place_of_sink
from tidemill.topology.operations import Operation
from tidemill.topology.partitioning import Partitioning
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic that the source step reads: the tag its records get, and how keys and values are read before the JVM gets them.

    ``key``, ``value``: None where their bytes pass as they are, for the step that reads them.
    """

    tag: int
    node: str
    index: int
    """Its place among the topics of its sub-topology, which ``seq`` has (``rows.order``)."""
    serdes: tuple[Serde, Serde]
    """Those of its keys and values, for whoever must know here already what a record holds."""
    key: Intake | None = None
    value: Intake | None = None
    is_repartition: bool = False
    """True of a repartition topic of this application: a record with ``SUMMED_HEADER`` is a sum there."""
    takes_sums: bool = False
    """True if the nodes below only count, so that they need no more than a sum."""
    extractor: UserFunction | None = None
    """``extractor(record, partition time)`` gives the records their timestamps; without one they have those of the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    topics: Mapping[str, SourceTopic]
    changelogs: Mapping[str, int]
    """Changelog topic -> tag of its rows."""
    together: Mapping[str, int] = field(default_factory=dict)
    """The sub-topology of each topic whose records are taken by the timestamps of those next in line (``alignment``)."""
    idle_ms: int = 0
    """Milliseconds that such a task waits for an input that is empty: ``max.task.idle.ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """A sink's topic and serdes; ``summed``: rows without offset are pre-summed records. ``is_repartition``:
    its topic is one of this application, in which the header of such records is not for others to set.

    ``topic_extractor(key, value, record)`` names each record's topic instead, ``partitioner(topic, key, value, partitions)``
    its partition or partitions; ``partitioning`` says how they are chosen without one. ``above``: the nodes that forward to it,
    without sources; ``inputs``: the topics that its sub-topology reads, by the index that ``seq`` has. ``written_at``: file and
    line in the program.
    """

    name: str
    topic: str
    key_serde: Serde
    value_serde: Serde
    summed: bool = False
    is_repartition: bool = False
    topic_extractor: UserFunction | None = None
    partitioner: UserFunction | None = None
    partitioning: Partitioning = Partitioning.BY_KEY
    subtopology: int = 0
    above: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    written_at: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        """For messages."""
        return place_of_sink(self.name, self.topic, self.written_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSinkSpec:
    """A ``foreach_batch`` node (``planned_topology``), and the topics that its sub-topology reads."""

    name: str
    key_serde: Serde
    value_serde: Serde
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node that runs in Python. ``inline``: the nodes and sinks of the same step that get its records; ``tag``: set if these
    also leave the step."""

    name: str
    subtopology: int
    operation: Operation
    key_serde: Serde
    value_serde: Serde
    out_key_serde: Serde
    out_value_serde: Serde
    inline: tuple[str, ...]
    tag: int | None
    topics: tuple[str, ...] = ()
    """Those that its sub-topology reads, by the index that ``seq`` has."""
    rewritten: Mapping[str, tuple[Serde | None, Serde | None]] = field(default_factory=dict)
    """Targets in ``inline`` whose serdes of key and value write other bytes than leave the node; None: this side's bytes stay."""
    sends_old: bool = False
    """True if it forwards old values, too."""
    drops_null_changes: bool = False
    """A filter that forwards nothing if neither old nor new value passes (KTableFilter with old values)."""
    forwards_last: bool = False
    """A table that forwards the last change of each row and batch, as a record cache does."""
    lookup_store: str | None = None
    """The store of a stream-table join's table, which the node ``operation.table`` writes."""
    lookup_key_serde: Serde | None = None
    """The serde of that store's keys, where the keys that arrive are other bytes."""
    letter_serdes: tuple[Serde | None, Serde | None] = (None, None)
    """The serdes with which keys and values came to the functions of Columns above that pass them on, for dead letters; None
    where these have the bytes that arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """A store: its tag when restored, its changelog topic (None = not logged), whether values carry their timestamp."""

    name: str
    tag: int
    subtopology: int
    changelog: str | None
    timestamped: bool
    persistent: bool
    logged: bool
    key_serde: Serde | None
    value_serde: Serde | None
    """None where operators write the rows with the application's default."""
    source_topic: str | None = None
    logs_headers: bool = False
    """Deletions are logged with the headers of the record that caused them."""
    caching: bool = False
    """A deletion of a row that is not there is neither written nor forwarded (CachingKeyValueStore)."""
    kept: Store | None = None
    """Set where operators keep the store record by record (``operators.stores``): they say what is logged, and restore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEntry:
    """Rows of one tag enter a graph at ``node``, a source of its topology. ``source``: the index of the source node whose
    records they are as they came from the topic, so that a serde may find them unreadable; None: they come from columns."""

    node: str
    key_serde: Serde
    value_serde: Serde
    source: int | None
    topics: tuple[str, ...]
    """Those of its sub-topology, by the index that ``seq`` has."""
    letter_serdes: tuple[Serde | None, Serde | None] = (None, None)
    """As a node's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphExit:
    """Records for ``node``, one of columns below: rows of ``tag`` that the plan takes on, and their serdes."""

    node: str
    tag: int
    key_serde: Serde
    value_serde: Serde


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One side of a join of two streams: the source whose records enter it, the nodes that keep and join them, their store."""

    source: str
    windowed: str
    node: str
    operation: StreamStreamJoin
    store: Store


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """A part of the topology that ``JoinTask`` can run: left, then right. ``targets``: where its results go, sinks or columns,
    which all read ``value_serde``. ``waiting``: the store of what has found no match, of left and outer joins."""

    sides: tuple[JoinSide, JoinSide]
    waiting: Store | None
    targets: tuple[str, ...]
    value_serde: Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """One part of the topology (``graph_parts``) as a topology of its own, with all its serdes: its sources are where rows
    enter, real ones or one named ``node|in`` for each node that columns enter. ``inside``: what runs in the graph; nodes
    below that are not in it are columns'."""

    number: int
    subtopology: int
    topology: Topology
    inside: frozenset[str]
    entries: Mapping[int, GraphEntry]
    """Entries by the rows' tag."""
    exits: Mapping[str, GraphExit]
    choosing_sinks: frozenset[str]
    """Sinks that choose partitions, or have a topic extractor."""
    writes_alone: bool = False
    """No other node writes what it writes to: what it sends needs no order but its own."""
    emit_interval_ms: int = 0
    """How far the wall clock must move between two looks for closed windows and unmatched join records. It stands still within a
    batch, so an instance looks after each record; Kafka Streams has an internal setting for it, which recorded answers use."""
    is_global: bool = False
    """True if it updates global stores, from the records of all partitions."""
    global_stores: frozenset[str] = frozenset()
    """The stores of its topology that such a graph keeps."""
    default_serdes: KeyValueSerdes
    """The application's, as far as operators ask for them."""
    caching: frozenset[str] = frozenset()
    """The tables that have a record cache: what is below the part decides it, too."""
    window_join: WindowJoin | None = None
    """Set where the graph is one join of two streams, which has a shortcut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A source node's sub-topology with its topics, by the index that ``seq`` has, for messages about records that can't be read
    or processed; ``columns``: the nodes below it whose functions work on Columns. Its name and the serdes are for exception
    handlers."""

    subtopology: int
    topics: tuple[str, ...]
    node: str = ""
    columns: tuple[str, ...] = ()
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    is_global: bool = False
    """True if its records are for global stores: each thread reads all of them, at each start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """One Python step: its nodes by the tag that rows arrive with, parents before children; ``graphs``: global ones first."""

    number: int
    last: bool
    nodes: Mapping[int, NodeSpec]
    sinks: Mapping[int, SinkSpec]
    stores: Mapping[str, StoreSpec]
    ranks: bool = False
    """``seq`` alone does not say the order of the rows that arrive: the layer before this step, or another step, has made several
    of one. So rows that pass this step on their way to the next one wait for all others, to be ranked with them."""
    sources: Mapping[int, Origin] = field(default_factory=dict)
    """Sources by the index of their node."""
    graphs: tuple[GraphSpec, ...] = ()
    has_copies_above: bool = False
    """Set in the last step if earlier ones have copies of the global stores."""
    batch_sinks: tuple[BatchSinkSpec, ...] = ()

    @property
    def tags(self) -> frozenset[int]:
        """Tags of the rows that the step's nodes process."""
        return frozenset(self.nodes).union(*(graph.entries for graph in self.graphs))

    @property
    def global_tags(self) -> frozenset[int]:
        """Tags of the rows that update global stores."""
        return frozenset(tag for graph in self.graphs if graph.is_global for tag in graph.entries)
