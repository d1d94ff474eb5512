"""A topology that an earlier version of it has left topics for: what fits, what does not, and what is said then."""

from __future__ import annotations

import pytest

from tidemill import Materialized, Serdes, StreamsBuilder, TimeWindows
from tidemill.membership.topic_plan import ClusterMetadata, CopartitionCheck, TopicPlan, plan_topics
from tidemill.membership.topology_fit import TopicsFound, expiring, left_over, misfits
from tidemill.membership.topology_metadata import topology_metadata

STRING = Serdes.string()
SOURCES = frozenset({"in"})


def counting(*, filters: int = 0, store: str | None = None, windows: bool = False) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    for _ in range(filters):
        stream = stream.filter(lambda k, v: v != "")
    grouped = stream.group_by(lambda k, v: v)
    (grouped.windowed_by(TimeWindows.of_size(1000)) if windows else grouped).count(store=store)
    return builder


def plan(builder: StreamsBuilder, partitions: int = 2) -> TopicPlan:
    facts = topology_metadata(builder.build(), "app")
    return plan_topics(facts, ClusterMetadata(partition_counts={"in": partitions}), CopartitionCheck.AS_KAFKA)


def left_by(earlier: TopicPlan, *more: str) -> TopicsFound:
    """The brokers after that topology has run."""
    return TopicsFound(
        names=SOURCES | {topic.name for topic in earlier.internal_topics} | set(more),
        partitions={topic.name: topic.partitions for topic in earlier.internal_topics},
        cleanup={
            topic.name: topic.config.settings["cleanup.policy"]
            for topic in earlier.internal_topics
            if not topic.config.is_repartition
        },
    )


def sentences(now: TopicPlan, found: TopicsFound) -> tuple[str, ...]:
    return misfits(now, found, "app", SOURCES)


@pytest.mark.parametrize("windows", [False, True])
def test_an_application_that_has_not_changed_fits_and_so_does_one_that_has_never_run(windows: bool) -> None:
    same = plan(counting(windows=windows))
    assert sentences(same, left_by(same)) == ()
    assert sentences(same, TopicsFound(names=SOURCES)) == ()


def test_an_input_with_more_partitions_is_told_of_each_topic_that_follows_it() -> None:
    found = left_by(plan(counting(store="counts"), partitions=2))
    told = sentences(plan(counting(store="counts"), partitions=3), found)
    assert len(told) == 2
    assert "app-counts-changelog has 2 partitions, expected 3" in told[0]
    assert "app-counts-repartition has 2 partitions, expected 3" in told[1]


def test_generated_names_that_have_moved_are_reported_with_both_names() -> None:
    now = plan(counting(filters=1))
    told = sentences(now, left_by(plan(counting())))
    missing = [topic.name for topic in now.internal_topics]
    assert [sentence.split()[0] for sentence in told] == missing
    before, after = "KSTREAM-AGGREGATE-STATE-STORE-0000000002", "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    assert f"app-{after}-changelog does not exist, but app-{before}-changelog does" in told[0]
    assert f"Give what is called {after} the name that it had (store=..." in told[0]


def test_with_names_of_its_own_a_topology_may_grow_above() -> None:
    assert sentences(plan(counting(filters=3, store="counts")), left_by(plan(counting(store="counts")))) == ()


def test_a_new_store_beside_old_ones_and_a_store_that_is_gone_are_no_misfits() -> None:
    other = plan(counting(store="other"))
    found = left_by(plan(counting(store="counts")))
    assert sentences(other, found) == ()
    assert left_over(other, found, "app", SOURCES) == ("app-counts-changelog", "app-counts-repartition")


def test_topics_of_an_application_whose_name_begins_alike_decide_nothing() -> None:
    theirs = tuple(f"app-v1-KSTREAM-AGGREGATE-STATE-STORE-0000000002-{end}" for end in ("changelog", "repartition"))
    assert sentences(plan(counting(filters=1)), TopicsFound(names=SOURCES | set(theirs))) == ()


def test_a_store_that_becomes_one_of_windows_is_reported_by_its_changelogs_policy() -> None:
    told = sentences(plan(counting(store="counts", windows=True)), left_by(plan(counting(store="counts"))))
    assert len(told) == 1
    assert "app-counts-changelog has cleanup.policy=compact, expected compact,delete" in told[0]
    assert "made for a store of keys and values and is to serve a store of windows or sessions" in told[0]


def test_a_changelog_whose_old_records_an_operator_has_deleted_is_no_misfit() -> None:
    counts = plan(counting(store="counts"))
    found = left_by(counts)
    altered = TopicsFound(names=found.names, partitions=found.partitions, cleanup={"app-counts-changelog": "compact,delete"})
    assert sentences(counts, altered) == ()


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "compact, delete"])
def test_a_changelog_that_loses_rows_which_the_store_keeps_is_told_unless_the_program_wants_it(policy: str) -> None:
    counts, windows = plan(counting(store="counts")), plan(counting(store="counts", windows=True))
    altered = TopicsFound(names=SOURCES, cleanup={"app-counts-changelog": policy})
    assert expiring(counts, altered) == {"app-counts-changelog": policy}
    assert expiring(windows, altered) == {}
    assert expiring(counts, left_by(counts)) == {}
    assert expiring(counts, TopicsFound(names=SOURCES)) == {}
    builder, wanted = StreamsBuilder(), Materialized(name="counts", changelog_config={"cleanup.policy": "compact,delete"})
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(store=wanted)
    assert expiring(plan(builder), altered) == {}
