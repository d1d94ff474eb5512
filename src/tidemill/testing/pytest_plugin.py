"""Fixtures for pytest, there as soon as Tidemill is installed: a driver for each test, one session for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.runtime.instance.configured_topology import Program
    from tidemill.testing.driver import TopologyTestDriver
    from tidemill.topology.durations import Instant


@pytest.fixture(scope="session")
def tidemill_session() -> Iterator[SparkSession]:
    """The session that drivers use; overwrite it to hand in your own."""
    from tidemill.testing.shared_session import close_shared_session, shared_session  # loads Spark

    yield shared_session()
    close_shared_session()


@pytest.fixture
def topology_test_driver(tidemill_session: SparkSession) -> Iterator[Callable[..., TopologyTestDriver]]:
    """Makes drivers that are closed with the test: ``topology_test_driver(builder, config)``. ``start_ms`` and ``topics`` are as
    of ``TopologyTestDriver``."""
    from tidemill.testing.driver import TopologyTestDriver

    with ExitStack() as open_drivers:

        def make(
            topology: Program, config: Mapping[str, object] | None = None, *, start_ms: Instant = 0, topics: Iterable[str] = ()
        ) -> TopologyTestDriver:
            driver = TopologyTestDriver(topology, config, start_ms=start_ms, session=tidemill_session, topics=topics)
            return open_drivers.enter_context(driver)

        yield make
