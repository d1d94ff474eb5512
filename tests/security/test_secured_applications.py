"""A real application, exactly once and with its group, over TLS, logins and ACLs; and every way to be kept out, in a sentence.

``make test-security`` runs these on brokers of their own and prints what they have shown.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.security.certificates import Authority
from tests.security.secured import LIMIT_S, LINES, PASSWORD, Right, Secured, words_of
from tests.waiting import until
from tidemill.config.slices import ClientsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import PartitionConsumer
from tidemill.kafka.data.producer import CommitOutcome, FlushingProducer, TransactionalProducer
from tidemill.kafka.group.client import GroupClient
from tidemill.kafka.group.coordinator import GroupCoordinator, MemberIdRequiredError
from tidemill.kafka.group.metadata import Membership
from tidemill.kafka.group.protocol import decode_assignment
from tidemill.kafka.security.clients import ClientRole, data_client_settings, group_client_settings
from tidemill.membership import wire
from tidemill.membership.wire.assignment import AssignorError
from tidemill.runtime.instance.application import State
from tidemill.task.raw_records import RecordColumns

pytestmark = [pytest.mark.security, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

STORE_PASSWORD = "marked-secret-of-stores"
_numbers = count(1)
MODULES = {"PLAIN": "plain.PlainLoginModule"}
Shown = Callable[[str], None]


def _login(mechanism: str, authority: Authority | None, password: str = PASSWORD) -> dict[str, str]:
    module = MODULES.get(mechanism, "scram.ScramLoginModule")
    settings = {
        "security.protocol": "SASL_PLAINTEXT" if authority is None else "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="app" password="{password}";',
    }
    return settings if authority is None else {**settings, "ssl.truststore.location": str(authority.pem)}


@pytest.fixture
def place(with_logins: EmbeddedBroker, spark: SparkSession, tmp_path: Path, authority: Authority) -> Secured:
    login = _login("SCRAM-SHA-256", authority)
    return Secured(with_logins, spark, tmp_path, f"app-{next(_numbers)}", "User:app", login)


def _counts_words(place: Secured) -> None:
    place.create()
    place.grant(place.all_rights())
    place.send()
    with place.application() as streams:
        assert streams.wait(State.RUNNING, State.ERROR, timeout=LIMIT_S) is State.RUNNING, streams.error
        assert place.counts(words_of(LINES)) == dict(words_of(LINES))
        (thread,) = streams.threads
        assert streams.state is State.RUNNING
        assert thread.is_running  # a member of its group


# --- every way in ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_words_are_counted_exactly_once_over_tls_with_a_login(
    mechanism: str, with_logins: EmbeddedBroker, spark: SparkSession, tmp_path: Path, authority: Authority, shown: Shown
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "password").write_text(PASSWORD + "\n")
    login = _login(mechanism, authority, f"${{directory:{tmp_path}/secrets:password}}")
    _counts_words(Secured(with_logins, spark, tmp_path, f"app-{next(_numbers)}", "User:app", login))
    shown(f"SASL_SSL with {mechanism}, the password from a file, ACLs: a WordCount exactly once, a member of its group")


@pytest.mark.parametrize("kind", ["PEM", "PEM with an encrypted key", "PKCS12"])
def test_words_are_counted_exactly_once_with_certificates_on_both_sides(
    kind: str, with_certificates: EmbeddedBroker, spark: SparkSession, tmp_path: Path, authority: Authority, shown: Shown
) -> None:
    own = authority.issue(f"app {next(_numbers)}")
    login = {"security.protocol": "SSL"}
    if kind == "PKCS12":
        login |= {"ssl.truststore.location": str(authority.pkcs12(STORE_PASSWORD)), "ssl.truststore.type": "PKCS12"}
        login |= {"ssl.keystore.location": str(own.pkcs12(STORE_PASSWORD)), "ssl.keystore.type": "PKCS12"}
        login |= {"ssl.truststore.password": STORE_PASSWORD, "ssl.keystore.password": STORE_PASSWORD}
    else:
        locked = STORE_PASSWORD if "encrypted" in kind else ""
        login |= {"ssl.truststore.location": str(authority.pem), "ssl.keystore.location": str(own.pem(locked))}
        login |= {"ssl.key.password": locked} if locked else {}
    name = f"app-{next(_numbers)}"
    _counts_words(Secured(with_certificates, spark, tmp_path, name, f"User:CN={own.name}", login))
    shown(f"mutual TLS with {kind}, ACLs for the certificate's name: a WordCount exactly once")


def test_words_are_counted_exactly_once_with_a_login_alone(
    with_passwords_only: EmbeddedBroker, spark: SparkSession, tmp_path: Path, shown: Shown
) -> None:
    place = Secured(with_passwords_only, spark, tmp_path, f"app-{next(_numbers)}", "User:app", _login("SCRAM-SHA-256", None))
    place.create()
    place.send()
    with place.application():
        assert place.counts(words_of(LINES)) == dict(words_of(LINES))
        for command in ("describe", "members"):
            assert f"{place.name}-" in _seen_by_command(place, command)
    shown("SASL_PLAINTEXT with SCRAM-SHA-256: a WordCount exactly once, its group seen by `tidemill group`")


def _seen_by_command(place: Secured, command: str) -> str:
    settings = place.folder / "settings.toml"
    settings.write_text("".join(f"kafka.{name} = '''{value}'''\n" for name, value in place.login.items()))
    tidemill = str(Path(sys.executable).with_name("tidemill"))
    brokers = ["--bootstrap-server", place.broker.bootstrap_servers, "--group", place.name, "--config", str(settings)]
    done = subprocess.run([tidemill, "group", command, *brokers], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- every right that may be missing -----------------------------------------------------------------------------------------


def _lacking(place: Secured, *missing: Right, create: bool = True) -> str:
    """What an application says that has all rights but these."""
    if create:
        place.create()
    place.grant(place.all_rights() - set(missing))
    place.send()
    streams = place.application()
    said = place.run_until(streams, State.NOT_RUNNING)  # which it never gets to
    streams.close()
    assert said, "it ran without that right"
    assert place.login["sasl.jaas.config"] not in said
    assert PASSWORD not in said
    return said


def _own(place: Secured, operation: str) -> Right:
    return ("--topic", f"{place.name}-", "prefixed", operation)


def test_no_read_on_the_input(place: Secured, shown: Shown) -> None:
    said = _lacking(place, ("--topic", place.topic("in"), "literal", "Read"))
    assert f"User:app lacks Read on topic '{place.topic('in')}'" in said
    assert f"--operation Read --topic {place.topic('in')}" in said
    shown(said)


def test_no_write_on_the_output(place: Secured, shown: Shown) -> None:
    said = _lacking(place, ("--topic", place.topic("out"), "literal", "Write"))
    assert f"User:app lacks Write on topic '{place.topic('out')}'" in said
    assert f"--operation Write --topic {place.topic('out')}" in said
    shown(said)


def test_no_create_of_internal_topics(place: Secured, shown: Shown) -> None:
    said = _lacking(place, _own(place, "Create"))
    assert f"Create on topic '{place.name}-counts-changelog'" in said
    assert f"Create on topic '{place.name}-counts-repartition'" in said
    shown(said)


def test_no_right_at_all_on_internal_topics(place: Secured, shown: Shown) -> None:
    said = _lacking(place, *(_own(place, operation) for operation in ("Create", "Read", "Write", "Delete")))
    assert f"Read on topic '{place.name}-counts-changelog'" in said
    assert f"Write on topic '{place.name}-counts-repartition'" in said
    shown(said)


def test_no_read_on_the_group(place: Secured, shown: Shown) -> None:
    said = _lacking(place, ("--group", place.name, "literal", "Read"))
    assert f"User:app lacks Read on group '{place.name}'" in said
    assert f"--operation Read --group {place.name}" in said
    shown(said)


def test_no_write_on_the_transactional_id(place: Secured, shown: Shown) -> None:
    said = _lacking(place, ("--transactional-id", f"{place.name}-", "prefixed", "Write"))
    assert f"User:app lacks Write on transactional id '{place.name}-" in said
    assert f"--operation Write --transactional-id {place.name}- --resource-pattern-type prefixed" in said
    shown(said)


@pytest.mark.parametrize(("end", "operation"), [("in", "Read"), ("out", "Write")])
def test_a_right_that_is_withdrawn_from_a_running_application(place: Secured, end: str, operation: str, shown: Shown) -> None:
    place.create()
    place.grant(place.all_rights())
    place.send()
    with place.application() as streams:
        assert place.counts(words_of(LINES)) == dict(words_of(LINES)), streams.error
        place.withdraw(("--topic", place.topic(end), "literal", operation))
        place.send(["the tide"])
        assert until(lambda: streams.state is State.ERROR), "it neither goes on nor ends"
        said = str(streams.error)
    # A transaction that is refused before a reader is hears no topic's name: where brokers do not say it in time, all are named.
    assert "User:app lacks " in said
    assert f"{operation} on topic '{place.topic(end)}'" in said
    assert "Traceback" not in said
    shown(f"while it runs: {said}")


def test_following_the_advice_again_and_again_makes_an_application_run(place: Secured, shown: Shown) -> None:
    place.create()
    place.send()
    said, rounds, granted = "", 0, 0
    while rounds < 10:
        streams = place.application()
        said = place.run_until(streams, State.RUNNING)
        found = place.counts(words_of(LINES), lambda streams=streams: streams.state is State.ERROR) if not said else {}
        if not said and streams.state is State.ERROR:
            said = str(streams.error)
        streams.close()
        if not said:
            break
        given = place.follow(said)
        assert given, said
        rounds, granted = rounds + 1, granted + given
    assert found == dict(words_of(LINES)), said
    shown(f"from no right at all: {rounds} errors and their kafka-acls commands, {granted} rights, and the words are counted")


def test_at_least_once_needs_no_right_on_the_cluster(place: Secured, shown: Shown) -> None:
    place.create()
    place.grant(place.all_rights() - {("--transactional-id", f"{place.name}-", "prefixed", "Write")})
    place.send()
    with place.application(**{"processing.guarantee": "at_least_once", "commit.interval.ms": 100}) as streams:
        assert place.counts(words_of(LINES)) == dict(words_of(LINES)), streams.error
    shown("at_least_once: neither IdempotentWrite on the cluster nor a transactional id is needed beside Write on its topics")


def test_a_producer_names_the_right_that_it_lacks_among_several_topics(place: Secured, shown: Shown) -> None:
    place.create("in", "out", "other")
    config = place.application().config
    settings = data_client_settings(config.slice(ClientsConfig), ClientRole.PRODUCER)
    idempotent = FlushingProducer(settings, timeout_ms=20_000)
    with pytest.raises(StopError) as refused:  # not one topic that it may write to
        _write(idempotent, place.topic("out"))
    said = str(refused.value)
    shown(said)
    assert "IdempotentWrite on the cluster" in said or f"Write on topic '{place.topic('out')}'" in said
    own = TransactionalProducer(settings, transactional_id=f"{place.name}-1", timeout_ms=20_000)
    with pytest.raises(StopError, match="lacks Write on transactional id"):
        own.init()
    place.grant([("--transactional-id", f"{place.name}-", "prefixed", "Write")])
    place.grant([("--topic", place.topic("out"), "literal", "Write")])
    own.init()
    with pytest.raises(StopError) as refused:
        _write(own, place.topic("out"), place.topic("other"))
    assert f"User:app lacks Write on topic '{place.topic('other')}'" in str(refused.value)
    assert f"topic '{place.topic('out')}'" not in str(refused.value)
    shown(str(refused.value))


def _write(producer: FlushingProducer | TransactionalProducer, *topics: str) -> None:
    """Until it is refused: at times only the second refusal has its reason."""
    for _ in range(3):
        for topic in topics:
            producer.write(topic, RecordColumns([b"key"], [b"value"], [0]))
        if producer.commit() is not CommitOutcome.COMMITTED and isinstance(producer.failure, StopError):
            raise producer.failure


# --- every way to be kept out --------------------------------------------------------------------------------------------------


def _refused(place: Secured, **settings: object) -> str:
    streams = place.application(**settings)
    began = time.monotonic()
    said = place.run_until(streams, State.RUNNING)
    assert time.monotonic() - began < LIMIT_S
    assert said, "it was let in"
    assert "marked-secret" not in said
    return said


def test_a_wrong_password_is_one_sentence_at_the_start(place: Secured, authority: Authority, shown: Shown) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        wrong = _login(mechanism, authority, "marked-secret-that-is-wrong")
        said = _refused(place, **{f"kafka.{name}": value for name, value in wrong.items()})
        assert "the brokers refuse the login of user 'app'" in said
        assert "kafka.sasl.jaas.config" in said
        shown(said)


def test_a_consumer_that_is_not_let_in_any_more_says_so(with_passwords_only: EmbeddedBroker, shown: Shown) -> None:
    """Else it would wait, and nothing would say why."""
    consumer = PartitionConsumer(
        {
            "bootstrap.servers": with_passwords_only.bootstrap_servers, "group.id": "none", "log_level": 0,
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "app",
            "sasl.password": "an-old-one",
        }
    )  # fmt: skip
    consumer.place({TopicPartition("lines", 0): 0})
    with pytest.raises(StopError, match=r"reading lines: the brokers refuse the login of user 'app'") as told:
        until(lambda: consumer.read(10, 0.1))
    consumer.close()
    assert "an-old-one" not in str(told.value)
    shown(str(told.value))


def test_a_certificate_of_nobody_trusted_is_one_sentence_at_the_start(place: Secured, tmp_path: Path, shown: Shown) -> None:
    said = _refused(place, **{"kafka.ssl.truststore.location": str(Authority(tmp_path, "stranger").pem)})
    assert "signed by no one who is trusted here" in said
    assert "kafka.ssl.truststore.location" in said
    shown(said)


def test_a_certificate_for_another_host_is_one_sentence_at_the_start(place: Secured, shown: Shown) -> None:
    servers = f"localhost:{place.broker.port}"  # the certificate is for 127.0.0.1
    said = _refused(place, **{"bootstrap.servers": servers})
    assert "certificate is not for the host" in said
    shown(said)


def test_a_client_without_the_certificate_that_is_required(
    with_certificates: EmbeddedBroker, spark: SparkSession, tmp_path: Path, authority: Authority, shown: Shown
) -> None:
    login = {"security.protocol": "SSL", "ssl.truststore.location": str(authority.pem)}
    place = Secured(with_certificates, spark, tmp_path, f"app-{next(_numbers)}", "User:ANONYMOUS", login)
    said = _refused(place)
    assert "kafka.ssl.keystore.location" in said
    shown(said)


def test_a_client_that_does_not_speak_tls_is_told_so(place: Secured, shown: Shown) -> None:
    said = _refused(place, **{"kafka.security.protocol": "SASL_PLAINTEXT"})
    assert "security.protocol" in said
    shown(said)


# --- a member that sends garbage -------------------------------------------------------------------------------------------


def test_a_member_that_sends_garbage_is_left_out_and_the_others_go_on(place: Secured, shown: Shown) -> None:
    place.create()
    place.grant(place.all_rights())
    place.send()
    with place.application() as streams:
        assert place.counts(words_of(LINES)) == dict(words_of(LINES)), streams.error
        before = streams.threads[0].tasks.keys()
        # Not bytes at which the broker itself fails: of 40 with all bits set its coordinator answers everyone's JoinGroup with
        # an unknown error for as long as that member is there, and no leader is ever asked.
        for said in (b"", wire_garbage()):
            answer = _join_with(place, streams.config, said)
            if answer.user_data:
                assert wire.decode_assignment(answer.user_data).error_code == AssignorError.ASSIGNMENT_ERROR
            assert answer.partitions == ()
        assert until(lambda: streams.state is State.RUNNING and streams.threads[0].tasks.keys() == before)
        place.send(LINES)
        assert place.counts(words_of(LINES + LINES)) == dict(words_of(LINES + LINES)), streams.error
        assert streams.state is State.RUNNING
    shown("a member whose login may join has joined twice with garbage: it got an error, the application went on")


def wire_garbage() -> bytes:
    """A good subscription of the consumer protocol whose user data are garbage, and which claims what others have."""
    from tidemill.kafka.group.protocol import MemberSubscription, encode_subscription

    said = MemberSubscription(member_id="", topics=("no topic's name!",), user_data=bytes(64), generation=1 << 30)
    return encode_subscription(said)


def _join_with(place: Secured, config: StreamsConfig, said: bytes) -> object:
    client = GroupClient(
        group_client_settings(config.slice(ClientsConfig)), group_id=place.name, client_id="garbage",
        report_unreachable_after_ms=60_000,
        report=lambda error: None,
    )  # fmt: skip
    client.open()
    try:
        coordinator = GroupCoordinator(
            client, group_id=place.name, group_instance_id=None, session_timeout_ms=6_000, rebalance_timeout_ms=60_000
        )
        member_id = ""
        while True:
            try:
                joined = coordinator.join(member_id, said, "sends garbage")
                break
            except MemberIdRequiredError as answer:
                member_id = answer.member_id
        assert not joined.is_leader
        member = Membership(generation=joined.generation, member_id=joined.member_id)
        answer = coordinator.sync(member, {})
        coordinator.leave(member, "has sent its garbage")
        return decode_assignment(answer)
    finally:
        client.close()
