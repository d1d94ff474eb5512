"""The nodes of a topology: immutable values, made by the DSL, read by describe, the leader and the Spark compiler.

Decides what a node says about itself. Leaves numbering into sub-topologies to ``graph``, names to ``naming``, text to
``describe`` and execution to ``tidemill.spark``. Functions held here are opaque: nothing in this package calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidemill.config.values import KafkaExtractor
from tidemill.spellings import Spelled
from tidemill.topology.functions import UserFunction
from tidemill.topology.operations import Operation
from tidemill.topology.partitioning import Partitioning
from tidemill.topology.values import Serde
from tidemill.topology.windows import MAX_TIME, Windows

_DAY_MS = 86_400_000


class StoreKind(Enum):
    KEY_VALUE = "key_value"
    TIMESTAMPED_KEY_VALUE = "timestamped_key_value"
    VERSIONED = "versioned"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped_window"
    SESSION = "session"
    SUPPRESS_BUFFER = "suppress_buffer"
    """Changes that suppress holds back, by time."""
    GRACE_BUFFER = "grace_buffer"
    """Stream records that wait for a versioned table."""
    OUTER_JOIN = "outer_join"
    """Records of both sides of a stream-stream join that have found no match yet."""
    SUBSCRIPTIONS = "subscriptions"
    """Subscriptions of left rows to foreign keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Spelled):
    """A state store: its kind, how its rows are written and whether it has a changelog.

    ``source_topic`` is the source topic that serves as changelog (``topology.optimization``), else None; where it is
    set nothing is logged, and ``logged`` is False.
    """

    name: str
    kind: StoreKind
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    logged: bool = True
    persistent: bool = True
    caching: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict, hash=False)
    source_topic: str | None = None
    retention_ms: int | None = None
    """Retention of windows, sessions and buffers; history retention of a versioned store."""
    reach_ms: int = 0
    """Of windows and sessions: how far behind the newest one an aggregation may look for others to go on from. A store with a
    cache keeps and shows them that long, if that is longer than the retention."""
    window_size_ms: int | None = None
    own_windows: Windows | None = field(default=None, compare=False)
    """The program's own windows, which know where one ends; None: ``window_size_ms`` after its start."""
    retain_duplicates: bool = False
    """True for window stores with several rows of one key and time (join stores)."""
    with_headers: bool = False
    """``dsl.store.format=HEADERS``: rows carry their record's headers."""
    other_value_serde: Serde | None = None
    """Serde of the right side's values in an outer join's store; ``value_serde`` is the left side's."""
    time_ordered: bool = False
    """True for window and session stores whose rows are emitted when windows close (EmitStrategy.onWindowClose)."""
    indexed_by_key: bool = False
    """True for those of sliding windows (``has_index_by_key``)."""
    windows: str | None = field(default=None, compare=False)
    """Which windows an aggregation keeps here, so that no others go on from its rows. None: the program's own windows,
    sessions, or no aggregation."""
    left_open: frozenset[str] = field(default=frozenset(), compare=False)
    """The fields of ``persistent`` and ``with_headers`` that the program leaves to settings (``configured_topology``)."""

    @property
    def keeps_ms(self) -> int:
        """The retention; a day for a store that names none."""
        return _DAY_MS if self.retention_ms is None else self.retention_ms

    @property
    def reaches_back_ms(self) -> int:
        """``reach_ms`` where there is a cache: without one what is older than the retention is hidden from the aggregation,
        too, as in Kafka Streams."""
        return self.reach_ms if self.caching else 0

    @property
    def logs_headers(self) -> bool:
        """Deletions are logged with the headers of the record being processed; of no store in memory, as in Kafka Streams."""
        return self.with_headers and self.persistent

    @property
    def has_index_by_key(self) -> bool:
        """A time-ordered window store keeps an index by key besides, which reads of several keys go by: in Kafka Streams one of
        sliding windows, and any whose rows carry headers."""
        return self.persistent and (self.indexed_by_key or self.with_headers)

    def window_end(self, start: int) -> int:
        """The end of the window that begins at ``start``: a row's key has the start only. No window ends after all time."""
        if self.own_windows is not None:
            return self.own_windows.end_of(start)
        return MAX_TIME if self.window_size_ms is None else min(start + self.window_size_ms, MAX_TIME)


