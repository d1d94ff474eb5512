"""Names of settings, and the error for an unknown one.

Decides other names of settings, and what Kafka Streams' settings that have no meaning here are answered. Which settings there
are, and what their values may be, is `tidemill.config.streams_config`'s.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import Field

from tidemill.errors import ConfigError

_ALSO_CALLED = {
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
}
"""Old names, which Kafka Streams still takes (KIP-1056), or took (KIP-770)."""
_WINDOWED_SERDES = "serdes name what they contain: WindowedSerdes.time_windowed_serde_from(Serdes.string(), size)"
_NO_LISTS = 'a list is a field, Serdes.json("items array<...>"), or give a serde of your own'
_WITHOUT_MEANING = {
    "partition.assignment.strategy": "Kafka Streams always brings its own assignor",
    "group.id": "the group is named by application.id",
    "enable.auto.commit": "offsets are committed with the results",
    "auto.commit.interval.ms": "offsets are committed with the results, every commit.interval.ms",
    "schema.registry.url": "serdes name their registry: SchemaRegistry(url).avro(...)",
    "isolation.level": "inputs are always read read_committed",
    "transactional.id": "it consists of application.id, process and thread",
    "buffered.records.per.partition": "records wait in the client's queue, which is bounded by bytes; a batch takes "
    "tidemill.batch.max.records",
    "rocksdb.config.setter": "stores are LMDB's",
    "max.poll.records": "say tidemill.batch.max.records instead",
    "default.dsl.store": "say dsl.store.suppliers.class instead",
    "default.client.supplier": "clients are librdkafka's and kafka-python's; their settings begin with kafka.",
    "group.protocol": "members use the classic protocol, in which the group's leader assigns tasks",
    "upgrade.from": "subscriptions of all versions are understood; members of a group may differ",
    "task.timeout.ms": "a batch is tried again until max.poll.interval.ms is over",
    "poll.ms": "sources are read at commit.interval.ms",
    "log.summary.interval.ms": "metrics and tidemill top show what a thread does",
    "enable.metrics.push": "metrics are read over HTTP and not sent to brokers",
    "metric.reporters": "metrics are read over HTTP",
    "built.in.metrics.version": "there is one version of the metrics",
    "config.providers": "references such as ${file:PATH:KEY} and ${env:NAME} are resolved without it",
    "allow.os.group.write.access": "the group's rights to state.dir are those that the umask leaves",
    "send.buffer.bytes": "sockets have the buffers of the operating system",
    "receive.buffer.bytes": "sockets have the buffers of the operating system",
    "retry.backoff.ms": "say producer.retry.backoff.ms instead",
    "retry.backoff.max.ms": "say producer.retry.backoff.max.ms instead",
    "metadata.recovery.strategy": "it can't be given to both of Tidemill's Kafka clients",
    "metadata.recovery.rebootstrap.trigger.ms": "it can't be given to both of Tidemill's Kafka clients",
    "windowed.inner.class.serde": _WINDOWED_SERDES,
    "windowed.inner.serde.class": _WINDOWED_SERDES,
    "window.size.ms": _WINDOWED_SERDES,
    "default.list.key.serde.inner": _NO_LISTS,
    "default.list.key.serde.type": _NO_LISTS,
    "default.list.value.serde.inner": _NO_LISTS,
    "default.list.value.serde.type": _NO_LISTS,
}
_CONSUMERS = ("main.consumer.", "restore.consumer.", "global.consumer.")
_CLIENTS = (
    "ssl.", "sasl.", "security.", "request.timeout.ms", "metadata.max.age.ms", "connections.max.idle.ms", "reconnect.backoff.",
)  # fmt: skip


class SettingNames:
    """The fields of a class of settings by the names in their metadata; one that ends in a dot is a prefix."""

    def __init__(self, settings: Iterable[Field[object]]) -> None:
        self._settings = tuple(each for each in settings if each.metadata)
        by_name: dict[str, Field[object]] = {setting.metadata["name"]: setting for setting in self._settings}
        self._prefixes = {name: setting for name, setting in by_name.items() if name.endswith(".")}
        self._single = {name: setting for name, setting in by_name.items() if name not in self._prefixes}

    def of_keyword(self, keyword: str) -> str:
        """The setting that the attribute of this name holds, else the keyword with dots."""
        named = (name for name, setting in self._single.items() if setting.name == keyword)
        return next(named, keyword.replace("_", "."))

    def find(self, name: str) -> tuple[Field[object], str]:
        """The setting of this name; the rest of the name if it is one of a prefix.

        Raises:
            ConfigError: there is none, and which might be meant.
        """
        if not isinstance(name, str):
            raise ConfigError(f"the setting {name!r} has a name of type {type(name).__name__}, expected text")
        name = _ALSO_CALLED.get(name, name)
        if name in self._single:
            return self._single[name], ""
        for prefix, setting in self._prefixes.items():
            if name.startswith(prefix) and name != prefix:
                return setting, name.removeprefix(prefix)
        raise ConfigError(self._unknown(name))

    def overridden(self, given: Collection[str]) -> tuple[str, ...]:
        """The old names that are given besides the new ones."""
        return tuple(name for name in given if name in _ALSO_CALLED and _ALSO_CALLED[name] in given)

    def _unknown(self, name: str) -> str:
        if name in _WITHOUT_MEANING:
            return f"{name} is not for you to set here: {_WITHOUT_MEANING[name]}; leave it out"
        if f"{name}." in self._prefixes:
            return f"unknown setting {name!r}; did you mean one that begins with '{name}.'?"
        if name.startswith(_CONSUMERS):
            meant = f"consumer.{name.split('.', 2)[2]}"
            return f"unknown setting {name!r}; did you mean {meant!r}? (the consumers of data have the same settings)"
        if name.startswith(_CLIENTS):
            return f"unknown setting {name!r}; did you mean 'kafka.{name}'? (settings of the Kafka clients begin with kafka.)"
        spelled = name.lower().removesuffix("_config").replace("_", ".")  # Java's constants: NUM_STREAM_THREADS_CONFIG
        nearest = difflib.get_close_matches(spelled, [*self._single, *_ALSO_CALLED], n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "docs/configuration.md lists those there are"
        return f"unknown setting {name!r}; {hint} (what is for Kafka's clients begins with kafka., for Spark with spark.)"
