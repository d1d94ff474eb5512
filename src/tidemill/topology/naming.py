"""Names of nodes, stores and internal topics, as Kafka Streams gives them.

Decides spelling, and that names of nodes and stores are legal where a topic's are, as ``Named`` of Kafka does; the counter is the
DSL's. Source: the published describe() texts.
"""

from __future__ import annotations

import re

from tidemill.errors import TopologyError
from tidemill.ids import why_no_topic

REPARTITION_SUFFIX = "-repartition"
CHANGELOG_SUFFIX = "-changelog"

_GENERATED_STREAM_NAME = re.compile(r"KSTREAM.*-[0-9]{10}\Z")


def numbered(prefix: str, index: int) -> str:
    """``KSTREAM-MAP-`` and 3 -> ``KSTREAM-MAP-0000000003``."""
    return f"{prefix}{index:010d}"


def repartition_topic(prefix: str) -> str:
    """The repartition topic of a store, group or repartition, without the application id."""
    return prefix if prefix.endswith(REPARTITION_SUFFIX) else prefix + REPARTITION_SUFFIX


def repartition_nodes(prefix: str, first_index: int) -> tuple[str, str, str]:
    """The names of the sink, filter and source of a repartition; they use three indexes whatever they are called."""
    if _GENERATED_STREAM_NAME.match(prefix):
        return (
            numbered("KSTREAM-SINK-", first_index),
            numbered("KSTREAM-FILTER-", first_index + 1),
            numbered("KSTREAM-SOURCE-", first_index + 2),
        )
    topic = repartition_topic(prefix)
    return f"{topic}-sink", f"{topic}-filter", f"{topic}-source"


def internal_topic(application_id: str, topic: str) -> str:
    """The broker's name of a repartition topic: ``<application.id>-<name>-repartition``."""
    return f"{application_id}-{topic}"


def changelog_topic(application_id: str, store: str) -> str:
    """The broker's name of a store's changelog: ``<application.id>-<store>-changelog``."""
    return f"{application_id}-{store}{CHANGELOG_SUFFIX}"


def node_name(name: str, what: str) -> str:
    """``name`` if it may name a node of the Processor API: printable text, with spaces too, as in Kafka Streams."""
    if isinstance(name, str) and name and name.isprintable():
        return name
    raise TopologyError(f"{name!r} can't be the name of {what}: expected printable text; choose another name")


def legal_name(name: str, what: str) -> str:
    """``name`` if it may name a node, a store or a topic; else TopologyError. ``what`` says what it names."""
    problem = why_no_topic(name)
    if problem is not None:
        raise TopologyError(f"{name!r} can't be the name of {what}: {problem}; choose another name")
    return name
