"""How many partitions internal topics get, and which tasks follow."""

import random

import pytest

from tidemill.errors import AssignmentError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.topic_plan import (
    ClusterMetadata,
    CopartitionCheck,
    CopartitionError,
    MissingSourceTopicError,
    plan_topics,
)
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata


def part(number, reads, writes=(), changelogs=()):
    return TopicsInfo(
        subtopology=number,
        source_topics=frozenset(reads),
        sink_topics=frozenset(writes),
        changelog_topics=frozenset(changelogs),
    )


def facts(*parts, repartition=(), enforced=None, groups=()):
    internal = {name: InternalTopicConfig(name=name, is_repartition=True) for name in repartition}
    for name, partitions in (enforced or {}).items():
        internal[name] = InternalTopicConfig(name=name, is_repartition=True, enforced_partitions=partitions)
    return TopologyMetadata(
        subtopologies=parts, internal_topics=internal, copartition_groups=tuple(map(frozenset, groups))
    )


def counts(topology, check=CopartitionCheck.ALWAYS, **partitions):
    plan = plan_topics(topology, ClusterMetadata(partition_counts=partitions), check)
    return {topic.name: topic.partitions for topic in plan.internal_topics}


def test_a_repartition_topic_gets_the_most_partitions_of_all_inputs_of_all_its_writers():
    topology = facts(part(0, ["a", "b"], ["r"]), part(1, ["c"], ["r"]), part(2, ["r"]), repartition=["r"])
    assert counts(topology, a=2, b=5, c=3) == {"r": 5}


def test_numbers_pass_through_chains_of_repartition_topics_whatever_the_order():
    parts = [part(0, ["in"], ["r1"]), part(1, ["r1", "b"], ["r2"]), part(2, ["r2"], ["r3"]), part(3, ["r3"])]
    for seed in range(20):
        random.Random(seed).shuffle(parts)
        topology = facts(*parts, repartition=["r3", "r1", "r2"])
        assert counts(topology, **{"in": 7, "b": 4}) == {"r1": 7, "r2": 7, "r3": 7}


def test_in_a_cycle_the_known_inputs_count():
    """A foreign-key join: each side writes to a topic that the other reads."""
    topology = facts(
        part(0, ["orders", "response"], ["registration"]),
        part(1, ["users", "registration"], ["response"]),
        repartition=["response", "registration"],
        groups=[["users", "registration"], ["orders", "response"]],
    )
    assert counts(topology, orders=3, users=5) == {"registration": 5, "response": 3}


def test_an_existing_repartition_topic_of_an_earlier_run_decides_nothing():
    topology = facts(part(0, ["in"], ["r"]), part(1, ["r"]), repartition=["r"])
    assert counts(topology, **{"in": 3, "r": 9}) == {"r": 3}


def test_an_enforced_number_stands_and_passes_on():
    topology = facts(
        part(0, ["in"], ["fixed"]), part(1, ["fixed"], ["r"]), part(2, ["r"]), repartition=["r"], enforced={"fixed": 4}
    )
    assert counts(topology, **{"in": 6}) == {"fixed": 4, "r": 4}


def test_a_repartition_topic_that_nothing_known_writes_to_is_an_error_that_names_it():
    topology = facts(part(0, ["orphan"]), part(1, ["loop"], ["loop"]), repartition=["orphan", "loop"])
    with pytest.raises(AssignmentError, match=r"repartition topics loop, orphan can't be found"):
        counts(topology)


@pytest.mark.parametrize("present", [{}, {"a": 1, "gone": 0}])
def test_missing_source_topics_are_named_with_their_subtopologies(present):
    topology = facts(part(0, ["a"]), part(3, ["gone", "r"]), part(4, ["a"], ["r"]), repartition=["r"])
    with pytest.raises(MissingSourceTopicError, match=r"gone \(sub-topology 3\)"):
        counts(topology, **present)


def test_a_repartition_topic_is_fitted_to_the_topic_that_it_is_joined_with():
    topology = facts(
        part(0, ["events"], ["r"]), part(1, ["r", "users"]), repartition=["r"], groups=[["r", "users"]]
    )
    assert counts(topology, events=8, users=3) == {"r": 3}


def test_joined_repartition_topics_get_the_larger_number_of_both():
    topology = facts(
        part(0, ["a"], ["ra"]), part(1, ["b"], ["rb"]), part(2, ["ra", "rb"]), repartition=["ra", "rb"], groups=[["ra", "rb"]]
    )
    assert counts(topology, a=2, b=6) == {"ra": 6, "rb": 6}


def test_a_free_repartition_topic_follows_an_enforced_one():
    topology = facts(
        part(0, ["a"], ["ra"]), part(1, ["b"], ["rb"]), part(2, ["ra", "rb"]),
        repartition=["ra"], enforced={"rb": 4}, groups=[["ra", "rb"]],
    )  # fmt: skip
    assert counts(topology, a=9, b=9) == {"ra": 4, "rb": 4}


@pytest.mark.parametrize(
    ("topology", "named"),
    [
        (facts(part(0, ["a", "b"]), groups=[["a", "b"]]), "a=2, b=3"),
        (facts(part(0, ["a"], ["r"]), part(1, ["r", "b"]), enforced={"r": 4}, groups=[["r", "b"]]), "b=3, r=4"),
        (
            facts(part(0, ["a"], ["r", "s"]), part(1, ["r", "s", "b"]), enforced={"r": 4, "s": 5}, groups=[["r", "s"]]),
            "r=4, s=5",
        ),
    ],
)
def test_joined_topics_of_different_numbers_are_refused(topology, named):
    with pytest.raises(CopartitionError, match=f"not co-partitioned: {named}"):
        counts(topology, a=2, b=3)


def test_kafka_checks_topics_of_the_operator_only_beside_a_repartition_topic():
    alone = facts(part(0, ["a", "b"]), groups=[["a", "b"]])
    assert counts(alone, CopartitionCheck.AS_KAFKA, a=2, b=3) == {}
    beside = facts(part(0, ["a", "b"], ["r"]), part(1, ["r"]), repartition=["r"], groups=[["a", "b"]])
    with pytest.raises(CopartitionError):
        counts(beside, CopartitionCheck.AS_KAFKA, a=2, b=3)


def test_tasks_read_the_partition_of_their_number_where_the_topic_has_it():
    topology = facts(part(0, ["short", "long"], changelogs=["log", "short"]), part(2, ["other"]))
    metadata = ClusterMetadata(partition_counts={"short": 1, "long": 3, "other": 1})
    plan = plan_topics(topology, metadata, CopartitionCheck.ALWAYS)
    assert plan.tasks == {
        TaskId(0, 0): (TopicPartition("long", 0), TopicPartition("short", 0)),
        TaskId(0, 1): (TopicPartition("long", 1),),
        TaskId(0, 2): (TopicPartition("long", 2),),
        TaskId(2, 0): (TopicPartition("other", 0),),
    }
    assert list(plan.changelogs) == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)]
    assert plan.source_topic_changelogs == {"short"}
    assert [(topic.name, topic.partitions) for topic in plan.internal_topics] == [("log", 3)]
