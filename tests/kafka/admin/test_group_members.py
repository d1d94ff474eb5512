"""The members of a group as its coordinator describes them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.freezing import freeze, thaw
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import EnvironmentProblem
from tidemill.kafka.admin import group_members
from tidemill.kafka.admin.group_members import live_group


@pytest.fixture
def freezing(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """A broker that stops once it is known as the group's coordinator, before it describes the group."""
    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as broker:
        described: Callable[..., Any] = group_members._described

        def asked(client: group_members.GroupClient, group: str) -> Any:
            client.coordinator()
            freeze(broker.pid)
            return described(client, group)

        monkeypatch.setattr(group_members, "_described", asked)
        yield broker
        thaw(broker.pid)


def test_a_coordinator_that_stops_answering_is_waited_for_within_the_limit(freezing: EmbeddedBroker) -> None:
    settings = {"bootstrap_servers": freezing.bootstrap_servers, "request_timeout_ms": 90_000}
    began = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=r"'words' was not found stable within 3 s \(no broker describes it"):
        live_group(settings, "words", limit_s=3)
    assert time.monotonic() - began < 60
