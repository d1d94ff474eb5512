"""BranchedKStream: the branches of a split, one by one.

Decides their names (``<split><position>``, ``<split><name>``, ``<split>0`` for the default) and their order. Gets
streams from ``stream_at`` only, so that ``stream`` can import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from tidemill.dsl.arguments import function_of
from tidemill.dsl.function_types import Predicate
from tidemill.dsl.recorder import Recorder
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology.functions import PerRecord
from tidemill.topology.logical import LogicalNode, Process
from tidemill.topology.naming import legal_name
from tidemill.topology.operations import Branch, PassThrough
from tidemill.topology.values import Serde

Stream_co = TypeVar("Stream_co", covariant=True)
Stream = TypeVar("Stream")


class StreamAt(Protocol[Stream_co]):
    """Makes the stream at a node."""

    def __call__(
        self, node: int, name: str, *, key: Serde | None = None, value: Serde | None = None
    ) -> Stream_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchedKStream(Spelled, Generic[Stream]):
    """A split under construction (org.apache.kafka.streams.kstream.BranchedKStream, KIP-418).

    ``branch`` adds a branch and returns the split; ``default_branch`` or ``no_default_branch`` ends it and gives all branches as
    a dict of streams, by name: ``<split><name>``, or ``<split><position>`` of those without a name, the default's position being
    0.

    Raises:
        TopologyError: for a predicate with other arguments than (key, value), predicates of Columns and of Python values in one
            split, ``consumer`` together with ``function``, or a second default branch.
    """

    recorder: Recorder = field(repr=False)
    node: int
    name: str
    stream_at: StreamAt[Stream]
    branches: dict[str, Stream] = field(default_factory=dict)

    def branch(
        self,
        predicate: Predicate,
        *,
        name: str | None = None,
        consumer: Callable[[Stream], None] | None = None,
        function: Callable[[Stream], Stream | None] | None = None,
    ) -> BranchedKStream[Stream]:
        """The branch of the records for which this predicate, and none before it, is true.

        ``consumer`` gets the branch's stream at once, which then is not among the results; ``function`` too, and its
        result is (None: nothing is).
        """
        function_of(predicate, ("key", "value"), "branch")
        self._check_chain(consumer, function)
        split = self._split()
        if len({isinstance(one, PerRecord) for one in (*split.predicates, predicate)}) > 1:
            # The first true one takes a record: those of Columns would need what Python says of it, in the middle of the plan.
            raise TopologyError(
                f"a branch of {self.name!r}: its predicates are functions of Columns and, in per_record, of Python values; "
                "wrap all of them in per_record(...), or none"
            )
        child = self._child(len(split.predicates) + 1, name)
        self._redefine(replace(
            split, predicates=(*split.predicates, predicate), children=(*split.children, child)
        ))
        self._grow(child, consumer, function)
        return self

    def default_branch(
        self,
        *,
        name: str | None = None,
        consumer: Callable[[Stream], None] | None = None,
        function: Callable[[Stream], Stream | None] | None = None,
    ) -> dict[str, Stream]:
        """All branches by name, with one more for the records that no predicate took."""
        self._check_chain(consumer, function)
        split = self._split()
        if split.default is not None:
            raise TopologyError(f"split {self.name!r} has its default branch {split.default!r} already; add only one")
        child = self._child(0, name)
        self._redefine(replace(split, default=child))
        self._grow(child, consumer, function)
        return dict(self.branches)

    def no_default_branch(self) -> dict[str, Stream]:
        """All branches by name; records that no predicate took are dropped."""
        return dict(self.branches)

    def _check_chain(self, consumer: object, function: object) -> None:
        if consumer is not None and function is not None:
            raise TopologyError(f"a branch of {self.name!r}: give consumer or function, not both")

    def _split(self) -> Branch:
        effect = self.recorder.graph.nodes[self.node].effect
        assert isinstance(effect, Process)
        assert isinstance(effect.operation, Branch)
        return effect.operation

    def _redefine(self, split: Branch) -> None:
        def change(node: LogicalNode) -> LogicalNode:
            assert isinstance(node.effect, Process)
            return replace(node, effect=replace(node.effect, operation=split))

        self.recorder.change(self.node, change)

    def _child(self, position: int, name: str | None) -> str:
        self.recorder.take_index()
        return legal_name(f"{self.name}{position if name is None else name}", "a branch")

    def _grow(
        self,
        child: str,
        consumer: Callable[[Stream], None] | None,
        function: Callable[[Stream], Stream | None] | None,
    ) -> None:
        above = self.recorder.graph.nodes[self.node].effect
        assert isinstance(above, Process)
        effect = replace(above, operation=PassThrough())
        node = self.recorder.add(LogicalNode(name=child, effect=effect), self.node)
        stream = self.stream_at(node, child, key=effect.key_serde, value=effect.value_serde)
        result: Stream | None = stream
        if function is not None:
            result = function(stream)
        elif consumer is not None:
            consumer(stream)
            result = None
        if result is not None:
            self.branches[child] = result
