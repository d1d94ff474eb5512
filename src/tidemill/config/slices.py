"""Slices of the settings: those that one part of an instance, or one command, needs.

Decides which settings belong together. A slice's fields are attributes of ``StreamsConfig``, of the same names and types;
``StreamsConfig.slice`` cuts a slice out of an instance's settings, ``StreamsConfig.read_slice`` reads one for a tool that is no
instance. So a part can't depend on a setting that its slice doesn't name, and a test makes a slice, not a whole configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.config.values import (
    ClientSettings,
    OffsetReset,
    OffsetResetByDuration,
    ProcessingGuarantee,
    StoreFormat,
    StoreSuppliers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsConfig:
    """Settings of the Kafka clients: the brokers, and the settings that are passed to each client."""

    bootstrap_servers: str
    client_id: str
    client_rack: str
    transaction_timeout_ms: int
    kafka: ClientSettings
    consumer: ClientSettings
    producer: ClientSettings
    admin: ClientSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsConfig:
    """Settings of the topics that an application needs on the brokers."""

    application_id: str
    bootstrap_servers: str
    dead_letter_topic: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The group leader's: the assignor and its limits, and the configuration of internal topics."""

    application_id: str
    task_assignor_class: str
    compatibility: str
    acceptable_recovery_lag: int
    max_warmup_replicas: int
    num_standby_replicas: int
    probing_rebalance_interval_ms: int
    rack_aware_assignment_tags: tuple[str, ...]
    rack_aware_assignment_strategy: str
    rack_aware_assignment_traffic_cost: int | None
    rack_aware_assignment_non_overlap_cost: int | None
    replication_factor: int


_LONGEST_REST_MS = 50
"""At least once: the default with exactly-once, where less costs processor time and gains little (ADR 10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadConfig:
    """Settings of a stream thread: batches, commits, offset resets, leaving the group."""

    processing_guarantee: ProcessingGuarantee
    commit_interval_ms: int
    transaction_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    num_standby_replicas: int
    auto_offset_reset: OffsetReset | OffsetResetByDuration
    batch_max_records: int
    batch_max_bytes: int
    batch_timeout_ms: int
    restore_max_records: int
    standby_max_records: int
    promote_when_caught_up: bool
    probing_rebalance_interval_ms: int
    task_assignor_class: str
    task_weights: bool
    metrics_sample_window_ms: int
    metrics_num_samples: int

    @property
    def rest_ms(self) -> int:
        """Time between batches that read source topics. Exactly-once each of them is a commit. At least once a record waits for
        none, but batches without a pause cost twice the processor time."""
        if self.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2:
            return self.commit_interval_ms
        return min(self.commit_interval_ms, _LONGEST_REST_MS)

    @property
    def batch_limit_s(self) -> float:
        """The time limit of a batch: half of max.poll.interval.ms at most. The group takes no commit of a thread that was busy
        for all of it; a batch that is lost at its half is run again with fewer records."""
        return min(self.batch_timeout_ms, self.max_poll_interval_ms / 2) / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig:
    """Settings of local state: its directories, here and on executors, and its clean-up."""

    application_id: str
    state_dir: str
    state_cleanup_delay_ms: int
    state_cleanup_dir_max_age_ms: int
    executor_state_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionConfig:
    """Settings of exception handlers, and the dead-letter topic."""

    deserialization_exception_handler: object
    processing_exception_handler: object
    processing_exception_handler_global_enabled: bool
    production_exception_handler: object
    dead_letter_topic: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConfig:
    """Settings of a topology and its plan: defaults for what the program leaves open, and options of compiling."""

    application_id: str
    default_key_serde: object
    default_value_serde: object
    topology_optimization: tuple[str, ...]
    ensure_explicit_internal_resource_naming: bool
    processor_wrapper_class: object
    default_timestamp_extractor: object
    dsl_store_suppliers_class: StoreSuppliers
    dsl_store_format: StoreFormat
    statestore_cache_max_bytes: int
    presum: bool
    max_task_idle_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """Settings of the Spark session and of the connections between workers and driver."""

    application_id: str
    num_stream_threads: int
    spark: ClientSettings
    control_listen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Settings of HTTP requests to instances: token and certificates."""

    http_token: str = field(repr=False)
    http_keystore: str
    http_key_password: str = field(repr=False)
    http_truststore: str
    http_client_auth: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsConfig:
    """Settings of interactive queries: address, timeout, staleness."""

    application_id: str
    application_server: str
    http_listen: str
    http_max_staleness: int
    http_max_staleness_ms: int | None
    http_timeout_ms: int
    session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConfig:
    """Settings of the status pages: the settings that they show, and the level of the metrics."""

    application_id: str
    client_id: str
    client_rack: str
    client_tags: ClientSettings
    processing_guarantee: ProcessingGuarantee
    num_standby_replicas: int
    max_warmup_replicas: int
    acceptable_recovery_lag: int
    probing_rebalance_interval_ms: int
    task_assignor_class: str
    metrics_recording_level: str
