"""The topology of these tests: sub-topology 0 reads "in" and writes the repartition topic "r", which 1 reads into a store."""

from tidemill.membership.topology_facts import InternalTopicFacts, SubtopologyFacts, TopologyFacts

CHANGELOG = "app-store-changelog"
FACTS = TopologyFacts(
    subtopologies=(
        SubtopologyFacts(subtopology=0, source_topics=frozenset({"in"}), sink_topics=frozenset({"r"})),
        SubtopologyFacts(subtopology=1, source_topics=frozenset({"r"}), changelog_topics=frozenset({CHANGELOG})),
    ),
    internal_topics={
        "r": InternalTopicFacts(name="r", is_repartition=True),
        CHANGELOG: InternalTopicFacts(name=CHANGELOG, is_repartition=False),
    },
)
