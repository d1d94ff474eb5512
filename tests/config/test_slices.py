"""Slices of the settings: each field is a setting of the same type, and a tool's slice needs nothing that it doesn't use."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_type_hints

import pytest

from tidemill.config import slices
from tidemill.config.slices import ClientsConfig, HttpConfig, ThreadConfig, TopicsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError

SLICES = [
    kind for _, kind in inspect.getmembers(slices, inspect.isclass) if kind.__module__ == slices.__name__
]
SECRETS = {
    "tidemill.http.token": "a-marked-token-of-32-characters-",
    "tidemill.http.ssl.key.password": "marked-password",
    "kafka.sasl.jaas.config": 'x required username="u" password="marked-login";',
    "spark.ssl.keyPassword": "marked-spark",
}


@pytest.mark.parametrize("kind", SLICES)
def test_a_slices_fields_are_settings_with_the_same_types(kind: type) -> None:
    settings = get_type_hints(StreamsConfig)
    wanted = get_type_hints(kind)
    assert wanted
    assert wanted == {name: settings.get(name) for name in wanted}


@pytest.mark.parametrize("kind", SLICES)
def test_a_slice_has_the_values_of_the_settings_that_it_is_cut_from(kind: Any) -> None:
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "a:1", "num.stream.threads": 7})
    cut = config.slice(kind)
    assert dataclasses.asdict(cut) == {each.name: getattr(config, each.name) for each in dataclasses.fields(kind)}


@pytest.mark.parametrize("kind", SLICES)
def test_no_slice_shows_a_credential(kind: Any) -> None:
    given = {"application.id": "app", "bootstrap.servers": "a:1", "tidemill.http.ssl.keystore.location": "own.pem", **SECRETS}
    assert "marked" not in repr(StreamsConfig.of(given).slice(kind))


@pytest.mark.parametrize(
    ("guarantee", "interval_ms", "rest_ms"),
    [("exactly_once_v2", 200, 200), ("exactly_once_v2", 0, 0), ("at_least_once", 30_000, 50), ("at_least_once", 10, 10)],
)
def test_batches_are_a_commit_interval_apart_and_at_least_once_no_more_than_50_ms(
    guarantee: str, interval_ms: int, rest_ms: int
) -> None:
    given = {"processing.guarantee": guarantee, "commit.interval.ms": interval_ms}
    assert StreamsConfig.read_slice(ThreadConfig, given).rest_ms == rest_ms


def test_a_tools_slice_needs_only_the_names_that_it_has() -> None:
    assert StreamsConfig.read_slice(HttpConfig, {}).http_client_auth == "none"
    assert StreamsConfig.read_slice(ClientsConfig, {"bootstrap.servers": "a:1"}).bootstrap_servers == "a:1"
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        StreamsConfig.read_slice(ClientsConfig, {"application.id": "app"})
    with pytest.raises(ConfigError, match=r"application\.id is missing"):
        StreamsConfig.read_slice(TopicsConfig, {"bootstrap.servers": "a:1"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tidemill.http.tokn": "x"}, r"did you mean .tidemill\.http\.token"),
        ({"num.stream.threads": "many"}, r"num\.stream\.threads is 'many', expected a whole number"),
        ({"tidemill.http.ssl.truststore.location": "ca.pem"}, r"needs tidemill\.http\.ssl\.keystore\.location"),
    ],
)  # fmt: skip
def test_what_is_given_is_checked_as_for_an_instance(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        StreamsConfig.read_slice(HttpConfig, given)


@pytest.mark.parametrize(("poll_ms", "limit_s"), [(300_000, 60.0), (120_000, 60.0), (30_000, 15.0), (1, 0.0005)])
def test_a_batch_may_not_take_so_long_that_the_group_refuses_its_commit(poll_ms: int, limit_s: float) -> None:
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "b:1", "max.poll.interval.ms": poll_ms})
    assert config.slice(ThreadConfig).batch_limit_s == limit_s
