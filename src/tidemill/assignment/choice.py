"""Assignors by name: ``task.assignor.class``, and the names of the command line.

Decides names only. A name is a simple class name of Kafka's (or the full one), ``balanced``, or ``package.module:Class``
of a user's assignor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.assignment.balanced.assignor import BalancedTaskAssignor
from tidemill.assignment.custom import custom_assignor
from tidemill.assignment.kip441.high_availability import Compatibility, HighAvailabilityTaskAssignor
from tidemill.assignment.model import TaskAssignor
from tidemill.assignment.sticky.assignor import FallbackPriorTaskAssignor, PublicStickyTaskAssignor, StickyTaskAssignor
from tidemill.errors import ConfigError
from tidemill.java_collections.hash_table import task_hash, task_hash_2_7

DEFAULT = "HighAvailabilityTaskAssignor"
NAMES = (DEFAULT, "StickyTaskAssignor", "FallbackPriorTaskAssignor", "balanced")
KAFKAS = frozenset({*NAMES, "LegacyStickyTaskAssignor"} - {"balanced"})
"""Simple class names of Kafka's assignors."""
INTERNAL_PACKAGE = "org.apache.kafka.streams.processor.internals.assignment."
PUBLIC_STICKY = "org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor"


def reads_weights(name: str) -> bool:
    """True for assignors that may read tasks' weights: ``balanced``, and classes of users."""
    return name != PUBLIC_STICKY and name.removeprefix(INTERNAL_PACKAGE) not in KAFKAS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenAssignor:
    """``needs_lags``: whether the leader must fall back on the previous assignment when it can't compute lags."""

    assignor: TaskAssignor
    needs_lags: bool


def choose_assignor(
    name: str = DEFAULT, compatibility: Compatibility | str = Compatibility.KAFKA_4_3
) -> ChosenAssignor:
    """The assignor of that name; ConfigError names those that exist."""
    is_2_7 = Compatibility(compatibility) is Compatibility.KAFKA_2_7
    hash_of_task = task_hash_2_7 if is_2_7 else task_hash
    simple = name.removeprefix(INTERNAL_PACKAGE)
    if simple == DEFAULT:
        return ChosenAssignor(assignor=HighAvailabilityTaskAssignor(compatibility=compatibility), needs_lags=True)
    if simple in ("StickyTaskAssignor", "LegacyStickyTaskAssignor"):
        return ChosenAssignor(assignor=StickyTaskAssignor(task_hash=hash_of_task), needs_lags=False)
    if simple == "FallbackPriorTaskAssignor":
        return ChosenAssignor(assignor=FallbackPriorTaskAssignor(task_hash=hash_of_task), needs_lags=False)
    if name == PUBLIC_STICKY:
        return ChosenAssignor(assignor=PublicStickyTaskAssignor(), needs_lags=True)
    if name == "balanced":
        return ChosenAssignor(assignor=BalancedTaskAssignor(), needs_lags=True)
    if "." not in name and ":" not in name:
        raise ConfigError(
            f"task.assignor.class: no assignor is named {name!r}; there are {', '.join(NAMES)}, and classes of your own as "
            "package.module:Class"
        )
    return ChosenAssignor(assignor=custom_assignor(name), needs_lags=True)
