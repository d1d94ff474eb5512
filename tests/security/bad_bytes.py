"""Kinds of bad bytes for everything that reads what others sent: a table, each row with a name that says what is wrong.

A row is bad in one way only: it begins as bytes that are read without complaint.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill import Serdes
from tidemill.dsl.serdes_change import ChangeSerde
from tidemill.dsl.serdes_foreign_key import SubscriptionResponseSerde, SubscriptionSerde
from tidemill.dsl.serdes_windowed import WindowedSerdes
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.group import protocol as group_protocol
from tidemill.membership.wire import (
    AssignmentInfo,
    HostInfo,
    SubscriptionInfo,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidemill.query.rows import FoundRows, Row

HUGE = struct.pack(">i", 2**31 - 1)
NEGATIVE = struct.pack(">i", -1)
LEAST = struct.pack(">i", -(2**31))


@dataclass(frozen=True)
class Kind:
    """``reader``: whose input it is; ``what``: what is wrong with ``data``."""

    reader: str
    what: str
    data: bytes

    @property
    def id(self) -> str:
        return f"{self.reader}: {self.what}"


READERS: dict[str, Callable[[bytes], Any]] = {
    "SubscriptionInfo": decode_subscription,
    "AssignmentInfo": decode_assignment,
    "consumer protocol subscription": lambda data: group_protocol.decode_subscription("m", None, data),
    "consumer protocol assignment": group_protocol.decode_assignment,
    "rows of another instance": FoundRows.from_bytes,
    "long": Serdes.long().deserialize,
    "integer": Serdes.integer().deserialize,
    "short": Serdes.short().deserialize,
    "double": Serdes.double().deserialize,
    "float": Serdes.float().deserialize,
    "boolean": Serdes.boolean().deserialize,
    "uuid": Serdes.uuid().deserialize,
    "json": Serdes.json("id bigint, name string, inner struct<list: array<int>>").deserialize,
    "time-windowed key": WindowedSerdes.time_windowed_serde_from(Serdes.long(), 5).deserialize,
    "session-windowed key": WindowedSerdes.session_windowed_serde_from(Serdes.long()).deserialize,
    "change": ChangeSerde(Serdes.long()).deserialize,
    "foreign-key subscription": SubscriptionSerde(Serdes.long()).deserialize,
    "foreign-key response": SubscriptionResponseSerde(Serdes.long()).deserialize,
}


def _said(version: int) -> bytes:
    sums = {TaskId(0, 1): -2, TaskId(1, 2): 77} if version > 6 else {TaskId(0, 1): -2, TaskId(1, 2): -3}
    tags = {"zone": "a"} if version > 10 else {}
    endpoint = "host:8080" if version > 1 else None
    latest = 11 if version > 2 else -1
    return encode_subscription(
        SubscriptionInfo(
            version=version, latest_supported_version=latest, process_id=ProcessId(1, 2), user_endpoint=endpoint,
            task_offset_sums=sums, client_tags=tags,
        )
    )  # fmt: skip


def _told(version: int) -> bytes:
    partitions = (TopicPartition("in", 0), TopicPartition("in", 1))
    hosts = {HostInfo("host", 8080): partitions} if version > 1 else {}
    standby_hosts = {HostInfo("other", 1): partitions} if version > 5 else {}
    return encode_assignment(
        AssignmentInfo(
            version=version, commonly_supported_version=11 if version > 2 else -1, active_tasks=(TaskId(0, 0), TaskId(0, 1)),
            standby_tasks={TaskId(1, 1): (TopicPartition("changelog", 1),)}, partitions_by_host=hosts,
            standby_partitions_by_host=standby_hosts,
        )
    )  # fmt: skip


def _with(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _versions(reader: str, made: Callable[[int], bytes]) -> Iterator[Kind]:
    for version in range(1, 12):
        good = made(version)
        yield Kind(reader, f"version {version} cut in the middle", good[: len(good) // 2])
        yield Kind(reader, f"version {version} without its last byte", good[:-1])
        yield Kind(reader, f"version {version} with a byte behind it", good + b"\0")
        yield Kind(reader, f"version {version} twice", good + good)
    latest = made(11)
    for what, version_bytes in (("0", bytes(4)), ("-1", NEGATIVE), ("the least number", LEAST)):
        yield Kind(reader, f"version {what}", _with(latest, 0, version_bytes))
    yield Kind(reader, "nothing at all", b"")
    yield Kind(reader, "three bytes of a version", latest[:3])
    yield Kind(reader, "little-endian", latest[3::-1] + latest[4:])
    yield Kind(reader, "text", b"GET / HTTP/1.1\r\n\r\n")
    yield Kind(reader, "zeros", bytes(200))
    yield Kind(reader, "all bits set", b"\xff" * 200)
    yield Kind(reader, "a thousand copies", latest * 1000)


def _subscriptions() -> Iterator[Kind]:
    name = "SubscriptionInfo"
    yield from _versions(name, _said)
    good = _said(11)
    endpoint = 4 + 4 + 16
    tasks = endpoint + 4 + len("host:8080")
    tags = tasks + 4 + 2 * 18 + 1 + 4
    for what, at in (("length of the endpoint", endpoint), ("number of tasks", tasks), ("number of tags", tags),
                     ("length of a tag's key", tags + 4)):  # fmt: skip
        for size, new in (("huge", HUGE), ("negative", NEGATIVE), ("the least number", LEAST)):
            yield Kind(name, f"{what} {size}", _with(good, at, new))
    yield Kind(name, "endpoint that is not UTF-8", _with(good, endpoint + 4, b"\xff\xfe"))
    yield Kind(name, "tag that is not UTF-8", _with(good, tags + 8, b"\xc3\x28"))
    yield Kind(name, "negative sub-topology", _with(good, tasks + 4, NEGATIVE))
    yield Kind(name, "negative partition", _with(good, tasks + 8, NEGATIVE))
    yield Kind(name, "latest version below its own", _with(good, 4, struct.pack(">i", 3)))
    yield Kind(name, "a future version whose latest is older", struct.pack(">ii", 2**31 - 1, 12))
    yield Kind(name, "a future version and nothing else", struct.pack(">i", 99))
    grouped = _said(9)
    yield Kind(name, "grouped sums of a negative sub-topology", _with(grouped, tasks + 4, NEGATIVE))
    yield Kind(name, "grouped sums of which there are too many", _with(grouped, tasks + 8, HUGE))
    for version in (1, 4, 6):
        sets = _said(version)
        at = 4 + (4 if version > 2 else 0) + 16
        for size, new in (("huge", HUGE), ("negative", NEGATIVE)):
            yield Kind(name, f"version {version} with a {size} set of tasks", _with(sets, at, new))


def _assignments() -> Iterator[Kind]:
    name = "AssignmentInfo"
    yield from _versions(name, _told)
    good = _told(11)
    actives, standbys = 8, 8 + 4 + 2 * 12
    hosts = standbys + 4 + 12 + 4 + (2 + len("changelog") + 4)
    for what, at in (("number of active tasks", actives), ("number of standby tasks", standbys),
                     ("number of a standby's partitions", standbys + 16), ("number of topics", hosts),
                     ("number of hosts", hosts + 4 + 4 + 4)):  # fmt: skip
        for size, new in (("huge", HUGE), ("negative", NEGATIVE), ("the least number", LEAST)):
            yield Kind(name, f"{what} {size}", _with(good, at, new))
    yield Kind(name, "topic that is not modified UTF-8", _with(good, hosts + 4 + 4 + 2, b"\xff\xff"))
    yield Kind(name, "topic longer than all bytes", _with(good, hosts + 4 + 4, b"\xff\xff"))
    yield Kind(name, "topic number that the dictionary lacks", _with(good, hosts + 4, struct.pack(">i", 9)))
    yield Kind(name, "negative sub-topology of an active task", _with(good, actives + 4, NEGATIVE))
    yield Kind(name, "negative partition of a standby", _with(good, standbys + 8, NEGATIVE))
    yield Kind(name, "name of a topology of a huge length", _with(good, actives + 12, HUGE))
    yield Kind(name, "a future version", _with(good, 0, struct.pack(">i", 12)))


def _consumer_protocol() -> Iterator[Kind]:
    said = group_protocol.encode_subscription(
        group_protocol.MemberSubscription(
            member_id="m", topics=("in",), user_data=b"data", owned_partitions=(TopicPartition("in", 0),), generation=3
        )
    )
    told = group_protocol.encode_assignment(
        group_protocol.MemberAssignment(partitions=(TopicPartition("in", 0),), user_data=b"data")
    )
    for name, good in (("consumer protocol subscription", said), ("consumer protocol assignment", told)):
        yield from (Kind(name, f"cut after {size} bytes", good[:size]) for size in (1, 2, 5, 8, 11, 15, 19))
        yield Kind(name, "a huge number of topics", _with(good, 2, HUGE))
        yield Kind(name, "a topic's name longer than all bytes", _with(good, 6, b"\x7f\xff"))
        yield Kind(name, "a topic's name that is not UTF-8", _with(good, 8, b"\xff\xfe"))
        yield Kind(name, "user data of a huge length", good.replace(b"\0\0\0\x04data", HUGE + b"data"))
        yield Kind(name, "all bits set", b"\xff" * 64)
        yield Kind(name, "text", b"SSH-2.0-OpenSSH_9.6\r\n" * 5)
    yield Kind("consumer protocol subscription", "nothing at all", b"")


def _rows() -> Iterator[Kind]:
    name = "rows of another instance"
    good = FoundRows(rows=(Row(b"k", b"v", 0),), covered={0: 0}).to_bytes()
    yield from (Kind(name, f"cut after {size} bytes", good[:size]) for size in (0, 1, 4, 8, 100, len(good) // 2))
    yield Kind(name, "JSON", json.dumps({"error": "no"}).encode())
    yield Kind(name, "a page", b"<html>" + b"x" * 500)
    yield Kind(name, "a huge first length", b"\xff\xff\xff\xff\xff\xff\xff\x7f" + good[8:])
    yield Kind(name, "all bits set", b"\xff" * 300)

    def stream(schema: pa.Schema, *columns: pa.Array) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(list(columns), schema=schema))
        return bytes(sink.getvalue())

    fields = [("key", pa.binary()), ("stored", pa.binary()), ("partition", pa.int32())]
    columns = [pa.array([b"k"], pa.binary()), pa.array([b"v"], pa.binary()), pa.array([0], pa.int32())]
    covered = {"no cover": None, "cover that is no JSON": "{", "cover that is a list": "[0]", "cover of words": '{"a": "b"}',
               "cover that is null": "null", "cover nested too deep": "[" * 100_000, "a lag without end": '{"0": Infinity}',
               "a lag below zero": '{"0": -1}', "a lag of 5,000 digits": '{"0": ' + "9" * 5_000 + "}"}  # fmt: skip
    for what, text in covered.items():
        schema = pa.schema(fields, metadata={} if text is None else {"tidemill.covered": text})
        yield Kind(name, what, stream(schema, *columns))
    known = pa.schema(fields, metadata={"tidemill.covered": '{"0": 0}'})
    for at, kind in enumerate(known.types):
        yield Kind(name, f"null as {known.names[at]}", stream(known, *columns[:at], pa.array([None], kind), *columns[at + 1 :]))
    cut = pa.schema(fields, metadata={"tidemill.covered": '{"0": 0}', "tidemill.more_from": "no hex"})
    yield Kind(name, "an end that is no hex", stream(cut, *columns))
    other = pa.schema([("a", pa.string())], metadata={"tidemill.covered": "{}"})
    yield Kind(name, "other columns", stream(other, pa.array(["x"])))


_WIDTHS = {"long": 8, "integer": 4, "short": 2, "double": 8, "float": 4, "boolean": 1, "uuid": 36}


def _serdes() -> Iterator[Kind]:
    for name, width in _WIDTHS.items():
        yield Kind(name, "one byte too few", b"1" * (width - 1))
        yield Kind(name, "one byte too many", b"1" * (width + 1))
        yield Kind(name, "a megabyte", bytes(1 << 20))
    yield Kind("uuid", "no hexadecimal digits", b"z" * 36)
    yield Kind("uuid", "not UTF-8", b"\xff" * 36)
    documents = {
        "cut": b'{"id": 1',
        "text behind it": b'{"id": 1} x',
        "not UTF-8": b'{"name": "\xff"}',
        "nested too deep": b"[" * 100_000,
        "objects nested too deep": b'{"a":' * 100_000,
        "a list": b"[1]",
        "a number": b"1",
        "a text for a number": b'{"id": "x"}',
        "a number beyond 64 bits": b'{"id": 99999999999999999999}',
        "a number of ten thousand digits": b'{"id": ' + b"9" * 10_000 + b"}",
        "a fraction for a whole number": b'{"id": 1.5}',
        "an object for a list": b'{"inner": {"list": {}}}',
        "a text in a list of numbers": b'{"inner": {"list": ["x"]}}',
        "single quotes": b"{'id': 1}",
        "UTF-16": '{"id": 1}'.encode("utf-16"),
        "zeros": bytes(10),
    }  # fmt: skip
    yield from (Kind("json", what, data) for what, data in documents.items())


def _keys_and_changes() -> Iterator[Kind]:
    for name, extra in (("time-windowed key", 8), ("session-windowed key", 16)):
        yield Kind(name, "nothing at all", b"")
        yield Kind(name, "no room for its times", bytes(extra - 1))
        yield Kind(name, "a key of another width", bytes(extra + 3))
        yield Kind(name, "a key that is too long", bytes(extra + 9))
    change = struct.pack(">q", 1)
    for what, data in {
        "nothing at all": b"",
        "an unknown kind": change + b"\x06",
        "a kind of 255": change + b"\xff",
        "a value too short": b"\0\x01",
        "a value too long": change + b"\0\x01",
        "both with a length too large": b"\x7e" + change + change + b"\x02",
        "both with a negative length": b"\x01" + change + change + b"\x02",
        "a length that never ends": b"\xff" * 9 + b"\x02",
        "both and no length": b"\x02",
        "both of which one is missing": b"\x10" + change + b"\x02",
    }.items():
        yield Kind("change", what, data)
    for what, data in {
        "a version of tomorrow": b"\x02\0" + bytes(40),
        "an unknown instruction": b"\x01\x09" + bytes(40),
        "no instruction": b"\x01",
        "a hash cut short": b"\x01\0" + bytes(7),
        "no room for the partition": b"\x81\0" + bytes(2),
        "a key of another width": b"\x81\0" + bytes(7),
        "a version of 127": b"\x7f\0" + bytes(40),
    }.items():
        yield Kind("foreign-key subscription", what, data)
    for what, data in {
        "a version of tomorrow": b"\x01" + bytes(40),
        "a hash cut short": b"\0" + bytes(7),
        "a value of another width": b"\x80" + bytes(3),
        "a version of 127": b"\x7f",
    }.items():
        yield Kind("foreign-key response", what, data)


KINDS: tuple[Kind, ...] = (
    *_subscriptions(), *_assignments(), *_consumer_protocol(), *_rows(), *_serdes(), *_keys_and_changes(),
)  # fmt: skip