# --- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics. Internal topics are named without the application id here and in describe()."""

    name: str
    topics: tuple[str, ...]
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    topic_pattern: str | None = None
    offset_reset: str | None = None
    timestamp_extractor: UserFunction | KafkaExtractor | None = None
    """``extractor(record, partition time) -> ms`` on a decoded record; below 0: the record is dropped."""
    is_global: bool = False
    """Every instance reads all partitions (global tables and stores)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    name: str
    operation: Operation
    stores: tuple[str, ...] = ()
    key_serde: Serde | None = None
    """The serde of the keys that leave this node, where it is known (None: the default)."""
    value_serde: Serde | None = None
    sends_old: bool = False
    """True if changes of the table carry old values, which a node below needs (KTable's enableSendOldValues)."""
    wrapped: UserFunction | None = None
    """Supplier of the Processor that runs in place of the operation's own, which is inside of it (KIP-1112)."""
    meets_copies: bool = False
    """Of a planned topology: it only forwards, and where it does, the same records come by another way, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes a topic; ``topic`` is without the application id where it is internal.

    ``topic_extractor(key, value, record)`` names the topic of each record instead, and ``topic`` is empty;
    ``partitioner(topic, key, value, partitions)`` names its partition, or several (KIP-837). Both get Python values.
    ``partitioning``: how partitions are chosen without one. ``written_at``: file and line in the program, for messages.
    """

    name: str
    topic: str
    topic_extractor: UserFunction | None = None
    partitioner: UserFunction | None = None
    partitioning: Partitioning = Partitioning.BY_KEY
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    written_at: str = field(default="", compare=False, repr=False)

BATCH_SINK = "foreach-batch:"
"""Begins the name that the sink of a ``foreach_batch`` has in place of a topic's; no topic's name has a colon."""


def place_of_sink(sink: str, topic: str, written_at: str) -> str:
    """``KSTREAM-SINK-0000000002 (topic out; orders.py, line 12)``, for messages; without what is empty."""
    written = "" if not topic or topic.startswith(BATCH_SINK) else f"topic {topic}"
    known = "; ".join(part for part in (written, written_at) if part)
    return f"{sink} ({known})" if known else sink


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionTopic:
    """The internal topic of a repartition; ``partitions`` None = as many as the largest source of its writers."""

    name: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology(Spelled):
    """A finished topology (org.apache.kafka.streams.Topology), immutable: nodes in insertion order, who feeds whom, stores and
    repartition topics, all by name. Made by ``StreamsBuilder.build`` and ``TopologyBuilder.build``.
    """

    nodes: Mapping[str, Node]
    parents: Mapping[str, tuple[str, ...]]
    stores: Mapping[str, Store]
    repartition_topics: Mapping[str, RepartitionTopic]
    copartition_groups: tuple[frozenset[str], ...] = ()
    """Source topics, as the nodes name them, that need equally many partitions."""
    groups_with_patterns: tuple[frozenset[str], ...] = field(default=(), repr=False)
    """Co-partitioned sources of which some read by a pattern: their topics are known once topics of the brokers are."""
    generated_names: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Names that the program's counter has made; those of internal resources begin with them (``internal_names``)."""
    processors_below_merged_repartition: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Processors above which ``merge.repartition.topics`` has moved a repartition: correct if they keep keys and types."""
    _children: Mapping[str, tuple[str, ...]] = field(init=False, compare=False, repr=False)
    """``parents`` the other way round: planning asks for it some hundred times for each node."""

    def __post_init__(self) -> None:
        children: dict[str, list[str]] = {name: [] for name in self.parents}
        for name, parents in self.parents.items():
            for parent in dict.fromkeys(parents):
                children.setdefault(parent, []).append(name)
        object.__setattr__(self, "_children", {name: tuple(below) for name, below in children.items()})

    def children(self, name: str) -> tuple[str, ...]:
        """The nodes that ``name`` forwards to, in insertion order."""
        return self._children.get(name, ())

    def describe(self) -> str:
        """The text of Kafka's ``Topology.describe()``, to the character."""
        from tidemill.topology.describe import describe  # reads this module

        return describe(self)

    def to_mermaid(self) -> str:
        """A Mermaid flowchart: a box for each sub-topology, topics between them, stores next to the nodes that use them."""
        from tidemill.topology.describe import to_mermaid

        return to_mermaid(self)

    def to_dot(self) -> str:
        """Graphviz' DOT text of the same, for ``dot -Tsvg``."""
        from tidemill.topology.drawing import to_dot

        return to_dot(self)

    def _repr_html_(self) -> str:
        """The drawing that a notebook shows: SVG that needs no network."""
        from tidemill.topology.drawing import to_svg

        return to_svg(self)


def processor_node(topology: Topology, name: str) -> ProcessorNode:
    """The node ``name``, of which the caller knows that it is a processor."""
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    return node


def parents_first(topology: Topology) -> tuple[str, ...]:
    """Node names so that every node comes after its parents, otherwise in insertion order."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in done:
            for parent in topology.parents.get(name, ()):
                visit(parent)
            done[name] = None

    for name in topology.nodes:
        visit(name)
    return tuple(done)
