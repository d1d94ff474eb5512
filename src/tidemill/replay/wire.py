"""Recompute lines of Kafka's wire vectors: the fields of a line in, ``hex`` and ``decoded`` out.

Decides only how a line's JSON maps to values and back; the bytes are decided by ``tidemill.membership.wire``.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.assignment.model import LONG_MAX
from tidemill.documents import Document
from tidemill.errors import WireFormatError
from tidemill.ids import ProcessId, TopicPartition
from tidemill.membership.wire import (
    AnySubscription,
    AssignmentInfo,
    FutureSubscription,
    HostInfo,
    SubscriptionInfo,
    WireTaskId,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    parse_wire_task,
)


def replay_wire(line: Document) -> dict[str, object]:
    """``{"hex": ..., "decoded": ...}`` of a line, or ``{"error": ...}``; one of type ``...Decode`` gives the bytes."""
    try:
        match line["type"]:
            case "SubscriptionInfo":
                encoded = encode_subscription(_subscription(line))
                return {"hex": encoded.hex(), "decoded": _subscription_json(decode_subscription(encoded))}
            case "AssignmentInfo":
                encoded = encode_assignment(_assignment(line))
                return {"hex": encoded.hex(), "decoded": _assignment_json(decode_assignment(encoded))}
            case "SubscriptionInfoDecode":
                decoded = _subscription_json(decode_subscription(bytes.fromhex(line["hex"])))
                return {"hex": line["hex"], "decoded": decoded}
            case "AssignmentInfoDecode":
                given = _assignment_json(decode_assignment(bytes.fromhex(line["hex"])))
                return {"hex": line["hex"], "decoded": given}
            case other:
                raise WireFormatError(f"a line of type {other!r}; expected SubscriptionInfo or AssignmentInfo")
    except WireFormatError as error:
        return {"error": str(error)}


def _subscription(line: Document) -> SubscriptionInfo:
    return SubscriptionInfo(
        version=line["version"],
        latest_supported_version=line["latest_supported_version"],
        process_id=ProcessId.parse(line["process_id"]),
        user_endpoint=line["user_end_point"],
        task_offset_sums={parse_wire_task(task): offset for task, offset in line["task_offset_sums"]},
        unique_field=line["unique_field"],
        error_code=line["error_code"],
        client_tags=line["client_tags"],
    )


def _subscription_json(info: AnySubscription) -> dict[str, object]:
    if isinstance(info, FutureSubscription):
        return {"version": info.version, "latest_supported_version": info.latest_supported_version}
    return {
        "version": info.version,
        "latest_supported_version": info.latest_supported_version,
        "process_id": str(info.process_id),
        "user_end_point": info.user_endpoint,
        "task_offset_sums": {str(task): info.task_offset_sums[task] for task in _sorted(info.task_offset_sums)},
        "prev_tasks": [str(task) for task in _sorted(info.previous_tasks)],
        "standby_tasks": [str(task) for task in _sorted(info.standby_tasks)],
        "error_code": info.error_code,
        "client_tags": dict(info.client_tags),
    }


def _assignment(line: Document) -> AssignmentInfo:
    next_rebalance = line["next_rebalance_ms"]
    return AssignmentInfo(
        version=line["version"],
        commonly_supported_version=line["commonly_supported_version"],
        active_tasks=tuple(parse_wire_task(task) for task in line["active_tasks"]),
        standby_tasks={parse_wire_task(task): _partitions(parts) for task, parts in line["standby_tasks"]},
        partitions_by_host=_by_host(line["partitions_by_host"]),
        standby_partitions_by_host=_by_host(line["standby_partitions_by_host"]),
        error_code=line["error_code"],
        next_rebalance_ms=LONG_MAX if next_rebalance == "unset" else next_rebalance,
    )


def _assignment_json(info: AssignmentInfo) -> dict[str, object]:
    return {
        "version": info.version,
        "commonly_supported_version": info.commonly_supported_version,
        "active_tasks": [str(task) for task in info.active_tasks],
        "error_code": info.error_code,
        "next_rebalance_ms": info.next_rebalance_ms,
    }


def _by_host(entries: Iterable[tuple[str, int, list[tuple[str, int]]]]) -> dict[HostInfo, tuple[TopicPartition, ...]]:
    return {HostInfo(host, port): _partitions(partitions) for host, port, partitions in entries}


def _partitions(entries: Iterable[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, partition) for topic, partition in entries)


def _sorted(tasks: Iterable[WireTaskId]) -> list[WireTaskId]:
    """Named tasks never mix with unnamed ones in Kafka; unnamed first if they do here."""
    return sorted(tasks, key=lambda task: (getattr(task, "topology", ""), task.subtopology, task.partition))
