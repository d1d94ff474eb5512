"""The topology of these tests: sub-topology 0 reads "in" and writes the repartition topic "r", which 1 reads into a store."""

from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata

CHANGELOG = "app-store-changelog"
FACTS = TopologyMetadata(
    subtopologies=(
        TopicsInfo(subtopology=0, source_topics=frozenset({"in"}), sink_topics=frozenset({"r"})),
        TopicsInfo(subtopology=1, source_topics=frozenset({"r"}), changelog_topics=frozenset({CHANGELOG})),
    ),
    internal_topics={
        "r": InternalTopicConfig(name="r", is_repartition=True),
        CHANGELOG: InternalTopicConfig(name=CHANGELOG, is_repartition=False),
    },
)
