"""The names of the rules by which copies of tasks are placed, each with its text and where it is written.

Decides wording only; the rules themselves are in the modules that apply them.
"""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """``value`` is (name, what it does, source)."""

    ROUND_ROBIN = (
        "round robin",
        "the balanced target deals the stateful tasks out in order, round robin over the clients in order",
        "HighAvailabilityTaskAssignor, active stateful tasks; KIP-441, balanced assignment",
    )
    NEAREST = (
        "nearest balanced target",
        "the balanced target is the one that moves the fewest tasks",
        "KIP-441, convergence: a balanced assignment must not be altered",
    )
    WEIGHTS = (
        "balanced by weight",
        "tasks were exchanged within their sub-topology, or handed over, because their weights made clients uneven",
        "tidemill balanced assignor, weights",
    )
    BALANCED_OVER_THREADS = (
        "balanced over threads",
        "the target was evened out over stream threads: a client with more threads gets more tasks",
        "HighAvailabilityTaskAssignor, balance over threads",
    )
    RACKS = (
        "rack-aware",
        "tasks were swapped between clients so that less is read across racks",
        "KIP-925, rack.aware.assignment.strategy",
    )
    LEAST_LOADED = (
        "least loaded",
        "each standby goes to the least loaded client without a copy of the task",
        "DefaultStandbyTaskAssignor",
    )
    SPREAD_OVER_TAGS = (
        "spread over tags",
        "standbys go to clients whose tags differ from those of the other copies, as far as there are any",
        "ClientTagAwareStandbyTaskAssignor; KIP-708",
    )
    STICKY_STANDBY = (
        "standby kept",
        "a standby stays on a client that has the task's state as long as that client is not overloaded",
        "KIP-441: standbys on the next most caught-up clients",
    )
    LEAST_ACTIVE = (
        "fewest active tasks",
        "a stateless task can run anywhere at once, so it goes to the client with the fewest active tasks per thread",
        "HighAvailabilityTaskAssignor, stateless tasks; KIP-441, stateless tasks",
    )

    @property
    def title(self) -> str:
        return self.value[0]

    @property
    def text(self) -> str:
        return self.value[1]

    @property
    def source(self) -> str:
        return self.value[2]
