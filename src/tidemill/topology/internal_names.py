"""Internal resources without a name of the program's: stores, changelogs and repartition topics named by the counter (KIP-1111).

Decides which names of a topology are generated, and the messages about them. A generated name changes as soon as an operator is
added before it, and with it the topic: the state under the old name is lost to the program. Only what the topology has counts: a
table without a store needs no name.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.errors import TopologyError
from tidemill.topology.naming import CHANGELOG_SUFFIX
from tidemill.topology.nodes import ProcessorNode, SourceNode, Store, StoreKind, Topology

SETTING = "ensure.explicit.internal.resource.naming"


def require_explicit_names(topology: Topology) -> None:
    """Refuses a topology with generated names of internal resources (StreamsConfig's ensure.explicit.internal.resource.naming).

    Raises:
        TopologyError: names each resource, the operators that it belongs to, and what names it.
    """
    found = [*_stores(topology), *_repartition_topics(topology)]
    if found:
        raise TopologyError(
            f"{SETTING}=true, but {len(found)} internal resource{'s have' if len(found) > 1 else ' has'} a generated name, which"
            f" changes with the operators before it: {'; '.join(found)}"
        )


def _stores(topology: Topology) -> Iterable[str]:
    for name, store in topology.stores.items():
        if not _is_generated(name, topology.generated_names) or _is_kept_nowhere(store):
            continue
        users = [n.name for n in topology.nodes.values() if isinstance(n, ProcessorNode) and name in n.stores]
        changelog = f" and its changelog {name}{CHANGELOG_SUFFIX}" if store.logged else ""
        yield f"the store {name}{changelog}, of {', '.join(users)}: give {_NAMED_BY.get(store.kind, 'store=')}"


_NAMED_BY = {
    StoreKind.WINDOW: "joined=StreamJoined(store_name=...)",
    StoreKind.OUTER_JOIN: "joined=StreamJoined(store_name=...)",
    StoreKind.SUPPRESS_BUFFER: "Suppressed a name=",
    StoreKind.GRACE_BUFFER: "the join a name=",
    StoreKind.SUBSCRIPTIONS: "the join a name=",
}


def _is_kept_nowhere(store: Store) -> bool:
    """A buffer in memory without a changelog: no topic and no file has its name."""
    return store.kind is StoreKind.SUPPRESS_BUFFER and not store.logged


def _repartition_topics(topology: Topology) -> Iterable[str]:
    for topic in topology.repartition_topics:
        if _is_generated(topic, topology.generated_names):
            sources = [n for n in topology.nodes.values() if isinstance(n, SourceNode) and topic in n.topics]
            readers = [child for source in sources for child in topology.children(source.name)]
            read_by = f", read by {', '.join(readers)}" if readers else ""
            yield f"the repartition topic {topic}{read_by}: give group_by, repartition, to_table or the join a name="


def _is_generated(name: str, generated: frozenset[str]) -> bool:
    """True if a name is a generated one, or begins with one: ``KSTREAM-KEY-SELECT-0000000001-repartition``."""
    parts = name.split("-")
    return any("-".join(parts[:count]) in generated for count in range(1, len(parts) + 1))
