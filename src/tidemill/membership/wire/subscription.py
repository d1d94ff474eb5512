"""SubscriptionInfo: from each member to the leader, in versions 1 to 11 and, as far as it can be read, later ones.

Decides the bytes. Versions 1-6 have tasks as two sets (held as active, any other), 7-9 as offset sums by sub-topology,
10 and 11 as a flat list; the endpoint came with 2, the latest supported version with 3, the unique field with 8, the
error code with 9, client tags with 11. A field that the version lacks is not written and reads as its default. Sets and
groups are written in the order of Java's hash containers, so the bytes equal Kafka's. ``tidemill.membership.leader``
knows what the sums mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import TypeAlias

from tidemill.assignment.model import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from tidemill.errors import WireFormatError
from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.hash_table import hash_order
from tidemill.membership.wire.java_data import DataReader, DataWriter
from tidemill.membership.wire.task_ids import NamedTaskId, WireTaskId, wire_task_hash

LATEST_SUPPORTED_VERSION = 11
UNKNOWN_VERSION = -1
"""Latest supported version of a member that is too old (1, 2) to send it."""

_PAYLOAD = "a SubscriptionInfo"
_FIRST_WITH_LATEST_SUPPORTED = 3
_FIRST_WITH_OFFSET_SUMS = 7
_FIRST_WITH_UNIQUE_FIELD = 8
_FIRST_WITH_ERROR_CODE = 9
_FIRST_WITH_NAMED_TOPOLOGIES = 10
_FIRST_WITH_CLIENT_TAGS = 11
_FLAT_SUM = Struct(">iiqh")
"""Sub-topology, partition, offset sum and length of the topology's name."""
_UNNAMED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionInfo:
    """One member's user data. ``task_offset_sums``: -2 = running active here, -3 = unknown (read from versions 1-6)."""

    version: int = LATEST_SUPPORTED_VERSION
    latest_supported_version: int = LATEST_SUPPORTED_VERSION
    process_id: ProcessId
    user_endpoint: str | None = None
    task_offset_sums: Mapping[WireTaskId, int] = field(default_factory=dict)
    unique_field: int = 0
    error_code: int = 0
    client_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def previous_tasks(self) -> frozenset[WireTaskId]:
        """Tasks that run as active on the member."""
        return frozenset(task for task, offset in self.task_offset_sums.items() if offset == LATEST_OFFSET)

    @property
    def standby_tasks(self) -> frozenset[WireTaskId]:
        """All other tasks of which the member has state."""
        return frozenset(task for task, offset in self.task_offset_sums.items() if offset != LATEST_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureSubscription:
    """A subscription of a version that this code does not know: only its two version numbers can be read."""

    version: int
    latest_supported_version: int


AnySubscription: TypeAlias = SubscriptionInfo | FutureSubscription


def encode_subscription(info: SubscriptionInfo) -> bytes:
    """The user data of ``info`` in its own version; WireFormatError if that version can't carry it."""
    _check_versions(info.version, info.latest_supported_version)
    if info.version > LATEST_SUPPORTED_VERSION:
        raise WireFormatError(
            f"{_PAYLOAD} of version {info.version} can't be written: the latest known is {LATEST_SUPPORTED_VERSION}"
        )
    if not -128 <= info.unique_field <= 127:
        raise WireFormatError(f"the unique field is {info.unique_field}, expected -128 to 127")
    out = DataWriter()
    out.int32(info.version)
    if info.version >= _FIRST_WITH_LATEST_SUPPORTED:
        out.int32(info.latest_supported_version)
    out.int64(info.process_id.most)
    out.int64(info.process_id.least)
    if info.version < _FIRST_WITH_OFFSET_SUMS:
        _write_task_sets(out, info)
    if info.version > 1:
        out.sized_bytes((info.user_endpoint or "").encode("utf-8", "replace"))
    if info.version >= _FIRST_WITH_NAMED_TOPOLOGIES:
        _write_flat_sums(out, info.task_offset_sums)
    elif info.version >= _FIRST_WITH_OFFSET_SUMS:
        _write_grouped_sums(out, info)
    if info.version >= _FIRST_WITH_UNIQUE_FIELD:
        out.int8(info.unique_field)
    if info.version >= _FIRST_WITH_ERROR_CODE:
        out.int32(info.error_code)
    if info.version >= _FIRST_WITH_CLIENT_TAGS:
        out.int32(len(info.client_tags))
        for key, value in info.client_tags.items():
            out.sized_bytes(key.encode("utf-8", "replace"))
            out.sized_bytes(value.encode("utf-8", "replace"))
    return out.bytes()


def decode_subscription(data: bytes) -> AnySubscription:
    """Inverse of ``encode_subscription``; WireFormatError on anything malformed."""
    reader = DataReader(data, _PAYLOAD)
    version = reader.int32("version")
    if version > LATEST_SUPPORTED_VERSION:
        latest = reader.int32("latest supported version")
        _check_versions(version, latest)
        return FutureSubscription(version=version, latest_supported_version=latest)
    if version < 1:
        raise reader.refuse(f"version is {version}, expected 1 or more")
    latest = (
        reader.int32("latest supported version") if version >= _FIRST_WITH_LATEST_SUPPORTED else UNKNOWN_VERSION
    )
    _check_versions(version, latest)
    process_id = ProcessId(reader.int64("process id"), reader.int64("process id"))
    sums: dict[WireTaskId, int] = {}
    if version < _FIRST_WITH_OFFSET_SUMS:
        sums.update((task, LATEST_OFFSET) for task in _read_task_set(reader, "previous tasks"))
        sums.update((task, UNKNOWN_OFFSET_SUM) for task in _read_task_set(reader, "standby tasks"))
    endpoint = reader.utf8(reader.sized_bytes("user endpoint"), "user endpoint") if version > 1 else ""
    if version >= _FIRST_WITH_NAMED_TOPOLOGIES:
        sums.update(_read_flat_sums(reader))
    elif version >= _FIRST_WITH_OFFSET_SUMS:
        sums.update(_read_grouped_sums(reader))
    unique_field = reader.int8("unique field") if version >= _FIRST_WITH_UNIQUE_FIELD else 0
    error_code = reader.int32("error code") if version >= _FIRST_WITH_ERROR_CODE else 0
    client_tags = _read_client_tags(reader) if version >= _FIRST_WITH_CLIENT_TAGS else {}
    reader.end()
    return SubscriptionInfo(
        version=version,
        latest_supported_version=latest,
        process_id=process_id,
        user_endpoint=endpoint or None,
        task_offset_sums=sums,
        unique_field=unique_field,
        error_code=error_code,
        client_tags=client_tags,
    )


def known_subscription(data: bytes) -> SubscriptionInfo | None:
    """Subscription of a member of a running group; None if its version is a future one or the bytes can't be read."""
    try:
        said = decode_subscription(data)
    except WireFormatError:
        return None
    return said if isinstance(said, SubscriptionInfo) else None


def _check_versions(version: int, latest_supported: int) -> None:
    """Only 1 and 2 may leave the latest supported version unknown; no version is above it."""
    if latest_supported == UNKNOWN_VERSION and version in (1, 2):
        return
    if not 1 <= version <= latest_supported:
        raise WireFormatError(
            f"{_PAYLOAD} says version {version} and latest supported version {latest_supported}; "
            "expected 1 <= version <= latest supported version"
        )


def _write_task_sets(out: DataWriter, info: SubscriptionInfo) -> None:
    sums = info.task_offset_sums
    previous = [task for task, offset in sums.items() if offset == LATEST_OFFSET]
    standby = [task for task, offset in sums.items() if offset != LATEST_OFFSET]
    for tasks in (previous, standby):
        out.int32(len(tasks))
        for task in hash_order(tasks, wire_task_hash):
            plain = _unnamed(task, info.version)
            out.int32(plain.subtopology)
            out.int32(plain.partition)


def _write_grouped_sums(out: DataWriter, info: SubscriptionInfo) -> None:
    groups: dict[int, list[tuple[int, int]]] = {}
    for task, offset in info.task_offset_sums.items():
        plain = _unnamed(task, info.version)
        groups.setdefault(plain.subtopology, []).append((plain.partition, offset))
    out.int32(len(groups))
    for subtopology in hash_order(groups, lambda number: number):
        out.int32(subtopology)
        out.int32(len(groups[subtopology]))
        for partition, offset in groups[subtopology]:
            out.int32(partition)
            out.int64(offset)


def _write_flat_sums(out: DataWriter, sums: Mapping[WireTaskId, int]) -> None:
    out.int32(len(sums))
    for task, offset in sums.items():
        if isinstance(task, NamedTaskId):
            name = task.topology.encode("utf-8", "replace")
            if len(name) > 0x7FFF:
                raise WireFormatError(f"a topology's name of {len(name)} bytes can't be written: at most 32767 can")
            out.raw(_FLAT_SUM.pack(task.subtopology, task.partition, offset, len(name)))
            out.raw(name)
        else:
            out.raw(_FLAT_SUM.pack(task.subtopology, task.partition, offset, _UNNAMED))


def _read_task_set(reader: DataReader, field_name: str) -> Iterable[TaskId]:
    return [_read_task(reader) for _ in range(reader.count(field_name, least_bytes_each=8))]


def _read_grouped_sums(reader: DataReader) -> Iterable[tuple[WireTaskId, int]]:
    for _ in range(reader.count("sub-topologies", least_bytes_each=8)):
        subtopology = reader.id_number("sub-topology")
        for _ in range(reader.count("partitions with an offset sum", least_bytes_each=12)):
            partition = reader.id_number("partition")
            yield TaskId(subtopology, partition), reader.int64("offset sum")


def _read_flat_sums(reader: DataReader) -> Iterable[tuple[WireTaskId, int]]:
    count = reader.count("tasks with an offset sum", least_bytes_each=_FLAT_SUM.size)
    entries = reader.peek(count * _FLAT_SUM.size)
    plain = _plain_flat_sums(entries)
    if plain is None:
        return _read_flat_sums_one_by_one(reader, count)
    reader.position += len(entries)
    return plain


@lru_cache(maxsize=1_024)
def _plain_flat_sums(entries: bytes) -> tuple[tuple[TaskId, int], ...] | None:
    """None if they need to be read one by one. Members say the same of what runs and of what they closed in each join."""
    found = tuple(_FLAT_SUM.iter_unpack(entries))
    if all(length == _UNNAMED and part >= 0 and number >= 0 for part, number, _, length in found):
        return tuple((TaskId(part, number), offset) for part, number, offset, _ in found)
    return None


def _read_flat_sums_one_by_one(reader: DataReader, count: int) -> Iterable[tuple[WireTaskId, int]]:
    """With names, which make entries longer, or with something to refuse."""
    for _ in range(count):
        task = _read_task(reader)
        offset = reader.int64("offset sum")
        length = reader.int16("length of a topology's name")
        if length == _UNNAMED:
            yield task, offset
        else:
            name = reader.utf8(reader.take(length, "topology's name"), "topology's name")
            yield NamedTaskId(name, task.subtopology, task.partition), offset


def _read_task(reader: DataReader) -> TaskId:
    return TaskId(reader.id_number("sub-topology"), reader.id_number("partition"))


def _read_client_tags(reader: DataReader) -> dict[str, str]:
    tags: dict[str, str] = {}
    for _ in range(reader.count("client tags", least_bytes_each=8)):
        key = reader.utf8(reader.sized_bytes("key of a client tag"), "key of a client tag")
        tags[key] = reader.utf8(reader.sized_bytes("value of a client tag"), "value of a client tag")
    return tags


def _unnamed(task: WireTaskId, version: int) -> TaskId:
    if isinstance(task, TaskId):
        return task
    raise WireFormatError(
        f"task {task} can't be written in version {version}: named topologies need version "
        f"{_FIRST_WITH_NAMED_TOPOLOGIES} or later"
    )
