"""The settings: names, defaults, bounds, contradictions, and that no credential is ever shown."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from tidemill import KafkaStreams, StreamsBuilder
from tidemill.config.secrets import SPARK_REDACTED, has_credentials, is_secret, shown
from tidemill.config.streams_config import StreamsConfig, setting_table
from tidemill.config.texts import load_toml, parse_assignments
from tidemill.config.values import (
    NamedHandler,
    OffsetReset,
    ProcessingGuarantee,
    StoreFormat,
    StoreSuppliers,
)
from tidemill.errors import ConfigError

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


def _of(**settings: object) -> StreamsConfig:
    """A valid config with these settings, given with double underscores for dots."""
    return StreamsConfig.of({**NEEDED, **{name.replace("__", "."): value for name, value in settings.items()}})


def test_the_defaults_are_kafka_streams_but_exactly_once() -> None:
    config = StreamsConfig.of(NEEDED)
    assert config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    assert config.auto_offset_reset is OffsetReset.EARLIEST
    assert config.deserialization_exception_handler is NamedHandler.FAIL
    numbers = {
        "num_stream_threads": 1, "session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000,
        "max_poll_interval_ms": 300_000, "num_standby_replicas": 0, "acceptable_recovery_lag": 10_000,
        "max_warmup_replicas": 2, "probing_rebalance_interval_ms": 600_000, "max_task_idle_ms": 0,
        "state_cleanup_delay_ms": 600_000, "replication_factor": -1,
        "transaction_timeout_ms": 10_000, "repartition_purge_interval_ms": 30_000,
        "windowstore_changelog_additional_retention_ms": 86_400_000,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in numbers} == numbers
    assert (config.group_instance_id, config.default_key_serde, config.dead_letter_topic) == (None, None, None)
    assert (config.state_dir, config.topology_optimization, dict(config.kafka)) == ("/tmp/kafka-streams", (), {})
    assert config.presum is True


@pytest.mark.parametrize("what", ["deserialization", "production"])
@pytest.mark.parametrize("old_first", [True, False])
def test_a_new_name_wins_over_the_old_one_wherever_it_is_given(what: str, old_first: bool) -> None:
    new, old = f"{what}.exception.handler", f"default.{what}.exception.handler"
    given = {old: "fail", new: "continue"} if old_first else {new: "continue", old: "fail"}
    config = StreamsConfig.of({**NEEDED, **given})
    assert getattr(config, f"{what}_exception_handler") is NamedHandler.CONTINUE
    assert config.ignored == (old,)
    only_old = StreamsConfig.of({**NEEDED, old: "continue"})
    assert getattr(only_old, f"{what}_exception_handler") is NamedHandler.CONTINUE
    assert only_old.ignored == ()
    with pytest.raises(ConfigError, match=f"{old} is 'perhaps'"):
        StreamsConfig.of({**NEEDED, new: "continue", old: "perhaps"})


def test_a_streams_config_is_given_alone() -> None:
    config = StreamsConfig.of(NEEDED)
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    assert KafkaStreams(builder, config).config is config
    for made in (StreamsConfig.of, lambda *given, **settings: KafkaStreams(builder, *given, **settings)):
        with pytest.raises(ConfigError, match="num_stream_threads is given besides a StreamsConfig, which has all settings"):
            made(config, num_stream_threads=2)


@pytest.mark.parametrize("what", ["deserialization", "processing", "production"])
def test_each_exception_handler_may_be_a_function(what: str) -> None:
    name = f"{what}.exception.handler"
    for handler in (print, "module:function"):
        assert getattr(StreamsConfig.of({**NEEDED, name: handler}), f"{what}_exception_handler") == handler
    with pytest.raises(ConfigError, match=f"{name} is <class 'int'>, expected fail or continue or dead-letter, a function, or"):
        StreamsConfig.of({**NEEDED, name: int})


def test_a_handler_as_a_class_of_java_s_form_is_answered_with_its_method() -> None:
    class Skips:
        def handle(self, context: object, record: object, error: Exception) -> str:
            return "continue"

    for given in (Skips, Skips()):
        with pytest.raises(ConfigError, match=r"or module:function; give its method, Skips\(\)\.handle$"):
            StreamsConfig.of({**NEEDED, "processing.exception.handler": given})
    assert callable(StreamsConfig.of({**NEEDED, "processing.exception.handler": Skips().handle}).processing_exception_handler)


@pytest.mark.parametrize("name", ["state.dir", "task.assignor.class", "errors.dead.letter.queue.topic.name"])
def test_an_empty_text_is_no_value_of_a_setting_that_needs_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(name)} is '', expected the"):
        StreamsConfig.of({**NEEDED, name: "", "processing.exception.handler": "continue"})


@pytest.mark.parametrize(("guarantee", "interval_ms"), [("exactly_once_v2", 50), ("at_least_once", 30_000)])
def test_the_commit_interval_follows_the_guarantee_unless_given(guarantee: str, interval_ms: int) -> None:
    assert _of(processing__guarantee=guarantee).commit_interval_ms == interval_ms
    assert _of(processing__guarantee=guarantee, commit__interval__ms=7).commit_interval_ms == 7


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("num.stream.threads", "4", "num_stream_threads", 4),
        ("tidemill.presum", "FALSE", "presum", False),
        ("state.dir", " /var/x ", "state_dir", "/var/x"),
        ("rack.aware.assignment.tags", "", "rack_aware_assignment_tags", ()),
        ("topology.optimization", "none", "topology_optimization", ()),
        (
            "dsl.store.suppliers.class", "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
            "dsl_store_suppliers_class", StoreSuppliers.IN_MEMORY,
        ),
        ("dsl.store.suppliers.class", "RocksDBDslStoreSuppliers", "dsl_store_suppliers_class", StoreSuppliers.PERSISTENT),
        ("dsl.store.format", "headers", "dsl_store_format", StoreFormat.HEADERS),
        (
            "topology.optimization", "merge.repartition.topics,reuse.ktable.source.topics", "topology_optimization",
            ("reuse.ktable.source.topics", "merge.repartition.topics"),
        ),
        ("auto.offset.reset", "latest", "auto_offset_reset", OffsetReset.LATEST),
        ("application.server", "host:8080", "application_server", "host:8080"),
        ("bootstrap.servers", "a:1, [::1]:9092", "bootstrap_servers", "a:1,[::1]:9092"),
        ("bootstrap.servers", "PLAINTEXT://a:1,sasl_ssl://b:2", "bootstrap_servers", "PLAINTEXT://a:1,sasl_ssl://b:2"),
        (
            "default.deserialization.exception.handler",
            "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler",
            "deserialization_exception_handler", NamedHandler.CONTINUE,
        ),
        (
            "deserialization.exception.handler", "continue",
            "deserialization_exception_handler", NamedHandler.CONTINUE,
        ),
        ("default.key.serde", "string", "default_key_serde", "string"),
    ],
)  # fmt: skip
def test_text_is_read_by_the_setting_s_type(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(StreamsConfig.of({**NEEDED, name: text}), attribute) == value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num.stream.threads", "two", "num.stream.threads is 'two', expected a whole number from 1 on"),
        ("num.stream.threads", 0, "num.stream.threads is 0, expected a whole number from 1 on"),
        ("num.stream.threads", True, "num.stream.threads is True, expected a whole number"),
        ("num.stream.threads", 1.5, "num.stream.threads is 1.5, expected a whole number"),
        ("replication.factor", 40_000, "expected -1 or a whole number between 1 and 32767"),
        ("replication.factor", 0, "replication.factor is 0, expected -1 or a whole number between 1 and 32767"),
        ("session.timeout.ms", 2**31, "session.timeout.ms is 2147483648, expected a whole number between 1 and 2147483647"),
        ("max.poll.interval.ms", 2**31, "expected a whole number between 1 and 2147483647"),
        ("transaction.timeout.ms", 999, "expected a whole number between 1000 and 2147483647"),
        ("transaction.timeout.ms", 2**31, "expected a whole number between 1000 and 2147483647"),
        ("tidemill.control.listen", "driver:99999", "expected host:port, with a port from 0 to 65535"),
        ("tidemill.presum", "yes", "tidemill.presum is 'yes', expected true or false"),
        ("processing.guarantee", "exactly_once", "expected at_least_once or exactly_once_v2"),
        ("auto.offset.reset", "first", "expected earliest, latest, none, or by_duration:"),
        ("topology.optimization", "some", "expected none, all, or some of reuse.ktable.source.topics"),
        ("application.id", "a b", "expected 1 to 200 letters"),
        ("application.id", "..", "expected 1 to 200 letters"),
        ("application.server", "host", "expected host:port"),
        ("application.server", "pod-0..default:8080", "expected host:port, with a host name or an IP address"),
        ("application.server", "host:70000", "expected host:port, with a host name or an IP address"),
        ("client.id", "a\nb", "expected printable characters"),
        ("client.rack", "a\x1b[2J", "expected printable characters"),
        ("bootstrap.servers", "localhost", "expected host:port"),
        ("bootstrap.servers", "http://localhost:9092", "expected host:port"),
        ("bootstrap.servers", "a:1,EXTERNAL://b:2", "expected host:port"),
        ("rack.aware.assignment.strategy", "best", "expected none, min_traffic or balance_subtopology"),
        ("kafka.request.timeout.ms", ["x"], "expected text, a number, true or false"),
        ("rack.aware.assignment.tags", [1], "expected names, separated by commas"),
        ("state.dir", 3, "state.dir is 3, expected the path of a folder"),
    ],
)
def test_a_malformed_value_is_reported_with_name_value_and_what_was_expected(
    name: str, value: object, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({**NEEDED, name: value})
    assert expected in str(caught.value)
    assert str(caught.value).startswith(name)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("num.stream.thread", "'num.stream.threads'"),
        ("num_stream_threads", "'num.stream.threads'"),
        ("aplication.id", "'application.id'"),
        ("APPLICATION_ID_CONFIG", "'application.id'"),
        ("DEFAULT_KEY_SERDE_CLASS_CONFIG", "'default.key.serde'"),
        ("tidemill.presumm", "'tidemill.presum'"),
        ("sasl.mechanism", "'kafka.sasl.mechanism'"),
        ("ssl.truststore.location", "'kafka.ssl.truststore.location'"),
        ("quite.another.thing", "docs/configuration.md"),
        ("kafka.", "unknown setting 'kafka.'"),
        ("client.tag", "did you mean one that begins with 'client.tag.'?"),
        ("partition.assignment.strategy", "Kafka Streams always brings its own assignor"),
        ("schema.registry.url", "serdes name their registry: SchemaRegistry(url).avro(...); leave it out"),
        ("auto.commit.interval.ms", "every commit.interval.ms; leave it out"),
        ("max.poll.records", "tidemill.batch.max.records"),
        ("buffered.records.per.partition", "a batch takes tidemill.batch.max.records; leave it out"),
        ("default.dsl.store", "say dsl.store.suppliers.class instead"),
        ("main.consumer.fetch.min.bytes", "did you mean 'consumer.fetch.min.bytes'?"),
        ("request.timeout.ms", "did you mean 'kafka.request.timeout.ms'?"),
        ("metric.reporters", "metrics are read over HTTP; leave it out"),
        ("retry.backoff.ms", "say producer.retry.backoff.ms instead"),
        ("metadata.recovery.strategy", "can't be given to both of Tidemill's Kafka clients; leave it out"),
        ("windowed.inner.class.serde", "WindowedSerdes.time_windowed_serde_from(Serdes.string(), size); leave it out"),
        ("config.providers", "references such as ${file:PATH:KEY} and ${env:NAME} are resolved without it"),
        (5, "the setting 5 has a name of type int, expected text"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_the_nearest(name: Any, suggested: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({**NEEDED, name: "x"})
    assert suggested in str(caught.value)


def test_all_unknown_names_and_malformed_values_are_told_at_once() -> None:
    wrong = {"num.stream.thread": 2, "max.poll.records": 5, "commit.interval.ms": "soon", "acceptable.recovery.lag": 5}
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({**NEEDED, **wrong})
    first, second, third = (str(caught.value).index(said) for said in (
        "unknown setting 'num.stream.thread'; did you mean 'num.stream.threads'?", "max.poll.records is not for you to set here",
        "commit.interval.ms is 'soon', expected",
    ))  # fmt: skip
    assert first < second < third
    assert "acceptable" not in str(caught.value)


@pytest.mark.parametrize("missing", ["application.id", "bootstrap.servers"])
def test_what_every_application_needs_must_be_given(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        StreamsConfig.of({name: value for name, value in NEEDED.items() if name != missing})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"heartbeat.interval.ms": 6000, "session.timeout.ms": 6000}, "must be below session.timeout.ms=6000"),
        ({"probing.rebalance.interval.ms": 59_999}, "expected a whole number from 60000 on"),
        ({"commit.interval.ms": 10_001}, "above transaction.timeout.ms=10000"),
        ({"default.deserialization.exception.handler": "dead-letter"}, "needs errors.dead.letter.queue.topic.name"),
        ({"processing.exception.handler": "dead-letter"}, "processing.exception.handler=dead-letter needs errors.dead"),
        ({"errors.dead.letter.queue.topic.name": "dead"}, "no handler writes dead letters: set one of"),
        ({"rack.aware.assignment.tags": "zone"}, "give client.tag.zone too"),
        ({f"client.tag.{n}": "x" for n in range(6)}, "there are 6 client tags, at most 5"),
        ({"rack.aware.assignment.tags": "a,b,c,d,e,f"}, "there are 6 client tags, at most 5"),
        ({"client.tag." + "k" * 21: "x"}, "at most 20 characters"),
        ({"client.tag.k": "x" * 31}, "at most 30"),
        ({"client.tag.k": "x\n"}, "client.tag 'k' is 'x\\n': expected printable characters"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({**NEEDED, **settings})
    assert said in str(caught.value)


def test_the_same_settings_just_inside_the_bounds_are_taken() -> None:
    config = StreamsConfig.of(
        {
            **NEEDED,
            "heartbeat.interval.ms": 5999, "session.timeout.ms": 6000, "probing.rebalance.interval.ms": 60_000,
            "commit.interval.ms": 10_000, "default.deserialization.exception.handler": "dead-letter",
            "errors.dead.letter.queue.topic.name": "dead", "rack.aware.assignment.tags": "zone",
            "client.tag.zone": "x" * 30,
        }
    )  # fmt: skip
    assert config.dead_letter_topic == "dead"
    assert dict(config.client_tags) == {"zone": "x" * 30}
    five = {f"client.tag.{number}{'k' * 19}": "x" for number in range(5)}
    spread = {"rack.aware.assignment.tags": ",".join(name.removeprefix("client.tag.") for name in five)}
    assert len(StreamsConfig.of({**NEEDED, **five, **spread}).client_tags) == 5
    assert _of(processing__guarantee="at_least_once", commit__interval__ms=99_999).commit_interval_ms == 99_999
    short = {"probing.rebalance.interval.ms": 500, "tidemill.test.short.intervals": True}
    assert StreamsConfig.of({**NEEDED, **short}).probing_rebalance_interval_ms == 500


def test_what_has_a_prefix_is_handed_on_without_it_as_text() -> None:
    config = StreamsConfig.of(
        {
            **NEEDED,
            "kafka.security.protocol": "SSL", "consumer.fetch.min.bytes": 5, "producer.linger.ms": 0.5,
            "admin.request.timeout.ms": 1, "spark.ui.enabled": False, "topic.retention.ms": 7, "spark.a_b.C": "x",
        }
    )  # fmt: skip
    assert dict(config.kafka) == {"security.protocol": "SSL"}
    assert dict(config.consumer) == {"fetch.min.bytes": "5"}
    assert dict(config.producer) == {"linger.ms": "0.5"}
    assert dict(config.admin) == {"request.timeout.ms": "1"}
    assert dict(config.spark) == {"ui.enabled": "false", "a_b.C": "x"}
    assert dict(config.topic) == {"retention.ms": "7"}


@pytest.mark.parametrize("given", [StreamsBuilder(), "settings.toml", [("application.id", "app")]])
def test_what_is_no_mapping_is_refused_with_where_settings_stand(given: Any) -> None:
    with pytest.raises(ConfigError, match=rf"are a {type(given).__name__}, .* KafkaStreams\(builder, config\)"):
        StreamsConfig.of(given)


def test_a_path_is_taken_as_its_text() -> None:
    settings = {"state.dir": Path("/a/b"), "kafka.ssl.ca.location": Path("c"), "tidemill.http.ssl.keystore.location": Path("d")}
    config = StreamsConfig.of({**NEEDED, **settings})
    assert (config.state_dir, dict(config.kafka)["ssl.ca.location"], config.http_keystore) == ("/a/b", "c", "d")
    with pytest.raises(ConfigError, match=r"num.stream.threads is PosixPath\('/a'\), expected a whole number"):
        StreamsConfig.of({**NEEDED, "num.stream.threads": Path("/a")})


def test_keywords_name_attributes_and_win_over_the_mapping() -> None:
    config = StreamsConfig.of(
        {**NEEDED, "num.stream.threads": 2, "state.dir": None},
        num_stream_threads=3,
        kafka_security_protocol="SSL",
        deserialization_exception_handler="continue",
        presum=False,
        client_tag_zone="a",
        client_rack=None,
    )
    assert config.num_stream_threads == 3
    assert dict(config.kafka) == {"security.protocol": "SSL"}
    assert config.deserialization_exception_handler is NamedHandler.CONTINUE
    assert (config.presum, dict(config.client_tags)) == (False, {"zone": "a"})
    assert (config.state_dir, config.client_rack) == ("/tmp/kafka-streams", "")
    with pytest.raises(ConfigError, match=r"did you mean 'num\.stream\.threads'"):
        StreamsConfig.of(NEEDED, num_stream_thread=3)


def test_toml_tables_and_dotted_keys_become_dotted_names() -> None:
    source = """
    application.id = "app"
    bootstrap.servers = "localhost:9092"
    num.stream.threads = 2
    tidemill.presum = false
    rack.aware.assignment.tags = ["zone"]
    [client.tag]
    zone = "a"
    [kafka]
    security.protocol = "SASL_SSL"
    "sasl.mechanism" = "PLAIN"
    """
    config = StreamsConfig.of(load_toml(source))
    assert (config.num_stream_threads, config.presum, config.rack_aware_assignment_tags) == (2, False, ("zone",))
    assert dict(config.kafka) == {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError, match=r"not TOML: .*line 2"):
        load_toml("a = 1\nb =\n")
    with pytest.raises(ConfigError, match=r"the settings are not clear: state\.dir is there twice"):
        load_toml('"state.dir" = "a"\nstate.dir = "b"\n')
    with pytest.raises(ConfigError, match=r"there is nothing in front of an '='"):
        parse_assignments(["=3"])


def test_assignments_split_at_the_first_equals_sign() -> None:
    assert parse_assignments(["a.b=1", " c = x=y ", "d="]) == {"a.b": "1", "c": " x=y ", "d": ""}
    for wrong in ("a.b", "=1"):
        with pytest.raises(ConfigError, match="--set takes key=value"):
            parse_assignments([wrong])


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";'
SECRETS = {
    "kafka.sasl.jaas.config": JAAS, "kafka.ssl.key.password": "hush", "spark.hadoop.fs.s3a.secret.key": "hush",
    "consumer.sasl.password": "hush", "spark.my.token": "hush", "kafka.ssl.keystore.key": "hush",
    "spark.hadoop.fs.s3a.access.key": "hush",
}  # fmt: skip


def test_no_credential_is_ever_shown() -> None:
    config = StreamsConfig.of({**NEEDED, **SECRETS, "kafka.security.protocol": "SASL_SSL"})
    for printed in (config, config.kafka, config.spark, config.consumer, dataclasses.asdict(config)):
        assert "hush" not in repr(printed)
        assert "hush" not in str(printed)
    assert "'SASL_SSL'" in repr(config)
    assert config.kafka["ssl.key.password"] == "hush"
    for name in SECRETS:
        with pytest.raises(ConfigError) as caught:
            StreamsConfig.of({**NEEDED, name: ["hush"]})
        assert "hush" not in str(caught.value)


ADDRESSES = {
    "spark.my.url": "http://me:hush@host:1/path", "spark.my.proxy": "HTTPS://hush@host", "kafka.a.b": "x=y,jdbc:pg://me:hush@host/db",
    "consumer.a.b": "http://a:hush@one:1,http://b:hush@two:1", "producer.a.b": "http://me:hu@hush@host", "admin.a.b": "s://:hush@h",
}  # fmt: skip


def test_no_credential_in_an_address_is_ever_shown() -> None:
    config = StreamsConfig.of({**NEEDED, **ADDRESSES})
    for printed in (config, config.kafka, config.spark, config.consumer, dataclasses.asdict(config)):
        assert "hush" not in repr(printed)
    assert "'my.url': 'http://(hidden)@host:1/path'" in repr(config.spark)
    assert config.spark["my.url"] == ADDRESSES["spark.my.url"]
    with pytest.raises(ConfigError, match=r"bootstrap.servers is 'http://\(hidden\)@host:1', expected host:port"):
        StreamsConfig.of({**NEEDED, "bootstrap.servers": "http://me:hush@host:1"})
    for wrong in ("kafka.ssl.key.password:hush", "kafka.ssl.key.password hush"):
        with pytest.raises(ConfigError, match=r"'kafka.ssl.key.password' has no '='"):
            parse_assignments([wrong])
    # Spark looks for it in names and values, in the way of java.util.regex; the pattern means the same in both.
    assert all(re.search(SPARK_REDACTED, value) for value in ADDRESSES.values())


IN_CLOUDS = {
    "spark.hadoop.fs.azure.account.key.mine.dfs.core.windows.net": "hush", "spark.hadoop.fs.azure.sas.a.mine": "hush",
    "spark.hadoop.fs.s3a.encryption.key": "hush", "spark.hadoop.fs.s3a.server-side-encryption.key": "hush",
    "spark.hadoop.ssl.server.keystore.pass": "hush", "spark.executorEnv.DB_PWD": "hush",
    "spark.sql.catalog.pg.url": "jdbc:postgresql://host/db?user=app&password=hush&ssl=true",
    "spark.executor.extraJavaOptions": "-Xss1m -Djavax.net.ssl.trustStorePassword=hush -Dlog='a b'",
    "spark.hadoop.a.b": 'Endpoint=sb://host/;SharedAccessKey="hush hush";', "spark.my.url": "https://host/c?sv=1&sig=hush",
}  # fmt: skip


def test_the_names_that_hadoop_has_for_credentials_and_passwords_within_a_value_are_not_shown() -> None:
    config = StreamsConfig.of({**NEEDED, **IN_CLOUDS})
    assert "hush" not in repr(config)
    assert "user=app&password=(hidden)&ssl=true" in repr(config)
    assert "-Djavax.net.ssl.trustStorePassword=(hidden) -Dlog=" in repr(config)
    for name, value in IN_CLOUDS.items():
        assert re.search(SPARK_REDACTED, name) or re.search(SPARK_REDACTED, value)
        assert is_secret(name) or has_credentials(value)  # so it is on no command line
    reference = "jdbc:postgresql://host/db?password=${env:PG}"
    assert shown("spark.a", reference) == repr(reference)


def test_what_is_no_credential_is_shown() -> None:
    places = ("hdfs://host:9000/a@b", "abfss://container@account/x", "http://host:80/a@b", "h:1,h:2")
    for plain in (*places, "com.acme:secrets-jdbc:1.0", "-Dkeys=a -Dbypass.sassy=1", "org.acme.TokenProvider"):
        assert shown("spark.a", plain) == repr(plain)
        assert not has_credentials(plain)
    assert [name for name, _, _ in setting_table() if is_secret(name)] == [
        "tidemill.http.token", "tidemill.http.ssl.key.password",
    ]  # fmt: skip
    assert not is_secret("kafka.ssl.truststore.location")


def test_printing_shows_only_what_differs_from_the_defaults() -> None:
    config = _of(num__stream__threads=2, processing__guarantee="at_least_once")
    assert repr(config) == (
        "StreamsConfig(application.id='app', bootstrap.servers='localhost:9092', num.stream.threads=2, "
        "processing.guarantee='at_least_once', commit.interval.ms=30000)"
    )


def test_a_config_never_changes_and_travels_to_other_processes() -> None:
    config = _of(kafka__security__protocol="SSL")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_stream_threads = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.kafka["x"] = "y"  # type: ignore[index]
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))


def test_every_setting_is_in_the_documentation_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    rows: dict[str, Any] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            rows[cells[0].strip("`")] = (cells[1].strip("`"), cells[2])
    assert rows == {
        (name + "*" if name.endswith(".") else name): (default, meaning) for name, default, meaning in setting_table()
    }


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("dead letters", "only ASCII letters, digits"), ("..", "'.' and '..' are taken"), (" ", "it is empty"),
        ("t" * 250, "it has 250 characters, at most 249 are allowed"), ("briefe-f\u00fcr-morgen", "only ASCII letters"),
    ],
)  # fmt: skip
def test_a_dead_letter_topic_that_no_broker_would_make_is_refused(topic: str, said: str) -> None:
    letters = {**NEEDED, "processing.exception.handler": "dead-letter", "errors.dead.letter.queue.topic.name": topic}
    with pytest.raises(ConfigError, match=rf"^errors\.dead.*\.topic\.name is .*, expected the name of a topic; {said}"):
        StreamsConfig.of(letters)
