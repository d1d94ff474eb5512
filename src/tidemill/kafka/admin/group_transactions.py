"""Which transactions of an application are open: what confluent-kafka's admin client can't ask."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaAdminClient
from kafka.admin import TransactionState

from tidemill.errors import RetriableError


def open_transactions(client_settings: Mapping[str, Any], prefix: str, *, timeout_ms: int = 10_000) -> list[str]:
    """The transactional ids that begin with ``prefix`` and have a transaction under way, sorted.

    ``client_settings`` under kafka-python's names. RetriableError if the brokers did not tell.
    """
    try:
        client = KafkaAdminClient(**{**client_settings, "request_timeout_ms": timeout_ms})
        try:
            listings = client.list_transactions(state_filters=[TransactionState.ONGOING.value])
        finally:
            with contextlib.suppress(Exception):
                client.close()
    except kafka_errors.KafkaError as problem:
        raise RetriableError(f"the brokers did not tell which transactions are open: {problem}") from problem
    return sorted(
        listing.transactional_id
        for found in listings.values()
        for listing in found
        if listing.transactional_id.startswith(prefix)
    )
