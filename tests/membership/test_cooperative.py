"""The cooperative rule on single tasks."""

from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.cooperative import Ownership, member_tasks

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)
JOIN, OTHER = TaskId(0, 0), TaskId(1, 0)
PARTITIONS_OF = {JOIN: (LEFT, RIGHT), OTHER: (TopicPartition("a", 0),)}


def tasks(owner_of, owned_in_group, *, active=(JOIN,), standby=(), kept=frozenset(), disputed=frozenset()):
    ownership = Ownership(owner_of=owner_of, owned_in_group=frozenset(owned_in_group), disputed=disputed)
    return member_tasks(
        "me", active, standby, ownership=ownership, partitions_of=PARTITIONS_OF, kept_standbys=kept
    )


def test_a_task_is_withheld_whole_if_one_of_its_partitions_is_owned_elsewhere():
    given = tasks({LEFT: "me"}, {LEFT, RIGHT})
    assert (given.partitions, given.active, given.withheld) == ((), (), (JOIN,))


def test_a_task_whose_partitions_are_free_or_ones_own_is_given():
    given = tasks({LEFT: "me"}, {LEFT})
    assert (given.partitions, given.active, given.withheld) == ((LEFT, RIGHT), (JOIN, JOIN), ())


def test_another_thread_of_the_same_client_counts_as_another_owner():
    assert tasks({LEFT: "my sibling"}, {LEFT}).withheld == (JOIN,)


def test_a_disputed_partition_is_withheld_even_from_a_claimant():
    assert tasks({LEFT: "me"}, {LEFT}, disputed=frozenset({LEFT})).withheld == (JOIN,)


def test_lists_run_parallel_in_the_order_of_partitions():
    given = tasks({}, set(), active=(JOIN, OTHER))
    assert given.partitions == (TopicPartition("a", 0), LEFT, RIGHT)
    assert given.active == (OTHER, JOIN, JOIN)


def test_a_withheld_task_stays_a_standby_where_it_was_one():
    given = tasks({}, {LEFT}, standby=(OTHER,), kept=frozenset({JOIN}))
    assert given.standby == {JOIN: (LEFT, RIGHT), OTHER: (TopicPartition("a", 0),)}
    assert given.withheld_as_standby == (JOIN,)
    assert tasks({}, {LEFT}).standby == {}
