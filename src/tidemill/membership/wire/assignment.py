"""AssignmentInfo: from the leader to each member, in versions 1 to 11.

Decides the bytes. Hosts came with version 2, the commonly supported version with 3, the error code with 4, a dictionary
of topic names with 5, hosts of standbys with 6, the time of the next rebalance with 7, names of topologies with 10. A
field that the version lacks is not written and reads as its default. The dictionary is numbered and written in the
order of Java's hash containers, so the bytes equal Kafka's. The section of hosts is the same for all members of a
group: ``encode_hosts`` makes it once. Who gets which task is decided by ``tidemill.membership.leader``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from struct import Struct
from typing import TypeAlias

from tidemill.assignment.model import LONG_MAX
from tidemill.endpoint import HostInfo
from tidemill.errors import WireFormatError
from tidemill.ids import TaskId, TopicPartition
from tidemill.java_collections.hash_table import hash_order, int32, string_hash
from tidemill.membership.wire.java_data import DataReader, DataWriter
from tidemill.membership.wire.subscription import LATEST_SUPPORTED_VERSION, UNKNOWN_VERSION
from tidemill.membership.wire.task_ids import NamedTaskId, WireTaskId

_PAYLOAD = "an AssignmentInfo"
_FIRST_WITH_HOSTS = 2
_FIRST_WITH_COMMON_VERSION = 3
_FIRST_WITH_ERROR_CODE = 4
_FIRST_WITH_DICTIONARY = 5
_FIRST_WITH_STANDBY_HOSTS = 6
_FIRST_WITH_NEXT_REBALANCE = 7
_FIRST_WITH_NAMED_TOPOLOGIES = 10
_UNNAMED_TASK = Struct(">iii")
"""Sub-topology, partition and the topology's name of no characters."""


