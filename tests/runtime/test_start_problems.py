"""What keeps an application from starting or going on, in a sentence that says what to do; it never hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from tests.runtime.instance_process import InstanceProcess
from tests.runtime.local_application import LIMIT_S, Place
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import ConfigError, StateDirectoryInUseError, TopologyMismatchError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.runtime.instance.application import KafkaStreams, State

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

STRING = Serdes.string()


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(broker.bootstrap_servers, spark, tmp_path, unique_name("problems"))


@pytest.fixture(scope="module", autouse=True)
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    """An instance without a broker: it looks for one for half a minute, while the other tests run."""
    instance = InstanceProcess(tmp_path_factory.mktemp("lonely") / "one", "127.0.0.1:9", "nowhere")
    instance.start()
    yield instance
    instance.end()


def passing_on(place: Place) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=STRING, value=STRING).to(place.topic("out"))
    return builder


def counting(place: Place) -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream(place.topic("in"), key=STRING, value=STRING)
    words.group_by(lambda k, v: v).count(store="counts").to_stream().to(place.topic("out"))
    return builder


def ended(streams: KafkaStreams) -> str:
    """The message with which it has stopped."""
    assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
    return str(streams.error)


def test_a_missing_input_topic_is_named_before_anything_is_started(place: Place) -> None:
    place.create("out")
    streams = place.application(passing_on(place))
    with pytest.raises(ConfigError, match=f"{place.topic('in')} does not exist .* create it"):
        streams.start()
    assert streams.state is State.NOT_RUNNING


def test_a_state_directory_that_another_instance_uses_is_refused(place: Place) -> None:
    place.create("in", "out")
    with place.running(passing_on(place)):
        second = place.application(passing_on(place))
        with pytest.raises(StateDirectoryInUseError, match=r"give this instance a state\.dir of its own"):
            second.start()


def test_a_changelog_with_another_number_of_partitions_stops_with_both_numbers(place: Place) -> None:
    place.create("in", "out", partitions=2)
    admin = AdminClient({"bootstrap.servers": place.bootstrap_servers})
    name = f"{place.name}-counts-changelog"
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(60)
    assert until(lambda: len(admin.list_topics(name, 30).topics[name].partitions) == 3)  # brokers learn it a little later
    with pytest.raises(TopologyMismatchError, match=rf"{name} has 3 partitions, expected 2.*tidemill reset"):
        place.application(counting(place)).start()


def make_anew(place: Place, partitions: int) -> None:
    admin = Admin({"bootstrap.servers": place.bootstrap_servers})
    admin.delete_topics([place.topic("in")])
    assert until(lambda: admin.partitions([place.topic("in")])[place.topic("in")] is None)
    time.sleep(0.5)
    place.create("in", partitions=partitions)


def count_a_word(place: Place, streams: KafkaStreams) -> None:
    assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
    place.send("in", [(None, b"a")], partition=1)
    assert place.received("out", 1)


def test_an_input_topic_made_anew_with_fewer_partitions_is_refused_with_both_numbers(place: Place) -> None:
    place.create("in", "out", partitions=2)
    with place.application(counting(place)) as streams:
        count_a_word(place, streams)
    make_anew(place, partitions=1)
    with pytest.raises(TopologyMismatchError, match="2 partitions, expected 1"):
        place.application(counting(place)).start()


def test_an_input_topic_made_anew_under_a_running_application_stops_it_with_a_sentence(place: Place) -> None:
    """Which one depends on whether the group meets the topic while it is gone, as Kafka Streams does (KIP-662), or after."""
    place.create("in", "out", partitions=2)
    with place.application(counting(place), **{"kafka.metadata.max.age.ms": 1_000}) as streams:
        count_a_word(place, streams)
        make_anew(place, partitions=1)
        message = ended(streams)
    assert "2 partitions, expected 1" in message or "a source topic of the topology does not exist: create it" in message


def make_the_committed_offset_unreadable(place: Place, partition: TopicPartition) -> None:
    """Commits far behind the end, as after a topic that was deleted and created again."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap_servers})
    beyond = [ClientPartition(partition.topic, partition.partition, 1_000_000)]
    [done] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(place.name, beyond)]).values()
    done.result(60)


def test_an_offset_of_a_source_that_is_out_of_range_follows_the_policy(place: Place) -> None:
    place.create("in", "out")
    sent = [(b"k", str(number).encode()) for number in range(10)]
    place.send("in", sent)
    with place.running(passing_on(place)):
        assert len(place.received("out", 10)) == 10
    partition = TopicPartition(place.topic("in"), 0)
    make_the_committed_offset_unreadable(place, partition)
    with place.application(passing_on(place), **{"auto.offset.reset": "none"}) as streams:
        assert f"{partition}: the committed offset is out of range" in ended(streams)
    Admin({"bootstrap.servers": place.bootstrap_servers}).delete_records({partition: 5})
    with place.running(passing_on(place), **{"auto.offset.reset": "earliest"}) as streams:
        again = [m.value() for m in place.received("out", 15)]
        assert again[10:] == [b"5", b"6", b"7", b"8", b"9"]
        assert streams.state is State.RUNNING


def test_an_offset_of_a_repartition_topic_that_is_out_of_range_stops_whatever_the_policy(place: Place) -> None:
    place.create("in", "out")
    place.send("in", [(b"k", b"v")])
    partition = TopicPartition(f"{place.name}-counts-repartition", 0)
    with place.running(counting(place)) as streams:
        assert place.received("out", 1)
        [thread] = streams.threads
        thread._offsets.reset([partition], {})  # a consumer's late word on a position that it has left
    make_the_committed_offset_unreadable(place, partition)
    with place.application(counting(place), **{"auto.offset.reset": "earliest"}) as streams:
        message = ended(streams)
    assert f"{partition}: the committed offset is out of range" in message
    assert "Commit an offset that exists" in message


def test_without_a_broker_the_process_ends_with_a_sentence_and_code_2(lonely: InstanceProcess) -> None:
    assert lonely.wait_ended() == 2
    assert "RetriableError" in lonely.log
    assert "check that the brokers at 127.0.0.1:9 run" in lonely.log


def test_an_instance_is_not_started_in_a_python_worker(place: Place) -> None:
    """A module that starts one at its import, and that a worker imports for a function, would start one more in each."""
    place.create("in", "out")
    builder = StreamsBuilder()
    config = {"application.id": "inner", "bootstrap.servers": "none:1", "state.dir": str(place.folder / "inner")}

    def starting(value: str) -> str:
        inner = StreamsBuilder()
        inner.stream("in")
        return KafkaStreams(inner, config).start().state.value + value

    builder.stream(place.topic("in"), key=STRING, value=STRING).map_values(per_record(starting)).to(
        place.topic("out"), value=STRING
    )
    with place.running(builder) as streams:
        place.send("in", [(b"k", b"v")])
        assert "an instance can't be started in a Python worker of Spark" in ended(streams)
