"""Testing a topology without a broker: on the Spark plan that an instance runs, with topics in memory.

``TopologyTestDriver`` runs it; with pytest, the fixtures ``topology_test_driver`` and ``tidemill_session`` are there as soon as
Tidemill is installed. Named after ``kafka-streams-test-utils``. Loaded on first use: pytest imports this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.testing.driver import TopologyTestDriver
    from tidemill.testing.topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]


def __getattr__(name: str) -> Any:
    if name == "TopologyTestDriver":
        from tidemill.testing import driver

        return getattr(driver, name)
    if name in __all__:
        from tidemill.testing import topics

        return getattr(topics, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
