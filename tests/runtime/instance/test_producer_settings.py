"""How long a stream thread's producer holds records back."""

from __future__ import annotations

import pytest

from tidemill.config.streams_config import StreamsConfig
from tidemill.runtime.instance.thread_maker import producer_settings

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("given", "wanted_ms"),
    [({}, 6_000), ({"producer.delivery.timeout.ms": 4_000}, 4_000), ({"producer.delivery.timeout.ms": 9_000}, 6_000)],
)
def test_at_least_once_records_are_sent_within_the_session_or_never(given: dict[str, object], wanted_ms: int) -> None:
    config = StreamsConfig.of({**NEEDED, "session.timeout.ms": 6_000, **given})
    assert producer_settings(config, is_transactional=False)["delivery.timeout.ms"] == wanted_ms


def test_a_transaction_has_its_own_limit() -> None:
    settings = producer_settings(StreamsConfig.of({**NEEDED, "session.timeout.ms": 6_000}), is_transactional=True)
    assert settings["transaction.timeout.ms"] == 10_000
    assert "delivery.timeout.ms" not in settings
