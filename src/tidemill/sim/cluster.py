"""Run a scenario in virtual time: clients, group, leader and members together, with auditors watching each step.

Decides what each event does and when the run is over. Every rule about assignments is in the functions that a running
instance uses (``membership.leader``, ``membership.member``, the assignors); nothing of them is repeated here.
Invariant: the same scenario and the same seed give the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tidemill.assignment.choice import choose_assignor, reads_weights
from tidemill.assignment.kip441.high_availability import Compatibility
from tidemill.assignment.threads import assign_to_threads, assign_to_threads_2_7
from tidemill.errors import assert_never
from tidemill.ids import ProcessId, TaskId
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.leader_log import LogLevel
from tidemill.membership.member_state import MemberConfig
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata
from tidemill.sim.agenda import Agenda
from tidemill.sim.auditors import Auditors, auditors_for
from tidemill.sim.client import SimulatedClient
from tidemill.sim.copies import SimulatedStateDirectory
from tidemill.sim.group import Draws, Group, changelog_topic, source_topic
from tidemill.sim.history import Move, Outage, Round, SimulatedRun, ThreadTasks
from tidemill.sim.logs import SimulatedLog
from tidemill.sim.scaling import Scaler
from tidemill.sim.scenario import ClientSpec, Disk, Event, Happening, Scenario
from tidemill.sim.thread import Thread

FIRST_RECORDS_AFTER_MS = 2_000
"""After the first rebalance: what the inputs hold beyond what is in the changelogs, so that every copy has it from its
owner and nothing is left to restore when the first event comes."""
APPLICATION = "simulated"
MOST_ROUNDS = 5_000
"""A group that rebalances more often than this is not going to settle."""


def simulate(scenario: Scenario, draws: Draws, auditors: Auditors | None = None) -> SimulatedRun:
    """The whole run. ``draws`` is a ``random.Random`` seeded with ``scenario.seed``; ``auditors`` None: all that apply."""
    cluster = Cluster(scenario, draws)
    watching = auditors_for(scenario) if auditors is None else auditors
    violations: list[str] = []
    seen = 0
    settled_ms = -1
    for action, changes_copies in cluster.agenda.due(scenario.last_event_ms + scenario.horizon_ms):
        if settled_ms != cluster.agenda.now_ms:
            cluster.settle_positions()
            settled_ms = cluster.agenda.now_ms
        action()
        if changes_copies:
            cluster.settle_positions()
        for of_step in watching.of_steps:
            violations += [f"{cluster.agenda.now_ms / 1000:g} s: {wrong}" for wrong in of_step(cluster.clients.values())]
        for round_ in cluster.rounds[seen:]:
            for of_round in watching.of_rounds:
                violations += [f"round {round_.number}: {wrong}" for wrong in of_round(round_)]
        seen = len(cluster.rounds)
        if seen >= MOST_ROUNDS:
            break
    return cluster.run(tuple(violations))


class Cluster:
    """The working state of one run."""

    def __init__(self, scenario: Scenario, draws: Draws) -> None:
        self.scenario, self.agenda, self.draws = scenario, Agenda(), draws
        self.logs = {
            task: SimulatedLog(
                task=task,
                records=part.processed_at_start(task.partition),
                processed=part.processed_at_start(task.partition),
                records_per_s=part.rate_of(task.partition),
                bytes_per_record=part.bytes_per_record,
                is_stateful=part.is_stateful,
            )
            for task, part in scenario.tasks.items()
        }
        self.clients: dict[str, SimulatedClient] = {}
        self.names: dict[ProcessId, str] = {}
        self.rounds: list[Round] = []
        self._retired: list[SimulatedStateDirectory] = []
        self._ticks: dict[str, int] = {}
        self._topology = _topology(scenario)
        self._specs = {client.name: client for client in scenario.clients}
        is_2_7 = scenario.compatibility is Compatibility.KAFKA_2_7
        self.group = Group(
            scenario,
            self.agenda,
            draws,
            self.logs,
            self._topology,
            choose_assignor(scenario.assignor, scenario.compatibility),
            assign_to_threads_2_7 if is_2_7 else assign_to_threads,
            self._record,
        )
        for client in scenario.clients:
            if client.joins_ms is not None:
                self.agenda.at(client.joins_ms, lambda client=client: self._start(client))  # type: ignore[misc]
        first_records_ms = scenario.surroundings.initial_rebalance_delay_ms + FIRST_RECORDS_AFTER_MS
        self.agenda.at(first_records_ms, self._produce_first_records)
        for event in scenario.events:
            self.agenda.at(event.at_ms, lambda event=event: self._happen(event))  # type: ignore[misc]
        self._scaler: Scaler | None = None
        if scenario.scaling is not None:
            self._scaler = Scaler(scenario.scaling, self, until_ms=scenario.last_event_ms)
            self._scaler.begin()

    # --- time ---------------------------------------------------------------------------------------------------------

    def settle_positions(self) -> None:
        """Bring copies to the present; actives whose state is complete begin to run."""
        now_ms = self.agenda.now_ms
        for name, client in self.clients.items():
            if not client.directory.is_restoring:
                continue
            client.directory.advance(now_ms)
            if client.is_alive and not client.is_paused:
                for thread in client.threads:
                    if not thread.has_ended:
                        thread.run_restored(now_ms)
                        if self.scenario.surroundings.promotes_caught_up:
                            thread.ask_for_promotions(self.scenario.settings.num_standby_replicas)
            soonest = client.directory.next_finish_ms(now_ms)
            if soonest is not None and not now_ms < self._ticks.get(name, -1) <= soonest:
                self._ticks[name] = soonest
                self.agenda.at(soonest, _only_settle, changes_copies=False)

    # --- clients ------------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """The process of this name, which does not run."""
        self._start(self._specs[name])

    def _start(self, spec: ClientSpec) -> None:
        """A process begins, with the state directory that it has, else with a new one."""
        client = self.clients.get(spec.name)
        if client is not None and client.is_alive:
            return
        if client is None:
            speed = self.scenario.surroundings.restore_records_per_s
            directory = SimulatedStateDirectory(self.logs, spec.state, speed)
            client = self.clients[spec.name] = SimulatedClient(spec, spec.process_id, directory, self.agenda)
        self.names[client.process_id] = spec.name
        client.directory.drop_unused(self.agenda.now_ms - self.scenario.surroundings.state_cleanup_delay_ms)
        config = MemberConfig(process_id=client.process_id, client_tags=dict(spec.tags), topology=self._topology.by_number)
        client.started([self._thread(client, config, number) for number in range(1, spec.threads + 1)])
        for thread in client.threads:
            self.group.enter(thread, spec.rack, f"{spec.name} joined")

    def _thread(self, client: SimulatedClient, config: MemberConfig, number: int) -> Thread:
        consumer = UUID(int=self.draws.getrandbits(128), version=4)
        name = f"{APPLICATION}-{client.process_id}-StreamThread-{number}-consumer-{consumer}"
        measures_s = self.scenario.settings.probing_rebalance_interval_ms / 1e3 if reads_weights(self.scenario.assignor) else None
        return Thread(name, client, config, self.group, self.agenda, self.logs, self.scenario.surroundings, measures_s)

    def _lose_disk(self, client: SimulatedClient) -> None:
        """State and process id are gone."""
        self._retired.append(client.directory)
        client.directory = SimulatedStateDirectory(self.logs, {}, client.directory.records_per_s)
        client.process_id = ProcessId.of(UUID(int=self.draws.getrandbits(128), version=4))

    def _evict_silent(self, client: SimulatedClient, life: int, why: str) -> None:
        """After the session timeout, unless the process was heard of meanwhile."""

        def time_out() -> None:
            if client.starts == life and (client.is_paused or not client.is_alive):
                for thread in gone:
                    self.group.evict(thread, f"{client.spec.name} {why}")

        gone = list(client.threads)
        self.agenda.after(self.scenario.surroundings.session_timeout_ms, time_out)

    def _produce_first_records(self) -> None:
        for task, part in self.scenario.tasks.items():
            count = part.records_at_start(task.partition) - part.processed_at_start(task.partition)
            self.logs[task].produce(max(count, 0), self.agenda.now_ms)

    # --- events -------------------------------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        client = self.clients.get(event.client or "")
        match event.what:
            case Happening.JOIN:
                self._start(self._specs[event.client or ""])
            case Happening.PRODUCE:
                for task, count in event.records.items():
                    self.logs[task].produce(count, self.agenda.now_ms)
            case Happening.LOAD:
                for log in self.logs.values():
                    log.load(event.records_per_s, self.agenda.now_ms)
            case Happening.LEADER_CHANGE:
                if self.group.leader is not None:
                    self.group.evict(self.group.leader, "the leader's connection was lost")
            case Happening.OFFSETS_UNAVAILABLE:
                self.group.offsets_unavailable_until_ms = self.agenda.now_ms + (event.for_ms or 0)
            case _ if client is None:
                pass  # a process that never began
            case Happening.LEAVE | Happening.RESTART | Happening.REPLACE:
                self._leave(client, event)
            case Happening.DRAIN:
                self._drain(client, event)
            case Happening.CRASH:
                self._crash(client, event)
            case Happening.PAUSE:
                self._pause(client, event)
            case Happening.LOST_HEARTBEAT:
                self._lose_heartbeat(client)
            case Happening.SLOW_RESTORE:
                self._slow_down(client, event)
            case Happening.FIND_STATE:
                self._find_state(client, event)
            case _:
                assert_never(event.what)

    def _leave(self, client: SimulatedClient, event: Event) -> None:
        if client.is_alive:
            client.close(then=lambda: self._gone(client, event))

    def _drain(self, client: SimulatedClient, event: Event) -> None:
        if client.is_alive:
            client.drain(then=lambda: self._gone(client, event))

    def _gone(self, client: SimulatedClient, event: Event) -> None:
        if event.disk is Disk.LOST:
            self._lose_disk(client)
        if event.by is not None:
            self._start(self._specs[event.by])
        elif event.what is Happening.RESTART or (event.what is Happening.DRAIN and event.for_ms is not None):
            self.agenda.after(event.for_ms or 0, lambda: self._start(client.spec))

    def _crash(self, client: SimulatedClient, event: Event) -> None:
        if not client.is_alive:
            return
        client.crash(self.scenario.surroundings.checkpoint_records)
        life, gone = client.starts, list(client.threads)
        self._evict_silent(client, life, "went silent")
        if event.disk is Disk.LOST:
            self._lose_disk(client)
        if event.for_ms is not None:
            self.agenda.after(event.for_ms, lambda: self._start_again(client, gone))

    def _start_again(self, client: SimulatedClient, gone: Sequence[Thread]) -> None:
        """The members of the crashed process are still in the group until their session times out."""
        timeout = self.scenario.surroundings.session_timeout_ms
        self._start(client.spec)
        for thread in gone:
            self.agenda.after(timeout, lambda thread=thread: self.group.evict(thread, "went silent"))  # type: ignore[misc]

    def _pause(self, client: SimulatedClient, event: Event) -> None:
        if not client.is_alive or client.is_paused:
            return
        client.pause()
        life = client.starts
        self._evict_silent(client, life, "was paused longer than its session")
        if event.for_ms is not None:
            self.agenda.after(event.for_ms, lambda: client.resume() if client.starts == life else None)

    def _lose_heartbeat(self, client: SimulatedClient) -> None:
        for thread in client.threads:
            self.group.evict(thread, f"the heartbeat of {client.spec.name} was lost")

    def _slow_down(self, client: SimulatedClient, event: Event) -> None:
        def restore_at(records_per_s: float) -> None:
            client.directory.advance(self.agenda.now_ms)
            client.directory.records_per_s = records_per_s

        usual = self.scenario.surroundings.restore_records_per_s
        restore_at(event.records_per_s)
        if event.for_ms is not None:
            self.agenda.after(event.for_ms, lambda: restore_at(usual))

    def _find_state(self, client: SimulatedClient, event: Event) -> None:
        for task, offset in event.records.items():
            if task not in client.directory.copies:
                client.directory.open(task, "", self.agenda.now_ms, self.agenda.now_ms)
                client.directory.close(task, self.agenda.now_ms)
                client.directory.copies[task].position = float(offset)

    # --- records ------------------------------------------------------------------------------------------------------

    def _record(self, cause: str, leader: str, answer: StreamsGroupAssignment) -> None:
        assert answer.state is not None
        assert answer.assignment is not None
        before = {task: client.process_id for client in answer.state.clients for task in client.previous_active}
        after = {task: p for p, held in answer.assignment.clients.items() for task in held.active}
        given = {task for assigned in answer.members.values() for task in assigned.info.active_tasks}
        self.rounds.append(
            Round(
                number=len(self.rounds) + 1,
                time_ms=self.agenda.now_ms,
                cause=cause,
                leader=leader,
                state=answer.state,
                assignment=answer.assignment,
                threads={
                    member: ThreadTasks(
                        active=tuple(_plain(dict.fromkeys(assigned.info.active_tasks))),
                        standby=tuple(sorted(_plain(assigned.info.standby_tasks))),
                    )
                    for member, assigned in sorted(answer.members.items())
                },
                withheld=tuple(sorted(after.keys() - given)),
                is_stable=answer.is_stable,
                errors=tuple(line.text for line in answer.log if line.level is LogLevel.ERROR),
                moves=tuple(
                    Move(task=task, before=before.get(task), after=after[task])
                    for task in sorted(task for task, process_id in after.items() if before.get(task) != process_id)
                ),
            )
        )

    def run(self, violations: tuple[str, ...]) -> SimulatedRun:
        for log in self.logs.values():
            log.close_books(self.agenda.now_ms)
        directories = [*self._retired, *(client.directory for client in self.clients.values())]
        restored: dict[TaskId, float] = {}
        for directory in directories:
            for task, records in directory.restored_records.items():
                restored[task] = restored.get(task, 0.0) + records
        ran_again = [to_ms for log in self.logs.values() for _, to_ms in log.outages]
        is_balanced = bool(self.rounds) and self.rounds[-1].is_stable and all(log.runner for log in self.logs.values())
        return SimulatedRun(
            scenario=self.scenario,
            rounds=tuple(self.rounds),
            names=dict(self.names),
            outages=tuple(
                Outage(task=log.task, from_ms=from_ms, to_ms=to_ms)
                for log in self.logs.values()
                for from_ms, to_ms in log.outages
            ),
            restored_records={task: round(records) for task, records in sorted(restored.items())},
            restored_bytes=round(sum(n * self.logs[task].bytes_per_record for task, n in restored.items())),
            balanced_ms=max([self.rounds[-1].time_ms, *ran_again]) if is_balanced else None,
            violations=violations,
            scale=() if self._scaler is None else tuple(self._scaler.looks),
        )


def _only_settle() -> None:
    """Does nothing: the group settles after each entry of the agenda, and a completed copy needs that."""


def _plain(tasks: object) -> list[TaskId]:
    assert hasattr(tasks, "__iter__")
    return [task for task in tasks if isinstance(task, TaskId)]


def _topology(scenario: Scenario) -> TopologyMetadata:
    """Each sub-topology reads one topic of its own; one with state writes a changelog, or reads it as its source."""
    parts = []
    internal = {}
    for part in sorted(scenario.subtopologies, key=lambda part: part.number):
        info = TopicsInfo(subtopology=part.number, source_topics=frozenset({source_topic(part.number)}))
        if part.is_stateful and part.is_source_changelog:
            info = replace(info, changelog_topics=info.source_topics)
        elif part.is_stateful:
            name = changelog_topic(part.number)
            info = replace(info, changelog_topics=frozenset({name}))
            internal[name] = InternalTopicConfig(name=name, is_repartition=False)
        parts.append(info)
    return TopologyMetadata(subtopologies=tuple(parts), internal_topics=internal)
