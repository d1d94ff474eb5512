"""StreamsBuilder: where a program begins. Building has no side effect and calls no function of the user.

Decides how topics become streams and tables. Leaves merging of sources and every other rewrite to
``tidemill.topology``: ``build`` gives a value and can be called again with other optimisations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidemill.dsl.arguments import pattern_text, serde_or_none, topic_names
from tidemill.dsl.materialized import Materialized, materialized, store_of
from tidemill.dsl.recorder import Recorder
from tidemill.dsl.stream import KStream
from tidemill.dsl.table import KTable
from tidemill.errors import TopologyError
from tidemill.topology.logical import KTableSource, LogicalNode, StreamSource
from tidemill.topology.lowering import lower
from tidemill.topology.nodes import Serde, Topology
from tidemill.topology.optimization import optimizations, optimized

_OFFSET_RESETS = ("earliest", "latest", "none")


class StreamsBuilder:
    """Builds a topology from streams and tables, as ``org.apache.kafka.streams.StreamsBuilder``."""

    def __init__(self) -> None:
        self._recorder = Recorder()

    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
        offset_reset: str | None = None,
    ) -> KStream:
        """A stream of one topic, of several, or of all that match a pattern.

        ``offset_reset`` (earliest, latest, none): where to begin without a committed offset, if not as configured.
        """
        key, value = serde_or_none(key, "stream: key"), serde_or_none(value, "stream: value")
        pattern = pattern_text(topics) if isinstance(topics, re.Pattern) else None
        source = StreamSource(
            topics=() if isinstance(topics, re.Pattern) else topic_names(topics, "stream"), pattern=pattern,
            key_serde=key, value_serde=value, offset_reset=_offset_reset(offset_reset),
        )
        made = self._recorder.node_name("KSTREAM-SOURCE-", name)
        node = self._recorder.add(LogicalNode(name=made, effect=source))
        return KStream(recorder=self._recorder, node=node, name=made, key_serde=key, value_serde=value)

    def table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        offset_reset: str | None = None,
    ) -> KTable:
        """A table of the latest value of each key of a topic; a null value deletes, null keys are dropped.

        It is kept in a store only if ``store`` names one, or if a later operator needs it.
        """
        (source_topic,) = topic_names(topic, "table")
        asked = materialized(store, "table", key=key, value=value)
        kept = store_of(self._recorder, asked, f"{source_topic}-")
        queryable = asked is not None and asked.name is not None
        source_name = self._recorder.node_name("KSTREAM-SOURCE-", name, suffix="-source")
        made = self._recorder.node_name("KTABLE-SOURCE-", name)
        node = self._recorder.add(LogicalNode(name=made, effect=KTableSource(
            topic=source_topic, source_name=source_name, store=kept, materialized=queryable,
            offset_reset=_offset_reset(offset_reset),
        )))
        return KTable(
            recorder=self._recorder, node=node, name=made, key_serde=kept.key_serde, value_serde=kept.value_serde,
            store_name=kept.name if queryable else None,
        )

    def build(self, *, optimization: str | Iterable[str] = "none") -> Topology:
        """The topology, optimised as ``topology.optimization`` says: none, all, or the names of optimisations.

        TopologyError if the program can't run as written.
        """
        return lower(optimized(self._recorder.graph, optimizations(optimization)))


def _offset_reset(text: str | None) -> str | None:
    if text is not None and text not in _OFFSET_RESETS:
        raise TopologyError(f"offset_reset is {text!r}, expected one of {', '.join(_OFFSET_RESETS)}")
    return text
