"""Fixtures that all tests share: one Kafka broker for the whole session, and private ones for tests that kill."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tidemill.kafka.broker import EmbeddedBroker

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """The session's broker: never stop, kill or reconfigure it; take names from `unique_name` to be undisturbed."""
    with EmbeddedBroker(environ=os.environ, start_limit_s=120) as running:
        yield running


@pytest.fixture
def bootstrap_servers(broker: EmbeddedBroker) -> str:
    """Where the session's broker listens."""
    return broker.bootstrap_servers


@pytest.fixture
def private_broker() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Makes brokers that only this test uses, to be killed at will: ``private_broker(settings={...})`` is running."""
    with ExitStack() as running:
        yield lambda **options: running.enter_context(
            EmbeddedBroker(**{"environ": os.environ, "start_limit_s": 120, **options})
        )


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Names for topics, groups and applications that no other test on the session's broker uses."""
    return lambda stem: f"{stem}-{next(_numbers)}"
