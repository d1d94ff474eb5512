"""Testing a topology without a broker, an application on an embedded one, and an assignor on its own.

``TopologyTestDriver`` runs the Spark plan that an instance runs, with topics in memory; with pytest, the fixtures
``topology_test_driver`` and ``tidemill_session`` are there as soon as Tidemill is installed. Named after
``kafka-streams-test-utils``. Each name is loaded on first use: pytest imports this package in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
