"""Topics, offsets and groups, asked of a real broker; what can't be had is told within the time."""

from __future__ import annotations

import gc
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from tests.kafka.data.holding_proxy import LIST_OFFSETS, HoldingProxy
from tests.kafka.fencing_proxy import FencingProxy
from tests.waiting import until
from tidemill.config.slices import ClientsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import ConfigError, RetriableError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.calls import AdminCalls, result_of
from tidemill.kafka.admin.client import Admin, PartitionState, TopicSpec
from tidemill.kafka.security.clients import ClientRole, data_client_settings, group_client_settings
from tidemill.kafka.security.rights import Operation

pytestmark = pytest.mark.broker

Names = Callable[[str], str]


@pytest.fixture
def admin(bootstrap_servers: str) -> Admin:
    return Admin({"bootstrap.servers": bootstrap_servers}, timeout_s=200)


@pytest.fixture
def topic(admin: Admin, unique_name: Names) -> str:
    """A topic of two partitions."""
    name = unique_name("admin")
    admin.create_topics([TopicSpec(name=name, partitions=2)])
    return name


@pytest.fixture
def transaction(bootstrap_servers: str, unique_name: Names) -> Iterator[Producer]:
    """A producer with an open transaction, aborted at the end if it is still open."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique_name("txn")})
    producer.init_transactions(240)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(240)


def _produce(bootstrap_servers: str, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for _ in range(count):
        producer.produce(topic, b"value", partition=partition)
    assert producer.flush(240) == 0


def test_topics_are_made_with_their_configs_and_have_leaders(admin: Admin, unique_name: Names) -> None:
    name = unique_name("made")
    spec = TopicSpec(name=name, partitions=3, configs={"cleanup.policy": "compact"})
    assert admin.create_topics([spec]) == {name}
    assert admin.describe_topics([name]) == {name: (PartitionState(leader=1, racks=frozenset()),) * 3}
    assert admin.topic_configs(name)["cleanup.policy"] == "compact"


def test_a_topic_that_is_there_is_left_alone_if_its_partitions_are_as_expected(admin: Admin, topic: str) -> None:
    assert admin.create_topics([TopicSpec(name=topic, partitions=2)]) == frozenset()
    with pytest.raises(StopError, match=f"topic {topic} has 2 partitions, expected 3: ask for as many"):
        admin.create_topics([TopicSpec(name=topic, partitions=3)])


def test_a_broker_that_has_not_heard_of_a_new_topic_does_not_make_its_creation_fail(
    admin: Admin, unique_name: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, name, has_leaders = admin.describe_topics, unique_name("admin"), False

    def of_brokers_in_turn(topics: Collection[str], **options: float | None) -> dict[str, tuple[PartitionState, ...] | None]:
        nonlocal has_leaders
        if has_leaders:
            return dict.fromkeys(topics)
        found = described(topics, **options)
        has_leaders = all(state.leader is not None for state in found[name] or ()) and found[name] is not None
        return found

    monkeypatch.setattr(admin, "describe_topics", of_brokers_in_turn)
    assert admin.create_topics([TopicSpec(name=name, partitions=2)]) == {name}


def test_a_topic_that_is_not_there_is_none_and_is_not_made_by_asking(admin: Admin, topic: str) -> None:
    for _ in range(2):
        assert admin.partitions([topic, "no-such-topic"]) == {topic: 2, "no-such-topic": None}


def test_a_topic_that_is_deleted_and_recreated_has_another_id(admin: Admin, topic: str) -> None:
    first = admin.topic_ids([topic, "admin-never-made"])
    assert first.keys() == {topic}
    assert admin.topic_ids([topic]) == first
    admin.delete_topics([topic])
    assert until(lambda: admin.partitions([topic])[topic] is None)
    admin.create_topics([TopicSpec(name=topic, partitions=2)])
    assert admin.topic_ids([topic])[topic] != first[topic]


def test_deleted_topics_are_gone_and_missing_ones_no_error(admin: Admin, topic: str) -> None:
    admin.delete_topics([topic, "no-such-topic"])
    assert until(lambda: admin.partitions([topic]) == {topic: None})  # a broker hears of it a moment after the controller


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (TopicSpec(name="odd", partitions=1, configs={"cleanup.policy": "nonsense"}), "cleanup.policy"),
        (TopicSpec(name="odd", partitions=1, replication_factor=3), "replication factor of 3"),
        (TopicSpec(name="not/legal", partitions=1), "not/legal"),
    ],
)
def test_a_topic_that_can_not_be_made_is_reported_with_the_broker_s_reason(
    admin: Admin, spec: TopicSpec, said: str
) -> None:
    with pytest.raises(StopError) as caught:
        admin.create_topics([spec])
    assert f"creating topics ({spec.name})" in str(caught.value)
    assert said in str(caught.value)


def test_offsets_of_beginning_and_end_follow_what_was_written_and_deleted(
    admin: Admin, topic: str, bootstrap_servers: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    _produce(bootstrap_servers, topic, 0, 10)
    assert admin.end_offsets([first, second]) == {first: 10, second: 0}
    admin.delete_records({first: 4})
    assert admin.beginning_offsets([first, second]) == {first: 4, second: 0}
    assert admin.end_offsets([first]) == {first: 10}
    with pytest.raises(StopError, match="Offset out of range"):
        admin.delete_records({second: 7})


def test_an_open_transaction_ends_the_stable_offsets_but_not_the_end(
    admin: Admin, topic: str, bootstrap_servers: str, transaction: Producer
) -> None:
    partition = TopicPartition(topic, 0)
    _produce(bootstrap_servers, topic, 0, 3)
    transaction.produce(topic, b"open", partition=0)
    transaction.flush(240)
    assert admin.end_offsets([partition]) == {partition: 4}
    assert admin.stable_end_offsets([partition]) == {partition: 3}


def test_committed_offsets_are_those_that_were_committed(admin: Admin, topic: str, bootstrap_servers: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic, "enable.auto.commit": False})
    consumer.commit(offsets=[ClientPartition(topic, 1, 5)], asynchronous=False)
    consumer.close()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.committed_offsets(topic, [first, second]) == {second: 5}
    assert admin.committed_offsets(topic) == {second: 5}
    assert admin.committed_offsets(topic, []) == {}
    assert admin.committed_offsets("no-such-group", [first]) == {}


def test_committed_offsets_wait_for_an_open_transaction(
    admin: Admin, topic: str, bootstrap_servers: str, transaction: Producer
) -> None:
    partition = TopicPartition(topic, 0)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic})
    metadata = consumer.consumer_group_metadata()
    transaction.send_offsets_to_transaction([ClientPartition(topic, 0, 7)], metadata, 240)
    with pytest.raises(RetriableError, match=rf"committed offsets of group {topic}: not done after 1\.5 s"):
        admin.committed_offsets(topic, [partition], timeout_s=1.5)
    commit = threading.Timer(1, lambda: transaction.commit_transaction(240))
    commit.start()
    assert admin.committed_offsets(topic, [partition]) == {partition: 7}
    commit.join()
    transaction.begin_transaction()
    consumer.close()


def test_offsets_of_a_topic_that_is_not_there_are_reported_after_the_time(admin: Admin) -> None:
    for limit_s in (1, 10, 60):  # on a busy machine a second may not be enough for the broker's answer
        with pytest.raises(RetriableError) as told:
            admin.end_offsets([TopicPartition("nowhere", 0)], timeout_s=limit_s)
        if "Local: Timed out" not in str(told.value):
            break
    said = rf"fetching the end offsets \(nowhere-0\): not done after {limit_s} s: .*(Unknown topic|No leaders)"
    assert re.match(said, str(told.value))


def test_waiting_for_leaders_names_the_topic_that_is_not_there(admin: Admin, topic: str) -> None:
    for limit_s in (1, 10, 60):
        with pytest.raises(RetriableError) as told:
            admin.wait_for_leaders([topic, "nowhere"], timeout_s=limit_s)
        if "no leader" in str(told.value):
            break
    assert f"no leader after {limit_s} s for nowhere (not there)" in str(told.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.partitions(["x"], timeout_s=1.5),
        lambda admin: admin.create_topics([TopicSpec(name="x", partitions=1)], timeout_s=1.5),
        lambda admin: admin.end_offsets([TopicPartition("x", 0)], timeout_s=1.5),
        lambda admin: admin.committed_offsets("g", timeout_s=1.5),
        lambda admin: admin.delete_records({TopicPartition("x", 0): 1}, timeout_s=1.5),
    ],
)
def test_without_a_broker_every_call_ends_in_time_and_says_where_it_looked(call: Callable[[Admin], object]) -> None:
    began = time.monotonic()
    with pytest.raises(RetriableError, match=r"not done after 1\.5 s: .*check that the brokers at 127\.0\.0\.1:9 run"):
        call(Admin({"bootstrap.servers": "127.0.0.1:9"}))
    assert time.monotonic() - began < 30


def test_settings_that_librdkafka_refuses_are_reported() -> None:
    with pytest.raises(ConfigError, match=r"no admin client can be made of the settings: .*nonsense"):
        Admin({"bootstrap.servers": "127.0.0.1:9", "nonsense": "x"})


def test_the_client_ends_with_its_last_user_not_when_garbage_is_collected(bootstrap_servers: str) -> None:
    """Its threads have connections to brokers. Answers that are errors have tracebacks, with all who called."""
    gc.disable()
    try:
        admin = Admin({"bootstrap.servers": bootstrap_servers})
        client = weakref.ref(admin._calls.client)
        assert client() is not None
        assert admin.partitions(["not-there"]) == {"not-there": None}
        with pytest.raises(StopError, match="not a name"):
            admin.create_topics([TopicSpec(name="not a name", partitions=1)])
        del admin
        assert client() is None
    finally:
        gc.enable()


def test_a_closed_client_has_no_threads_and_says_so() -> None:
    admin = Admin({"bootstrap.servers": "127.0.0.1:1"})
    client = weakref.ref(admin._calls.client)
    admin.close()
    admin.close()
    assert client() is None
    for call in (admin.topics, lambda: admin.partitions(["t"]), lambda: admin.create_topics([TopicSpec(name="t", partitions=1)])):
        with pytest.raises(StopError, match="the admin client was called after it had been closed"):
            call()


def test_a_client_that_is_closed_while_it_is_replaced_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, closing = AdminCalls({"bootstrap.servers": "127.0.0.1:1"}), list[threading.Thread]()
    new_client = calls._new_client

    def closed_meanwhile() -> AdminClient:
        closing.append(threading.Thread(target=calls.close))
        closing[0].start()
        closing[0].join(0.2)  # it waits until the client is replaced; else it is done by now
        return new_client()

    monkeypatch.setattr(calls, "_new_client", closed_meanwhile)
    calls.replace(calls.client)
    closing[0].join(30)
    with pytest.raises(StopError, match="after it had been closed"):
        calls.client.list_topics(timeout=1)


@pytest.mark.fault
def test_calls_go_on_when_the_broker_comes_back(private_broker: Callable[..., EmbeddedBroker]) -> None:
    broker = private_broker()
    admin = Admin({"bootstrap.servers": broker.bootstrap_servers}, timeout_s=200)
    admin.create_topics([TopicSpec(name="kept", partitions=2)])
    broker.kill()
    revive = threading.Timer(2, broker.start)
    revive.start()
    assert admin.end_offsets([TopicPartition("kept", 1)]) == {TopicPartition("kept", 1): 0}
    revive.join()
    assert admin.partitions(["kept"]) == {"kept": 2}


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} username="root" password="r" user_root="r" user_alice="a";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:ANONYMOUS",
}


def test_calls_go_on_after_brokers_have_said_that_there_are_no_brokers(topic: str, bootstrap_servers: str) -> None:
    """As a broker does that was paused, until its controller has unfenced it."""
    proxy = FencingProxy(bootstrap_servers)
    admin = Admin({"bootstrap.servers": proxy.bootstrap_servers}, timeout_s=10)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    calls: list[Callable[[], object]] = [
        lambda: admin.partitions([topic], timeout_s=3),
        lambda: admin.end_offsets(partitions, timeout_s=3),
        lambda: admin.create_topics([TopicSpec(name=topic, partitions=2)], timeout_s=3),
        lambda: admin.topics(timeout_s=3),
        lambda: admin.delete_records({partitions[0]: 0}, timeout_s=3),
    ]
    try:
        for call in calls:
            assert until(lambda call=call: _is_answered(call))
        proxy.is_fenced = True
        with ThreadPoolExecutor(len(calls)) as threads:
            assert not all(threads.map(_is_answered, calls))
        proxy.is_fenced = False
        assert until(lambda: _is_answered(lambda: admin.create_topics([TopicSpec(name=topic, partitions=2)])))
        assert all(until(lambda call=call: _is_answered(call)) for call in calls)
    finally:
        proxy.close()


def _is_answered(call: Callable[[], object]) -> bool:
    """True if the call is answered; no other error is allowed than one that passes."""
    try:
        call()
    except RetriableError:
        return False
    return True


@pytest.mark.parametrize("which", ["end_offsets", "stable_end_offsets", "beginning_offsets"])
def test_offsets_are_asked_for_again_if_their_leader_does_not_answer(topic: str, bootstrap_servers: str, which: str) -> None:
    """The client gives no error for the partitions of a leader whose connection breaks, but offsets of -1001."""
    proxy = HoldingProxy(bootstrap_servers)
    admin = Admin({"bootstrap.servers": proxy.bootstrap_servers})
    partitions = dict.fromkeys([TopicPartition(topic, 0), TopicPartition(topic, 1)], 0)
    try:
        for times in range(3):
            proxy.hold(LIST_OFFSETS)
            assert getattr(admin, which)(partitions) == partitions, f"at try {times}"
    finally:
        proxy.close()


def test_a_broker_that_leaves_the_cluster_while_it_is_asked_ends_no_call(bootstrap_servers: str) -> None:
    answers: list[Future[str]] = [Future(), Future()]
    answers[0].set_exception(KafkaException(KafkaError(KafkaError._DESTROY_BROKER)))
    answers[1].set_result("of another broker")
    calls = AdminCalls({"bootstrap.servers": bootstrap_servers})
    found = calls.one("asking", lambda _: answers.pop(0), 240, Operation.DESCRIBE, result_of, about="")
    assert found == "of another broker"


def test_what_the_client_says_in_a_call_is_not_forgotten_over_that_of_another_thread(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = AdminCalls({"bootstrap.servers": bootstrap_servers})
    at_once: Future[str] = Future()
    at_once.set_result("at once")
    has_waited = threading.Event()

    def wait_meanwhile(left: Collection[Future[str]], timeout: float) -> object:
        if not has_waited.is_set():
            has_waited.set()
            calls._remember(KafkaError(KafkaError._TRANSPORT, "refused by broker 7"))
            calls._remember(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all are down"))
            with ThreadPoolExecutor(1) as other:
                call = other.submit(calls.one, "asking", lambda _: at_once, 30, Operation.DESCRIBE, result_of, about="")
                assert call.result(30) == "at once"
        return wait(left, timeout=timeout)

    monkeypatch.setattr("tidemill.kafka.admin.calls.wait", wait_meanwhile)
    with pytest.raises(RetriableError, match=r"not done after 0.3 s: .*refused by broker 7;"):
        calls.one("asking", lambda _: Future(), 0.3, Operation.DESCRIBE, result_of, about="")


def test_a_call_is_tried_again_soon_then_with_more_time(bootstrap_servers: str) -> None:
    limits: list[float] = []

    def submit(limit_s: float) -> Future[str]:
        limits.append(limit_s)
        answer: Future[str] = Future()
        if len(limits) < 3:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        else:
            answer.set_result("of the broker that does the work now")
        return answer

    calls = AdminCalls({"bootstrap.servers": bootstrap_servers})
    found = calls.one("asking", submit, 240, Operation.DESCRIBE, result_of, about="")
    assert (found, limits) == ("of the broker that does the work now", [5, 10, 20])


def test_logins_and_rights(private_broker: Callable[..., EmbeddedBroker]) -> None:
    broker = private_broker(settings=SECURED)

    def config(user: str, password: str) -> ClientsConfig:
        return StreamsConfig.read_slice(
            ClientsConfig,
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": f'{PLAIN} username="{user}" password="{password}";',
            },
        )

    def admin(user: str, password: str) -> Admin:
        return Admin(data_client_settings(config(user, password), ClientRole.ADMIN), timeout_s=60)

    assert admin("root", "r").create_topics([TopicSpec(name="secret", partitions=1)]) == {"secret"}
    group_client = KafkaAdminClient(**group_client_settings(config("root", "r")))
    assert "secret" in group_client.list_topics()
    group_client.close()
    with pytest.raises(StopError, match=r"creating topics: User:alice lacks Create on topic 'mine'\. Grant it.*kafka-acls"):
        admin("alice", "a").create_topics([TopicSpec(name="mine", partitions=1)])
    with pytest.raises(StopError, match="lacks Describe on group 'group'"):
        admin("alice", "a").committed_offsets("group", [TopicPartition("secret", 0)])
    with pytest.raises(ConfigError, match=r"the brokers refuse the login of user 'alice'.*kafka\.sasl\.jaas\.config") as caught:
        admin("alice", "hush").partitions(["secret"])
    assert "hush" not in str(caught.value)
