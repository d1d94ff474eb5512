"""Assignor inputs and answers as JSON values, in the format of the recorded runs of Kafka's classes.

Decides how a record's fields map to an ApplicationState and an Assignment to a record's ``expected``. A field that is
an answer is never read. The caller chooses the assignor and compares the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill.assignment.lag import sparse_lags
from tidemill.assignment.model import (
    LATEST_OFFSET,
    ApplicationState,
    Assignment,
    AssignmentConfig,
    ClientState,
    ConsumerState,
    RackStrategy,
    TaskInfo,
)
from tidemill.documents import Document
from tidemill.ids import ProcessId, TaskId, TopicPartition


def application_state(record: Document, round_: Document | None = None) -> ApplicationState:
    """The input of a one-round record; of a convergence record, the input of one of its ``rounds``."""
    tasks = tuple(map(TaskId.parse, record["tasks"]["all"]))
    stateful = frozenset(map(TaskId.parse, record["tasks"]["stateful"]))
    ends = _offset_sums((round_ or record["tasks"])["end_offset_sums"])
    info = _task_info(tasks, record["tasks"].get("source_topics_per_subtopology", {}), record)
    owner = {partition: task for task, of_task in info.items() for partition in of_task.source_partitions}
    return ApplicationState(
        clients=tuple(client(entry, stateful, ends, owner) for entry in (round_ or record)["clients"]),
        tasks=tasks,
        stateful_tasks=stateful,
        end_offset_sums=ends,
        task_info=info,
        partition_racks={
            topic_partition(text): frozenset(racks) for text, racks in record.get("partition_racks", {}).items()
        },
        config=config(record["configs"]),
    )


def config(entry: Document) -> AssignmentConfig:
    """The settings that are named; defaults for the others."""
    known = {key: entry[key] for key in AssignmentConfig.__dataclass_fields__ if key in entry}
    if "rack_aware_assignment_tags" in known:
        known["rack_aware_assignment_tags"] = tuple(known["rack_aware_assignment_tags"])
    if "rack_aware_assignment_strategy" in known:
        known["rack_aware_assignment_strategy"] = RackStrategy(known["rack_aware_assignment_strategy"])
    return AssignmentConfig(**known)


def client(
    entry: Document,
    stateful: frozenset[TaskId],
    ends: Mapping[TaskId, int],
    owner: Mapping[TopicPartition, TaskId],
) -> ClientState:
    """One client; what the record does not derive (previous tasks, lags) is derived from its consumers."""
    consumers = tuple(
        ConsumerState(
            member=member,
            owned_partitions=tuple(map(topic_partition, said["owned_partitions"])),
            task_offset_sums=_offset_sums(said["task_offset_sums"]),
        )
        for member, said in entry.get("consumers", {}).items()
    )
    sums = {task: total for consumer in consumers for task, total in consumer.task_offset_sums.items()}
    running = {task for task, total in sums.items() if total == LATEST_OFFSET}
    owned = {owner[partition] for consumer in consumers for partition in consumer.owned_partitions}
    active = frozenset(map(TaskId.parse, entry["prev_active_tasks"])) if "prev_active_tasks" in entry else running | owned
    standby = entry.get("prev_standby_tasks")
    return ClientState(
        process_id=ProcessId.parse(entry["process_id"]),
        capacity=entry["capacity"],
        consumers=consumers,
        previous_active=frozenset(active),
        previous_standby=frozenset(sums.keys() - active if standby is None else map(TaskId.parse, standby)),
        lags=_offset_sums(entry["task_lags"]) if "task_lags" in entry else sparse_lags(sums, stateful, ends),
        tags=entry.get("tags") or {},
        rack=entry.get("rack"),
    )


def expected(assignment: Assignment, stateful: frozenset[TaskId]) -> dict[str, object]:
    """An answer in the shape of a record's ``expected``."""
    return {
        "clients": {
            str(process_id): {
                "active": texts(tasks.active),
                "standby": texts(tasks.standby),
                "stateful_active": texts(tasks.active & stateful),
                "stateless_active": texts(tasks.active - stateful),
            }
            for process_id, tasks in sorted(assignment.clients.items())
        },
        "followup_needed": assignment.followup_needed,
    }


def texts(tasks: Iterable[TaskId]) -> list[str]:
    """Task ids in order, as text."""
    return [str(task) for task in sorted(tasks)]


def topic_partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def _offset_sums(entry: Mapping[str, int]) -> dict[TaskId, int]:
    return {TaskId.parse(task): total for task, total in entry.items()}


def _task_info(
    tasks: Iterable[TaskId], topics_per_subtopology: Mapping[str, int], record: Document
) -> dict[TaskId, TaskInfo]:
    """Sub-topology s reads the topics ``in<s>a``, ``in<s>b`` ..., as many as the record says."""
    changelogs = record.get("changelog_partitions", {})
    return {
        task: TaskInfo(
            source_partitions=tuple(
                TopicPartition(f"in{task.subtopology}{letter}", task.partition)
                for letter in "abcdefghij"[: topics_per_subtopology.get(str(task.subtopology), 0)]
            ),
            changelog_partitions=tuple(map(topic_partition, changelogs.get(str(task), ()))),
        )
        for task in tasks
    }
