"""Scenario of a simulated run: clients, sub-topologies, settings, and what happens when.

Decides shapes and what makes a scenario impossible; ``scenario_file`` knows how its file is written, ``cluster`` what
follows from it. Everything is immutable, so variants of a scenario share what they do not change. Times are in
milliseconds from the start of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tidemill.assignment.choice import DEFAULT
from tidemill.assignment.kip441.high_availability import Compatibility
from tidemill.assignment.model import AssignmentConfig
from tidemill.assignment.scale import ScaleWish
from tidemill.config.values import RebalanceProtocol
from tidemill.errors import ConfigError
from tidemill.ids import ProcessId, TaskId


class Happening(Enum):
    """Kind of an event; the value is its name in a scenario's file."""

    JOIN = "join"
    LEAVE = "leave"
    RESTART = "restart"
    REPLACE = "replace"
    DRAIN = "drain"
    PRODUCE = "produce"
    FIND_STATE = "find-state"
    CRASH = "crash"
    PAUSE = "pause"
    LOST_HEARTBEAT = "lost-heartbeat"
    SLOW_RESTORE = "slow-restore"
    LEADER_CHANGE = "leader-change"
    OFFSETS_UNAVAILABLE = "offsets-unavailable"
    LOAD = "load"


class Disk(Enum):
    """Fate of a client's state directory, with the process id in it."""

    KEPT = "kept"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSubtopology:
    """``records``: what each partition of the input holds (a shorter list is repeated, here and below); ``processed``: how much
    of it is in the changelog when the run begins. The rest is processed once the first clients are at work. ``records_per_s``:
    what each partition gets from then on."""

    number: int
    partitions: int
    is_stateful: bool = False
    records: tuple[int, ...] = ()
    processed: tuple[int, ...] = ()
    records_per_s: tuple[float, ...] = ()
    bytes_per_record: int = 100
    is_source_changelog: bool = False

    def records_at_start(self, partition: int) -> int:
        return self.records[partition % len(self.records)] if self.records else 0

    def rate_of(self, partition: int) -> float:
        return self.records_per_s[partition % len(self.records_per_s)] if self.records_per_s else 0.0

    def processed_at_start(self, partition: int) -> int:
        return self.processed[partition % len(self.processed)] if self.processed else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSpec:
    """One process. ``state``: next offsets of the copies in its state directory. ``joins_ms`` None: only by an event."""

    name: str
    process_id: ProcessId
    threads: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None
    state: Mapping[TaskId, int] = field(default_factory=dict)
    joins_ms: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """``by``: who comes for ``client``. ``for_ms``: how long it is away, paused or slow (None: until the end); a client that
    drains is away from when it has given everything up.

    ``records``: what is produced, or found in the state directory; ``records_per_s``: the speed of restoring meanwhile, or
    with LOAD what comes in each partition from then on.
    """

    at_ms: int
    what: Happening
    client: str | None = None
    by: str | None = None
    for_ms: int | None = None
    disk: Disk = Disk.KEPT
    records: Mapping[TaskId, int] = field(default_factory=dict)
    records_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Durations, and Kafka's group settings.

    A member learns of a rebalance within ``notice_ms``; giving a task up (batch, commit, close) takes ``release_ms``; a
    copy begins to restore ``restore_start_ms`` after it was assigned; the copies that restore on one client share
    ``restore_records_per_s``. A closed copy reports ``closed_copy_lag`` records less than it has (1 for Kafka, whose
    checkpoint names the last record, not the next); after a crash it is found at its last checkpoint, one being written
    every ``checkpoint_records`` (0 = at each record). ``replica_racks``: racks of the partitions' replicas, in turn.
    ``rebalance_protocol``: what the members do before they join, of all members alike. ``promotes_caught_up``: whether a member
    asks for a rebalance when a warm-up of its has caught up (0 or 1); only where there are no standbys, since simulated members
    have no addresses.
    """

    notice_ms: int = 100
    release_ms: int = 50
    restore_start_ms: int = 1_000
    restore_records_per_s: float = 10_000.0
    closed_copy_lag: int = 0
    checkpoint_records: int = 0
    session_timeout_ms: int = 45_000
    initial_rebalance_delay_ms: int = 3_000
    state_cleanup_delay_ms: int = 600_000
    replica_racks: tuple[str, ...] = ()
    rebalance_protocol: RebalanceProtocol = RebalanceProtocol.COOPERATIVE
    promotes_caught_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """An autoscaler that asks for the wanted number of instances every ``every_ms``. ``clients``: those that it starts, in this
    order and ``start_ms`` after it wants them, and drains, the last one first; none: the number is only noted."""

    wish: ScaleWish
    clients: tuple[str, ...] = ()
    every_ms: int = 15_000
    start_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Values of settings by name, as ``variants.with_value`` takes them."""

    name: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``assignor``: a name as ``assignment.choice`` knows them."""

    name: str
    subtopologies: tuple[ScenarioSubtopology, ...]
    clients: tuple[ClientSpec, ...]
    events: tuple[Event, ...] = ()
    settings: AssignmentConfig = field(default_factory=AssignmentConfig)
    surroundings: Surroundings = field(default_factory=Surroundings)
    assignor: str = DEFAULT
    compatibility: Compatibility = Compatibility.KAFKA_4_3
    seed: int = 1
    start: datetime | None = None
    horizon_ms: int = 86_400_000
    measured_from_ms: int | None = None
    variants: tuple[Variant, ...] = ()
    scaling: Scaling | None = None
    description: str = ""

    @property
    def disturbed_ms(self) -> int:
        """Time of the first event after the common start, unless the scenario says from when on to measure."""
        if self.measured_from_ms is not None:
            return self.measured_from_ms
        times = [event.at_ms for event in self.events if event.what not in (Happening.PRODUCE, Happening.FIND_STATE)]
        times += [client.joins_ms for client in self.clients if client.joins_ms]
        return min(times, default=0)

    @property
    def last_event_ms(self) -> int:
        ends = [event.at_ms + (event.for_ms or 0) for event in self.events]
        return max([*ends, *(client.joins_ms or 0 for client in self.clients)], default=0)

    @property
    def tasks(self) -> dict[TaskId, ScenarioSubtopology]:
        return {
            TaskId(part.number, partition): part for part in self.subtopologies for partition in range(part.partitions)
        }


MOST_PARTITIONS = 100_000
MOST_THREADS = 1_000
LATEST_MS = 1 << 53
"""Limit of times and durations, far beyond any run."""


def checked(scenario: Scenario) -> Scenario:
    """The scenario itself; ConfigError with what is wrong with it."""
    names = [client.name for client in scenario.clients]
    problems = [f"two clients are named {name!r}" for name in sorted({n for n in names if names.count(n) > 1})]
    if not scenario.subtopologies:
        problems.append("there is no sub-topology; expected at least one [[subtopologies]]")
    if not scenario.clients:
        problems.append("there is no client; expected at least one [[clients]]")
    partitions = sum(part.partitions for part in scenario.subtopologies)
    if partitions > MOST_PARTITIONS:
        raise ConfigError(f"scenario {scenario.name!r}: {partitions:,} tasks; expected at most {MOST_PARTITIONS:,}")
    tasks = scenario.tasks
    for client in scenario.clients:
        if not 1 <= client.threads <= MOST_THREADS:
            problems.append(f"client {client.name} has {client.threads} threads; expected 1 to {MOST_THREADS:,}")
        problems += [f"client {client.name} has state of {task}, which is no task" for task in client.state if task not in tasks]
    for part in scenario.subtopologies:
        if not 0 <= part.number <= MOST_PARTITIONS:
            problems.append(f"sub-topology {part.number}: expected a number from 0 to {MOST_PARTITIONS:,}")
        if part.partitions < 1:
            problems.append(f"sub-topology {part.number} has {part.partitions} partitions; expected at least 1")
    for event in scenario.events:
        where = f"the event {event.what.value} at {event.at_ms / 1000:g} s"
        problems += [
            f"{where} names {name!r}; the clients are {', '.join(names)}"
            for name in (event.client, event.by)
            if name is not None and name not in names
        ]
        if event.client is None and event.what in _NEEDS_CLIENT:
            problems.append(f"{where} says no client")
        if event.what is Happening.REPLACE and event.by is None:
            problems.append(f"{where} does not say by whom; give by = ...")
        problems += [f"{where} names {task}, which is no task" for task in event.records if task not in tasks]
    if scenario.scaling is not None:
        problems += _of_scaling(scenario.scaling, names)
    if problems:
        raise ConfigError(f"scenario {scenario.name!r}: {'; '.join(problems)}")
    return scenario


def _of_scaling(scaling: Scaling, names: list[str]) -> list[str]:
    problems = [f"[scale] names {name!r}; the clients are {', '.join(names)}" for name in scaling.clients if name not in names]
    if not scaling.wish.capacity_per_s:
        problems.append("[scale] says no capacity_per_s, the records that one instance can process in a second")
    if scaling.every_ms < 1_000:
        problems.append(f"[scale] every_s is {scaling.every_ms / 1000:g}; expected at least 1")
    return problems


_NEEDS_CLIENT = frozenset(
    {
        Happening.JOIN, Happening.LEAVE, Happening.RESTART, Happening.REPLACE, Happening.DRAIN, Happening.FIND_STATE,
        Happening.CRASH, Happening.PAUSE, Happening.LOST_HEARTBEAT, Happening.SLOW_RESTORE,
    }
)  # fmt: skip
