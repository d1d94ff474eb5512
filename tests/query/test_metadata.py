"""Who has what, from the maps that the leader sent."""

from __future__ import annotations

from tests.query.stand_ins import COUNTS, TOPIC, host_map, store_info
from tidemill.ids import TopicPartition
from tidemill.membership.wire import HostInfo
from tidemill.query.metadata import HostMap, who_has_it

ONE, TWO = HostInfo("one", 1), HostInfo("two", 2)


def test_a_partitions_owner_and_standbys_are_found() -> None:
    found = host_map({ONE: (0, 2), TWO: (1,)}, {TWO: (0,), ONE: (1,)}).owners(COUNTS, 0)
    assert (found.active_host, found.standby_hosts, found.partition) == (ONE, (TWO,), 0)
    assert host_map({ONE: (0,)}).owners(COUNTS, 1).active_host is None


def test_partitions_of_another_sub_topologys_topics_are_nothing_of_this_store() -> None:
    hosts = HostMap(active={ONE: (TopicPartition("elsewhere", 0),)})
    assert hosts.owners(COUNTS, 0).active_host is None


def test_every_instance_is_listed_with_its_stores_and_partitions() -> None:
    other = store_info("other", source_topics=("elsewhere",))
    one, two = host_map({ONE: (0,)}, {TWO: (0,)}).clients([COUNTS, other])
    assert (one.host, one.state_store_names, one.topic_partitions) == (ONE, ("counts",), (TopicPartition(TOPIC, 0),))
    assert (one.standby_state_store_names, one.standby_topic_partitions) == ((), ())
    assert (two.host, two.state_store_names, two.standby_state_store_names) == (TWO, (), ("counts",))


def test_people_are_told_where_to_ask() -> None:
    hosts = host_map({ONE: (0,)}, {TWO: (0,)})
    assert who_has_it(hosts.owners(COUNTS, 0), TWO) == "it is assigned to one:1 (standbys: two:2)"
    assert who_has_it(hosts.owners(COUNTS, 0), ONE) == "it is assigned to this instance (standbys: two:2)"
    assert who_has_it(hosts.owners(COUNTS, 1), ONE) == "it is assigned to no instance with an application.server now"
