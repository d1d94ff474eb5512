"""Testing a topology without a broker, an application on an embedded one, and an assignor on its own.

``TopologyTestDriver`` runs the Spark plan that an instance runs, with topics in memory; with pytest, the fixtures
``topology_test_driver`` and ``tidemill_session`` are there as soon as Tidemill is installed. Named after
``kafka-streams-test-utils``. Each name is loaded on first use: pytest imports this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.lazy_names import load_name

if TYPE_CHECKING:
    from tidemill.assignment.invariants import guarantee_violations, violations
    from tidemill.embedded.broker import EmbeddedBroker
    from tidemill.embedded.broker_security import BrokerSecurity
    from tidemill.testing.driver import TopologyTestDriver
    from tidemill.testing.topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = [
    "BrokerSecurity",
    "EmbeddedBroker",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "guarantee_violations",
    "violations",
]

_MODULES = {
    "BrokerSecurity": "tidemill.embedded.broker_security",
    "EmbeddedBroker": "tidemill.embedded.broker",
    "TestInputTopic": "tidemill.testing.topics",
    "TestOutputTopic": "tidemill.testing.topics",
    "TestRecord": "tidemill.testing.topics",
    "TopologyTestDriver": "tidemill.testing.driver",
    "guarantee_violations": "tidemill.assignment.invariants",
    "violations": "tidemill.assignment.invariants",
}


def __getattr__(name: str) -> object:
    found = globals()[name] = load_name(__name__, name, _MODULES)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