PartitionsByHost: TypeAlias = Mapping[HostInfo, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInfo:
    """One member's user data. ``active_tasks`` runs parallel to the member's sorted partitions, a task once for each.

    ``next_rebalance_ms``: 0 = at once, LONG_MAX = none, else the time of a probing rebalance.
    """

    version: int = LATEST_SUPPORTED_VERSION
    commonly_supported_version: int = LATEST_SUPPORTED_VERSION
    active_tasks: tuple[WireTaskId, ...] = ()
    standby_tasks: Mapping[WireTaskId, tuple[TopicPartition, ...]] = field(default_factory=dict)
    partitions_by_host: PartitionsByHost = field(default_factory=dict)
    standby_partitions_by_host: PartitionsByHost = field(default_factory=dict)
    error_code: int = 0
    next_rebalance_ms: int = LONG_MAX


def encode_assignment(info: AssignmentInfo, hosts: bytes | None = None) -> bytes:
    """The user data of ``info`` in its own version; ``hosts`` may be handed in as ``encode_hosts`` made it."""
    if not 1 <= info.version <= LATEST_SUPPORTED_VERSION:
        raise WireFormatError(
            f"{_PAYLOAD} of version {info.version} can't be written: known are 1 to {LATEST_SUPPORTED_VERSION}"
        )
    out = DataWriter()
    out.int32(info.version)
    if info.version >= _FIRST_WITH_COMMON_VERSION:
        out.int32(info.commonly_supported_version)
    out.int32(len(info.active_tasks))
    for task in info.active_tasks:
        _write_task(out, task, info.version)
    out.int32(len(info.standby_tasks))
    for task, partitions in info.standby_tasks.items():
        _write_task(out, task, info.version)
        _write_partitions(out, partitions)
    if hosts is None:
        hosts = encode_hosts(info.version, info.partitions_by_host, info.standby_partitions_by_host)
    out.raw(hosts)
    if info.version >= _FIRST_WITH_ERROR_CODE:
        out.int32(info.error_code)
    if info.version >= _FIRST_WITH_NEXT_REBALANCE:
        out.int64(info.next_rebalance_ms)
    return out.bytes()


def encode_hosts(version: int, active: PartitionsByHost, standby: PartitionsByHost) -> bytes:
    """The section of hosts and their partitions as ``version`` writes it (nothing in version 1)."""
    out = DataWriter()
    if version < _FIRST_WITH_HOSTS:
        return b""
    if version < _FIRST_WITH_DICTIONARY:
        out.int32(len(active))
        for host, partitions in active.items():
            out.utf(host.host)
            out.int32(host.port)
            _write_partitions(out, partitions)
        return out.bytes()
    sections = (active, standby) if version >= _FIRST_WITH_STANDBY_HOSTS else (active,)
    numbers = _topic_numbers(chain.from_iterable(chain.from_iterable(section.values()) for section in sections))
    out.int32(len(numbers))
    for topic in hash_order(numbers, string_hash):
        out.int32(numbers[topic])
        out.utf(topic)
    for section in sections:
        out.int32(len(section))
        for host, partitions in section.items():
            out.utf(host.host)
            out.int32(host.port)
            out.int32(len(partitions))
            for topic, partition in partitions:
                out.int32(numbers[topic])
                out.int32(partition)
    return out.bytes()


def decode_assignment(data: bytes) -> AssignmentInfo:
    """Inverse of ``encode_assignment``; WireFormatError on anything malformed or of an unknown version."""
    reader = DataReader(data, _PAYLOAD)
    version = reader.int32("version")
    if not 1 <= version <= LATEST_SUPPORTED_VERSION:
        raise reader.refuse(f"version is {version}, expected 1 to {LATEST_SUPPORTED_VERSION}")
    common = (
        reader.int32("commonly supported version") if version >= _FIRST_WITH_COMMON_VERSION else UNKNOWN_VERSION
    )
    task_bytes = 12 if version >= _FIRST_WITH_NAMED_TOPOLOGIES else 8
    count = reader.count("active tasks", least_bytes_each=task_bytes)
    active_tasks = _read_tasks(reader, version, count)
    standby_tasks: dict[WireTaskId, tuple[TopicPartition, ...]] = {}
    for _ in range(reader.count("standby tasks", least_bytes_each=task_bytes + 4)):
        task = _read_task(reader, version)
        standby_tasks[task] = _read_partitions(reader)
    active, standby = _read_hosts(reader, version)
    error_code = reader.int32("error code") if version >= _FIRST_WITH_ERROR_CODE else 0
    next_rebalance_ms = reader.int64("next rebalance") if version >= _FIRST_WITH_NEXT_REBALANCE else LONG_MAX
    reader.end()
    return AssignmentInfo(
        version=version,
        commonly_supported_version=common,
        active_tasks=active_tasks,
        standby_tasks=standby_tasks,
        partitions_by_host=active,
        standby_partitions_by_host=standby,
        error_code=error_code,
        next_rebalance_ms=next_rebalance_ms,
    )


def _topic_numbers(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """Topics numbered as they first appear in Java's set of all the partitions."""
    hash_of_topic: dict[str, int] = {}

    def partition_hash(partition: TopicPartition) -> int:
        topic = partition.topic
        code = hash_of_topic.get(topic)
        if code is None:
            code = hash_of_topic[topic] = string_hash(topic)
        return int32(31 * (31 + partition.partition) + code)

    numbers: dict[str, int] = {}
    for partition in hash_order(partitions, partition_hash):
        numbers.setdefault(partition.topic, len(numbers))
    return numbers


def _write_task(out: DataWriter, task: WireTaskId, version: int) -> None:
    if isinstance(task, TaskId) and version >= _FIRST_WITH_NAMED_TOPOLOGIES:
        out.raw(_UNNAMED_TASK.pack(task.subtopology, task.partition, 0))
        return
    out.int32(task.subtopology)
    out.int32(task.partition)
    name = task.topology if isinstance(task, NamedTaskId) else ""
    if version >= _FIRST_WITH_NAMED_TOPOLOGIES:
        units = name.encode("utf-16-be", "surrogatepass")
        out.int32(len(units) // 2)
        out.raw(units)
    elif name:
        raise WireFormatError(
            f"task {task} can't be written in version {version}: named topologies need version "
            f"{_FIRST_WITH_NAMED_TOPOLOGIES} or later"
        )


def _write_partitions(out: DataWriter, partitions: tuple[TopicPartition, ...]) -> None:
    out.int32(len(partitions))
    for topic, partition in partitions:
        out.utf(topic)
        out.int32(partition)


def _read_tasks(reader: DataReader, version: int, count: int) -> tuple[WireTaskId, ...]:
    if version >= _FIRST_WITH_NAMED_TOPOLOGIES:
        entries = list(_UNNAMED_TASK.iter_unpack(reader.peek(count * _UNNAMED_TASK.size)))
        if all(length == 0 and part >= 0 and number >= 0 for part, number, length in entries):
            reader.position += count * _UNNAMED_TASK.size
            return tuple(TaskId(part, number) for part, number, _ in entries)
    return tuple(_read_task(reader, version) for _ in range(count))


def _read_task(reader: DataReader, version: int) -> WireTaskId:
    task = TaskId(reader.id_number("sub-topology"), reader.id_number("partition"))
    if version < _FIRST_WITH_NAMED_TOPOLOGIES:
        return task
    length = reader.count("characters of a topology's name", least_bytes_each=2)
    if length == 0:
        return task
    name = reader.take(2 * length, "topology's name").decode("utf-16-be", "surrogatepass")
    return NamedTaskId(name, task.subtopology, task.partition)


def _read_partitions(reader: DataReader) -> tuple[TopicPartition, ...]:
    count = reader.count("partitions", least_bytes_each=6)
    return tuple(TopicPartition(reader.utf("topic"), reader.id_number("partition")) for _ in range(count))


def _read_hosts(reader: DataReader, version: int) -> tuple[PartitionsByHost, PartitionsByHost]:
    if version < _FIRST_WITH_HOSTS:
        return {}, {}
    if version < _FIRST_WITH_DICTIONARY:
        hosts: dict[HostInfo, tuple[TopicPartition, ...]] = {}
        for _ in range(reader.count("hosts", least_bytes_each=10)):
            host = HostInfo(reader.utf("host"), reader.int32("port"))
            hosts[host] = _read_partitions(reader)
        return hosts, {}
    topics: dict[int, str] = {}
    for _ in range(reader.count("topics in the dictionary", least_bytes_each=6)):
        number = reader.int32("number of a topic")
        topics[number] = reader.utf("topic")
    active = _read_hosts_by_number(reader, topics)
    return active, _read_hosts_by_number(reader, topics) if version >= _FIRST_WITH_STANDBY_HOSTS else {}


def _read_hosts_by_number(reader: DataReader, topics: Mapping[int, str]) -> PartitionsByHost:
    hosts: dict[HostInfo, tuple[TopicPartition, ...]] = {}
    for _ in range(reader.count("hosts", least_bytes_each=10)):
        host = HostInfo(reader.utf("host"), reader.int32("port"))
        partitions = []
        for _ in range(reader.count("partitions of a host", least_bytes_each=8)):
            number = reader.int32("number of a topic")
            if number not in topics:
                raise reader.refuse(f"topic number {number} is not in the dictionary ({sorted(topics)})")
            partitions.append(TopicPartition(topics[number], reader.id_number("partition")))
        hosts[host] = tuple(partitions)
    return hosts


class AssignorError(IntEnum):
    """Kafka Streams' own numbers; ``sentence`` says what each means for the one who gets it.

    DRAINING is Tidemill's: a member says so in its subscription, of whose codes Kafka's leaders read SHUTDOWN_REQUESTED only; a
    leader that knows it gives it back with the assignment, which counts all the same.
    """

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4
    DRAINING = 441

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    AssignorError.NONE: "no error",
    AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA: (
        "a source topic of the topology does not exist: create it and start again (the group leader's log names it)"
    ),
    AssignorError.VERSION_PROBING: "the leader could not read the subscription's version",
    AssignorError.ASSIGNMENT_ERROR: "the group's leader could not make an assignment: its log says why",
    AssignorError.SHUTDOWN_REQUESTED: "an instance of the application asked all instances to shut down",
    AssignorError.DRAINING: "this instance drains: it gives its tasks up once others have caught-up copies",
}
