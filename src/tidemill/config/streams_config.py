"""The settings of an application: Kafka Streams' names and ours, read and checked once.

Decides which settings exist, their defaults and bounds, and which of them contradict each other. Invariant: a
StreamsConfig is valid, never changes and shows no credential. What a setting does is decided where it is used; how client
settings become those of a client library is decided in `kafka.security.clients`, what other names mean in `names`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.config.names import SettingNames
from tidemill.config.rules import check
from tidemill.config.secrets import shown
from tidemill.config.values import (
    JAVA_HANDLERS,
    JAVA_PROCESSING_HANDLERS,
    JAVA_PRODUCTION_HANDLERS,
    LARGEST_INT,
    REWRITES,
    SHORT_STORE_SUPPLIERS,
    ClientSettings,
    KafkaExtractor,
    NamedHandler,
    OffsetReset,
    OffsetResetByDuration,
    ProcessingGuarantee,
    Reader,
    RebalanceProtocol,
    StoreFormat,
    StoreSuppliers,
    anything,
    client_value,
    endpoint,
    extractor,
    given_text,
    handler_or,
    http_token,
    listening_address,
    name_text,
    names,
    offset_reset,
    one_of,
    replicas,
    rewrites,
    servers,
    text,
    text_like,
    topic_name,
    true_or_false,
    whole_number,
    wrapper,
)
from tidemill.errors import ConfigError
from tidemill.spellings import Spelled

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Slice = TypeVar("Slice", bound="DataclassInstance")

COMMIT_INTERVAL_MS = 30_000
COMMIT_INTERVAL_EXACTLY_ONCE_MS = 50


def _setting(name: str, read: Reader, default: object, meaning: str) -> Any:
    return field(default=default, metadata={"name": name, "read": read, "meaning": meaning})


def _prefix(prefix: str, meaning: str) -> Any:
    return field(
        default=ClientSettings({}), metadata={"name": prefix, "read": client_value, "meaning": meaning}
    )


_APPLICATION_ID = text_like(
    r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,200}", "1 to 200 letters, digits, '.', '_', '-': it is part of the topics' names"
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StreamsConfig(Spelled):
    """All settings, each as an attribute: ``commit.interval.ms`` is ``commit_interval_ms``. Make it with `of`.

    A setting whose name ends in a dot takes every name that begins so (``kafka.security.protocol``).
    """

    # What the application is and where
    application_id: str = _setting("application.id", _APPLICATION_ID, "", "Name of the group and of all it owns.")
    bootstrap_servers: str = _setting("bootstrap.servers", servers, "", "Brokers to begin with: host:port,...")
    client_id: str = _setting("client.id", name_text, "", "Begins the clients' names; empty: application and process id.")
    client_rack: str = _setting("client.rack", name_text, "", "Rack of this instance.")
    application_server: str = _setting("application.server", endpoint, "", "host:port where this instance can be asked.")
    num_stream_threads: int = _setting("num.stream.threads", whole_number(1), 1, "Stream threads of this instance.")
    state_dir: str = _setting(
        "state.dir", given_text("the path of a folder"), "/tmp/kafka-streams", "Where local state lies."
    )
    state_cleanup_delay_ms: int = _setting(
        "state.cleanup.delay.ms", whole_number(0), 600_000, "How long state that left this instance is kept."
    )
    state_cleanup_dir_max_age_ms: int = _setting(
        "state.cleanup.dir.max.age.ms", whole_number(-1), -1,
        "State that was not written for this time is removed at the start, before it is used; -1: none is (KIP-1259).",
    )  # fmt: skip

    # What is promised
    processing_guarantee: ProcessingGuarantee = _setting(
        "processing.guarantee", one_of(ProcessingGuarantee), ProcessingGuarantee.EXACTLY_ONCE_V2,
        "Delivery guarantee: exactly_once_v2 or at_least_once.",
    )  # fmt: skip
    commit_interval_ms: int = _setting(
        "commit.interval.ms", whole_number(0), None,
        "Time between commits, and how long a record waits at most to be read. at_least_once: it waits 50 ms at most.",
    )  # fmt: skip
    transaction_timeout_ms: int = _setting(
        "transaction.timeout.ms", whole_number(1_000, LARGEST_INT), 10_000,
        "After it the broker aborts an open transaction; at least 1000.",
    )  # fmt: skip

    # The group
    session_timeout_ms: int = _setting(
        "session.timeout.ms", whole_number(1, LARGEST_INT), 45_000, "A member without heartbeats for this time is out."
    )
    heartbeat_interval_ms: int = _setting(
        "heartbeat.interval.ms", whole_number(1), 3_000,
        "Most time between heartbeats; shorter for some seconds after each assignment.",
    )  # fmt: skip
    max_poll_interval_ms: int = _setting(
        "max.poll.interval.ms", whole_number(1, LARGEST_INT), 300_000, "A thread that is busy for longer leaves the group."
    )
    group_instance_id: str | None = _setting(
        "group.instance.id", text_like(r"[a-zA-Z0-9._-]{1,240}", "1 to 240 letters, digits, '.', '_', '-'"), None,
        "Static membership under this name.",
    )  # fmt: skip
    rebalance_protocol: RebalanceProtocol = _setting(
        "rebalance.protocol", one_of(RebalanceProtocol), RebalanceProtocol.COOPERATIVE,
        "cooperative: only what moves stops in a rebalance; eager: everything does.",
    )  # fmt: skip
    leave_group_on_close: bool | None = _setting(
        "leave.group.on.close", true_or_false, None,
        "true: a clean stop leaves the group at once; unset: unless the membership is static.",
    )  # fmt: skip
    num_standby_replicas: int = _setting("num.standby.replicas", whole_number(0), 0, "Hot copies of each store.")
    acceptable_recovery_lag: int = _setting(
        "acceptable.recovery.lag", whole_number(0), 10_000, "Records behind that still count as caught up."
    )
    max_warmup_replicas: int = _setting(
        "max.warmup.replicas", whole_number(1), 2, "Extra copies at one time, in the whole group, to move tasks."
    )
    probing_rebalance_interval_ms: int = _setting(
        "probing.rebalance.interval.ms", whole_number(1), 600_000, "Time until a warm-up is looked at again."
    )
    promote_when_caught_up: bool = _setting(
        "tidemill.promote.when.caught.up", true_or_false, False,
        "Whether an instance asks for a rebalance when a warm-up of its has caught up, instead of waiting for the probing one.",
    )  # fmt: skip
    task_assignor_class: str = _setting(
        "task.assignor.class", given_text("the name of an assignor"), "HighAvailabilityTaskAssignor",
        "Assignor of tasks: one of Kafka's, balanced, or module:Class of your own.",
    )  # fmt: skip
    task_weights: bool = _setting(
        "tidemill.task.weights", true_or_false, False,
        "Whether an instance measures the load of its tasks for the assignor balanced, or your own; Kafka's don't use it.",
    )  # fmt: skip
    client_tags: ClientSettings = _prefix("client.tag.", "Tags of this instance: zone, rack ...")
    rack_aware_assignment_tags: tuple[str, ...] = _setting(
        "rack.aware.assignment.tags", names, (), "Tags over whose values standbys are spread."
    )
    rack_aware_assignment_strategy: str = _setting(
        "rack.aware.assignment.strategy",
        text_like("none|min_traffic|balance_subtopology", "none, min_traffic or balance_subtopology"),
        "none",
        "Assignment by racks of partitions' replicas: none, min_traffic or balance_subtopology.",
    )
    rack_aware_assignment_traffic_cost: int | None = _setting(
        "rack.aware.assignment.traffic_cost", whole_number(0), None, "Cost of traffic between racks."
    )
    rack_aware_assignment_non_overlap_cost: int | None = _setting(
        "rack.aware.assignment.non_overlap_cost", whole_number(0), None, "Cost of a move."
    )

    # Records
    auto_offset_reset: OffsetReset | OffsetResetByDuration = _setting(
        "auto.offset.reset", offset_reset, OffsetReset.EARLIEST,
        "Where to begin without a committed offset: earliest, latest, none (nowhere) or by_duration:PT1H.",
    )  # fmt: skip
    default_key_serde: object = _setting("default.key.serde", anything, None, "Serde of keys: a name or an object.")
    default_value_serde: object = _setting("default.value.serde", anything, None, "Serde of values, likewise.")
    deserialization_exception_handler: object = _setting(
        "deserialization.exception.handler",
        handler_or(one_of(NamedHandler, JAVA_HANDLERS)),
        NamedHandler.FAIL,
        "Handler for records that a serde can't read.",
    )
    processing_exception_handler: object = _setting(
        "processing.exception.handler",
        handler_or(one_of(NamedHandler, JAVA_PROCESSING_HANDLERS)),
        NamedHandler.FAIL,
        "Handler for records that a function fails on.",
    )
    processing_exception_handler_global_enabled: bool = _setting(
        "processing.exception.handler.global.enabled", true_or_false, False,
        "True: processing.exception.handler also handles records of global stores (KIP-1270).",
    )  # fmt: skip
    production_exception_handler: object = _setting(
        "production.exception.handler",
        handler_or(one_of(NamedHandler, JAVA_PRODUCTION_HANDLERS)),
        NamedHandler.FAIL,
        "Handler for records that can't be written.",
    )
    dead_letter_topic: str | None = _setting(
        "errors.dead.letter.queue.topic.name", topic_name, None, "Topic of the dead letters."
    )
    max_task_idle_ms: int = _setting(
        "max.task.idle.ms",
        whole_number(-1),
        0,
        "How long a task waits for an input that has nothing: 0: only while its broker has more; -1: never.",
    )

    # The topology and its topics
    topology_optimization: tuple[str, ...] = _setting(
        "topology.optimization", rewrites, (), f"none, all, or some of {', '.join(REWRITES)}."
    )
    ensure_explicit_internal_resource_naming: bool = _setting(
        "ensure.explicit.internal.resource.naming", true_or_false, False,
        "Refuse a topology with stores, changelogs or repartition topics that have a generated name (KIP-1111).",
    )  # fmt: skip
    processor_wrapper_class: object = _setting(
        "processor.wrapper.class", wrapper, None,
        "Wraps the processors of the topology (KIP-1112): module:Class, a class or an object.",
    )  # fmt: skip
    default_timestamp_extractor: object = _setting(
        "default.timestamp.extractor", extractor, KafkaExtractor.FAIL_ON_INVALID,
        "Of sources that have none: a function of (record, partition_time), module:function, or one of Kafka Streams' classes.",
    )  # fmt: skip
    dsl_store_suppliers_class: StoreSuppliers = _setting(
        "dsl.store.suppliers.class", one_of(StoreSuppliers, SHORT_STORE_SUPPLIERS), StoreSuppliers.PERSISTENT,
        "Where the DSL's stores are kept that leave it open: RocksDBDslStoreSuppliers (on disk) or InMemoryDslStoreSuppliers.",
    )  # fmt: skip
    dsl_store_format: StoreFormat = _setting(
        "dsl.store.format", one_of(StoreFormat, {"default": StoreFormat.DEFAULT, "headers": StoreFormat.HEADERS}),
        StoreFormat.DEFAULT, "DEFAULT or HEADERS: whether the DSL's stores that leave it open carry headers.",
    )  # fmt: skip
    statestore_cache_max_bytes: int = _setting(
        "statestore.cache.max.bytes", whole_number(0), 10 * 1024 * 1024,
        "0: every update of a table or an aggregate is forwarded. Else the last one of a key and batch may be: a batch takes the "
        "place of a cache, whatever the number.",
    )  # fmt: skip
    replication_factor: int = _setting(
        "replication.factor", replicas, -1, "Replicas of internal topics; -1: the broker's default."
    )
    repartition_purge_interval_ms: int = _setting(
        "repartition.purge.interval.ms", whole_number(1), 30_000, "Time between purges of repartition topics."
    )
    windowstore_changelog_additional_retention_ms: int = _setting(
        "windowstore.changelog.additional.retention.ms", whole_number(0), 86_400_000,
        "How much longer than the store the changelog of windows keeps them, for clocks that differ.",
    )
    topic: ClientSettings = _prefix("topic.", "Configs of internal topics.")

    # Metrics
    metrics_recording_level: str = _setting(
        "metrics.recording.level", text_like("INFO|DEBUG|TRACE", "INFO, DEBUG or TRACE"), "INFO",
        "Which metrics there are: DEBUG adds those of tasks and stores, TRACE all.",
    )  # fmt: skip
    metrics_sample_window_ms: int = _setting(
        "metrics.sample.window.ms", whole_number(1), 30_000, "How long a sample of a rate or an average lasts."
    )
    metrics_num_samples: int = _setting(
        "metrics.num.samples", whole_number(1), 2, "Over how many samples rates and averages are taken."
    )

    # Handed on
    kafka: ClientSettings = _prefix("kafka.", "To every Kafka client, under Kafka's Java names.")
    consumer: ClientSettings = _prefix("consumer.", "To the consumers that read data.")
    producer: ClientSettings = _prefix("producer.", "To the producers.")
    admin: ClientSettings = _prefix("admin.", "To the admin clients.")
    spark: ClientSettings = _prefix("spark.", "To the Spark session.")

    # Ours
    compatibility: str = _setting(
        "tidemill.compatibility", text_like(r"4\.3|2\.7", "4.3 or 2.7"), "4.3",
        "The Kafka Streams whose assignments the leader gives: 4.3, or 2.7 with its other order of warm-ups.",
    )  # fmt: skip
    presum: bool = _setting(
        "tidemill.presum", true_or_false, True, "Combine a batch's records by key before the repartition topic."
    )
    batch_max_records: int = _setting(
        "tidemill.batch.max.records", whole_number(1), 200_000, "Records of one micro-batch of a thread, at most."
    )
    batch_max_bytes: int = _setting(
        "tidemill.batch.max.bytes", whole_number(1), 64 << 20,
        "Bytes of values from where on a micro-batch of a thread takes no more. Restored records may have a quarter of them.",
    )  # fmt: skip
    restore_max_records: int = _setting(
        "tidemill.restore.max.records", whole_number(1), 50_000,
        "Changelog records that restoring tasks add to a micro-batch while other tasks run.",
    )  # fmt: skip
    standby_max_records: int = _setting(
        "tidemill.standby.max.records", whole_number(1), 20_000,
        "Changelog records that standby and warm-up tasks add to a micro-batch.",
    )  # fmt: skip
    batch_timeout_ms: int = _setting(
        "tidemill.batch.timeout.ms", whole_number(1), 60_000,
        "A micro-batch that takes longer, or half of max.poll.interval.ms, counts as lost.",
    )
    control_listen: str = _setting(
        "tidemill.control.listen", listening_address, "",
        "On a cluster master: where the driver hears its workers; empty: any port of spark.driver.bindAddress.",
    )  # fmt: skip
    executor_state_dir: str = _setting(
        "tidemill.executor.state.dir", text, "",
        "On a cluster master: where state lies on executors, relative: in their working folders; empty: state.dir.",
    )  # fmt: skip
    http_listen: str = _setting(
        "tidemill.http.listen", listening_address, "", "host:port where reads are answered; empty: nowhere."
    )
    http_token: str = _setting(
        "tidemill.http.token",
        http_token,
        "",
        "Token that every request over HTTP must carry.",
    )
    http_keystore: str = _setting(
        "tidemill.http.ssl.keystore.location", text, "",
        "PEM file with this instance's private key and certificates: HTTP becomes HTTPS.",
    )  # fmt: skip
    http_key_password: str = _setting("tidemill.http.ssl.key.password", text, "", "Of the private key, if it is encrypted.")
    http_truststore: str = _setting(
        "tidemill.http.ssl.truststore.location", text, "", "PEM file with the certificates that sign those of others."
    )
    http_client_auth: str = _setting(
        "tidemill.http.ssl.client.auth", text_like("none|required", "none or required"), "none",
        "required: clients need a certificate that the truststore's sign.",
    )  # fmt: skip
    http_max_staleness: int = _setting(
        "tidemill.http.max.staleness", whole_number(0), 10_000, "Offsets that an answering standby may be behind."
    )
    http_max_staleness_ms: int | None = _setting(
        "tidemill.http.max.staleness.ms", whole_number(0), None, "How old an answering standby may be; unset: however old."
    )
    http_timeout_ms: int = _setting(
        "tidemill.http.timeout.ms", whole_number(1), 10_000, "How long a read over HTTP is tried."
    )
    log_format: str = _setting(
        "tidemill.log.format", text_like("text|json", "text or json"), "text", "How `tidemill run` writes its log."
    )
    short_intervals: bool = _setting(
        "tidemill.test.short.intervals", true_or_false, False, "For tests: allow intervals below Kafka's bounds."
    )
    ignored: tuple[str, ...] = field(default=(), compare=False)
    """No setting: old names that were given besides the new ones, which win as in Kafka Streams; for the log."""

    @classmethod
    def of(cls, mapping: Mapping[str, object] | StreamsConfig | None = None, **keywords: object) -> StreamsConfig:
        """The settings of a mapping and of keywords (``num_stream_threads=2``), which win; None means not given. A StreamsConfig
        is complete, and is given alone.

        ConfigError for unknown names and malformed values, all of them at once, for a contradiction, or if ``application.id`` or
        ``bootstrap.servers`` is missing.
        """
        if isinstance(mapping, StreamsConfig):
            if keywords:
                raise ConfigError(
                    f"{next(iter(keywords))} is given besides a StreamsConfig, which has all settings: give a mapping and "
                    "keywords, or all of it to StreamsConfig.of"
                )
            return mapping
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(
                f"the settings are a {type(mapping).__name__}, expected a mapping of names to values; a builder or topology "
                "comes before them: KafkaStreams(builder, config)"
            )
        named = {_NAMES.of_keyword(keyword): value for keyword, value in keywords.items() if value is not None}
        config = cls._read({**(mapping or {}), **named})
        check(config)
        return config

    @classmethod
    def read_slice(cls, kind: type[Slice], mapping: Mapping[str, object]) -> Slice:
        """The settings of one slice, for a tool that is no instance: ``application.id`` and ``bootstrap.servers`` must be given
        only where they are of the slice. Other settings may be given, and are checked as in ``of``."""
        config = cls._read(mapping)
        check(config, [each.name for each in fields(kind)])
        return config.slice(kind)

    def slice(self, kind: type[Slice]) -> Slice:
        """The settings of one slice (``config.slices``)."""
        return kind(**{each.name: getattr(self, each.name) for each in fields(kind)})

    @classmethod
    def _read(cls, mapping: Mapping[str, object]) -> StreamsConfig:
        """Each value by its own reader; what contradicts another is for the rules."""
        given = {name: value for name, value in mapping.items() if value is not None}
        values: dict[str, Any] = {}
        handed_on: dict[str, dict[str, str]] = {}
        ignored = _NAMES.overridden(given)
        problems: list[str] = []
        for name, value in given.items():
            try:
                setting, rest = _NAMES.find(name)
                read = _read(setting, name, value)
            except ConfigError as problem:
                problems.append(str(problem))
                continue
            if name in ignored:
                continue
            if rest:
                handed_on.setdefault(setting.name, {})[rest] = read
            else:
                values[setting.name] = read
        if problems:
            raise ConfigError("; ".join(problems))
        values |= {attribute: ClientSettings(settings) for attribute, settings in handed_on.items()}
        return cls(**values, ignored=ignored)

    def __post_init__(self) -> None:
        if self.commit_interval_ms is None:
            is_exactly_once = self.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
            interval_ms = COMMIT_INTERVAL_EXACTLY_ONCE_MS if is_exactly_once else COMMIT_INTERVAL_MS
            object.__setattr__(self, "commit_interval_ms", interval_ms)

    def __repr__(self) -> str:
        changed = [
            f"{setting.metadata['name']}={shown(setting.metadata['name'], _plain(getattr(self, setting.name)))}"
            for setting in _SETTINGS
            if getattr(self, setting.name) != setting.default
        ]
        return f"StreamsConfig({', '.join(changed)})"


_SETTINGS = tuple(each for each in fields(StreamsConfig) if each.metadata)
_NAMES = SettingNames(_SETTINGS)


def setting_table() -> list[tuple[str, str, str]]:
    """Name, default and meaning of every setting, in the order of the documentation."""
    return [
        (setting.metadata["name"], _default_shown(setting), setting.metadata["meaning"]) for setting in _SETTINGS
    ]


def _read(setting: Field[object], name: str, value: object) -> Any:
    fspath = getattr(value, "__fspath__", None)  # of os.PathLike: a Path is taken as its text
    try:
        return setting.metadata["read"](value if fspath is None else fspath())
    except ValueError as error:
        raise ConfigError(f"{name} is {shown(name, value)}, expected {error}") from None


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _default_shown(setting: Field[object]) -> str:
    if setting.metadata["name"] == "commit.interval.ms":
        return f"{COMMIT_INTERVAL_EXACTLY_ONCE_MS} ({COMMIT_INTERVAL_MS})"
    default = _plain(setting.default)
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, (int, str)) and default != "" else ""
