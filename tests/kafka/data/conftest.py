"""What tests of the clients share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill.kafka.data.reader import ThreadReader


@pytest.fixture
def reader(bootstrap_servers: str) -> Iterator[ThreadReader]:
    """A stream thread's, which holds nothing yet."""
    made = ThreadReader({"bootstrap.servers": bootstrap_servers, "group.id": "reads without a group", "log_level": 0})
    yield made
    made.close()
