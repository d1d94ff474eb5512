"""Answers of the coordinator after which a member does not join again: what the error says was refused, and what to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import kafka.errors as kafka_errors
import pytest

from tidemill.errors import ConfigError, EnvironmentProblem, TidemillError
from tidemill.kafka.group.client import GroupClient
from tidemill.kafka.group.coordinator import GroupCoordinator


class Answers:
    """A client whose coordinator answers each request with one error."""

    request_timeout_ms = 1_000

    def __init__(self, error: type[kafka_errors.KafkaError]) -> None:
        self._code = error.errno

    def request(self, *_: Any, **_named: Any) -> SimpleNamespace:
        return SimpleNamespace(error_code=self._code)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            kafka_errors.InvalidSessionTimeoutError,
            ConfigError,
            "The brokers refuse session.timeout.ms=900 of group shop: expected between their group.min.session.timeout.ms and "
            "group.max.session.timeout.ms.",
        ),
        (
            kafka_errors.InconsistentGroupProtocolError,
            ConfigError,
            "Group shop has members of another kind: this one offers the protocol 'stream' of type 'consumer', as Kafka Streams "
            "does. Choose another application.id, or stop those members.",
        ),
        (
            kafka_errors.InvalidGroupIdError,
            ConfigError,
            "The brokers refuse 'shop' as a group id: choose another application.id.",
        ),
        (
            kafka_errors.GroupMaxSizeReachedError,
            EnvironmentProblem,
            "Group shop is full: raise the brokers' group.max.size or use fewer stream threads.",
        ),
    ],
)
def test_a_join_that_no_repetition_mends_says_what_to_change(
    error: type[kafka_errors.KafkaError], kind: type[TidemillError], said: str
) -> None:
    client = cast("GroupClient", Answers(error))
    coordinator = GroupCoordinator(
        client, group_id="shop", group_instance_id=None, session_timeout_ms=900, rebalance_timeout_ms=60_000
    )
    with pytest.raises(kind) as caught:
        coordinator.join("", b"", "first join")
    assert str(caught.value) == said
