"""Contradictions between settings.

Each rule looks at settings that are valid by themselves and raises a ConfigError that names both and a way out.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tidemill.config.values import NamedHandler, ProcessingGuarantee
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.config.streams_config import StreamsConfig

LEAST_PROBING_INTERVAL_MS = 60_000
MOST_TAGS, LONGEST_TAG_KEY, LONGEST_TAG_VALUE = 5, 20, 30
"""Limits of one client's tags (KIP-708)."""


NEEDED = {"application_id": "application.id", "bootstrap_servers": "bootstrap.servers"}
"""Settings that an instance can't do without, by attribute."""


def check(config: StreamsConfig, needed: Collection[str] = NEEDED) -> None:
    """Applies every rule; of the settings that have no default these ``needed`` ones must be given."""
    for attribute, name in NEEDED.items():
        if attribute in needed and not getattr(config, attribute):
            raise ConfigError(f"{name} is missing: give it in the settings, or with --set {name}=...")
    for rule in (_commits_are_in_time, _group_timings, _dead_letters, _tags, _http):
        rule(config)


def _commits_are_in_time(config: StreamsConfig) -> None:
    is_exactly_once = config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    if is_exactly_once and config.commit_interval_ms > config.transaction_timeout_ms:
        raise ConfigError(
            f"commit.interval.ms={config.commit_interval_ms} is above transaction.timeout.ms="
            f"{config.transaction_timeout_ms}: the broker would abort each transaction before its commit"
        )


def _group_timings(config: StreamsConfig) -> None:
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError(
            f"heartbeat.interval.ms={config.heartbeat_interval_ms} must be below session.timeout.ms="
            f"{config.session_timeout_ms}; a third of it or less is advised"
        )
    if config.probing_rebalance_interval_ms < LEAST_PROBING_INTERVAL_MS and not config.short_intervals:
        raise ConfigError(
            f"probing.rebalance.interval.ms is {config.probing_rebalance_interval_ms}, expected a whole number from "
            f"{LEAST_PROBING_INTERVAL_MS} on (KIP-441); tests may set tidemill.test.short.intervals=true"
        )


def _dead_letters(config: StreamsConfig) -> None:
    fail, aside = NamedHandler.FAIL, NamedHandler.DEAD_LETTER
    handlers = {
        "deserialization.exception.handler": config.deserialization_exception_handler,
        "processing.exception.handler": config.processing_exception_handler,
        "production.exception.handler": config.production_exception_handler,
    }
    topic = config.dead_letter_topic
    for name, handler in handlers.items():
        if handler is aside and not topic:
            raise ConfigError(f"{name}=dead-letter needs errors.dead.letter.queue.topic.name")
    if topic and all(handler is fail for handler in handlers.values()):
        raise ConfigError(
            f"errors.dead.letter.queue.topic.name={topic} is given, but no handler writes dead letters: set one of "
            f"{', '.join(handlers)} to continue or dead-letter, or leave the topic out"
        )


def _tags(config: StreamsConfig) -> None:
    tags, spread_over = config.client_tags, config.rack_aware_assignment_tags
    if (count := max(len(tags), len(spread_over))) > MOST_TAGS:
        raise ConfigError(f"there are {count} client tags, at most {MOST_TAGS} are allowed")
    for key, value in tags.items():
        if len(key) > LONGEST_TAG_KEY or len(value) > LONGEST_TAG_VALUE:
            limits = f"a key has at most {LONGEST_TAG_KEY} characters and a value at most {LONGEST_TAG_VALUE}"
            raise ConfigError(f"client.tag.{key}={value}: {limits}")
        if not (key.isprintable() and value.isprintable()):
            raise ConfigError(f"client.tag {key!r} is {value!r}: expected printable characters, other members get to see it")
    missing = [tag for tag in spread_over if tag not in tags]
    if missing:
        raise ConfigError(f"rack.aware.assignment.tags names {missing[0]}: give client.tag.{missing[0]} too")


def _http(config: StreamsConfig) -> None:
    """Beyond this machine only with a token or certificates, and under an address that others can use."""
    has_certificates = config.http_client_auth == "required"
    if has_certificates and not (config.http_keystore and config.http_truststore):
        raise ConfigError(
            "tidemill.http.ssl.client.auth=required needs tidemill.http.ssl.keystore.location and "
            "tidemill.http.ssl.truststore.location too"
        )
    if (config.http_truststore or config.http_key_password) and not config.http_keystore:
        raise ConfigError("tidemill.http.ssl.* needs tidemill.http.ssl.keystore.location: a server's TLS needs a private key")
    host = config.http_listen.rpartition(":")[0].strip("[]")
    if host and not is_loopback(host) and not config.http_token and not has_certificates:
        raise ConfigError(
            f"tidemill.http.listen={config.http_listen} can be reached from other machines: give tidemill.http.token too "
            "(the same for all instances), or tidemill.http.ssl.client.auth=required with certificates, or listen on localhost"
        )
    if host in ("0.0.0.0", "::") and not config.application_server:
        raise ConfigError(
            f"tidemill.http.listen={config.http_listen} is every address of this machine: give application.server too, "
            "the one under which other instances reach it"
        )


def is_loopback(host: str) -> bool:
    """True if only this machine can reach an address of this name."""
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
