"""Assignors by name, for scenarios.

Decides names only: Kafka's and our own by the names below, anything with a dot as a user's class.
"""

from __future__ import annotations

from tidemill.assignment.balanced import BalancedTaskAssignor
from tidemill.assignment.custom import custom_assignor
from tidemill.assignment.fallback import FallbackPriorTaskAssignor
from tidemill.assignment.high_availability import Compatibility, HighAvailabilityTaskAssignor
from tidemill.assignment.model import Assignor
from tidemill.assignment.sticky import StickyTaskAssignor
from tidemill.errors import ConfigError

WITH_GUARANTEES = frozenset({"high_availability", "balanced"})
"""Assignors that promise what KIP-441 demands."""
NAMES = ("high_availability", "balanced", "sticky", "fallback_prior")


def assignor_named(name: str, compatibility: Compatibility) -> Assignor:
    """ConfigError, with the names that there are, if there is none of this name."""
    match name:
        case "high_availability":
            return HighAvailabilityTaskAssignor(compatibility=compatibility)
        case "balanced":
            return BalancedTaskAssignor()
        case "sticky":
            return StickyTaskAssignor()
        case "fallback_prior":
            return FallbackPriorTaskAssignor()
    if "." in name:
        return custom_assignor(name)
    raise ConfigError(f"assignor {name!r} is not known; expected {', '.join(NAMES)} or package.module.Class")
