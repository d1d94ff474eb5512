"""Encoding of a store's rows in LMDB: keys, which are 1 to 511 bytes long where Kafka's may be empty or longer.

    up to 490 bytes   prefix | key                                      value as it is
    longer            prefix | first 490 bytes | hash of the key (20)   key length (4, big endian) | key | value

Two invariants follow. The length shows which of the two an LMDB key is: only a long one has 511 bytes. And LMDB's order is the
order of the keys, except for long keys that share their first 490 bytes: these are a group in the order of their hashes, right
behind the short key that equals those bytes. A scan sorts each such group by full key.

A timestamped store's values are timestamp (8 bytes, big endian) | value, as in Kafka Streams; its changelog has the value
alone, and the timestamp is the record's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

from tidemill.errors import CorruptStateError

TIMESTAMP_SIZE = 8
PREFIX = b"k"
SHORT_LIMIT = 490
_HASH_SIZE = 20
LONG_SIZE = len(PREFIX) + SHORT_LIMIT + _HASH_SIZE
_GROUP_SIZE = len(PREFIX) + SHORT_LIMIT


def encode(key: bytes) -> bytes:
    """The LMDB key of `key`."""
    if len(key) <= SHORT_LIMIT:
        return PREFIX + key
    return PREFIX + key[:SHORT_LIMIT] + blake2b(key, digest_size=_HASH_SIZE).digest()


def encode_many(keys: Sequence[bytes]) -> list[bytes]:
    """``encode`` of each key; quick where all are short."""
    if max(map(len, keys), default=0) <= SHORT_LIMIT:
        return [PREFIX + key for key in keys]
    return [encode(key) for key in keys]


def is_long(encoded: bytes) -> bool:
    """True if `encoded` is the LMDB key of a key beyond the limit."""
    return len(encoded) == LONG_SIZE


def wrap_value(key: bytes, value: bytes) -> bytes:
    """The LMDB value of a long key."""
    return len(key).to_bytes(4, "big") + key + value


def encode_writes(items: Mapping[bytes, bytes | None]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """(puts, deletes) in LMDB's terms. Not sorted: LMDB gains less by sorted keys than sorting costs, up to a million entries."""
    values = items.values()
    encoded = encode_many(list(items))
    if max(map(len, encoded), default=0) < LONG_SIZE:
        if None not in values:
            return list(zip(encoded, values, strict=True)), []  # type: ignore[arg-type]
        pairs: Iterable[tuple[bytes, bytes | None]] = zip(encoded, values, strict=True)
    else:
        pairs = (
            (at, wrap_value(key, value) if value is not None and is_long(at) else value)
            for at, (key, value) in zip(encoded, items.items(), strict=True)
        )
    puts: list[tuple[bytes, bytes]] = []
    deletes: list[bytes] = []
    for at, value in pairs:
        if value is None:
            deletes.append(at)
        else:
            puts.append((at, value))
    return puts, deletes


def unwrap_value(encoded: bytes, stored: bytes, directory: Path) -> tuple[bytes, bytes]:
    """(key, value) of the entry of a long key. Raises CorruptStateError, of the task's `directory`, if the full key does not
    belong under `encoded`."""
    end = 4 + int.from_bytes(stored[:4], "big")
    key = stored[4:end]
    if len(stored) < end or encode(key) != encoded:
        raise CorruptStateError(
            str(directory),
            found=f"an entry of {len(stored)} bytes whose full key does not belong to its LMDB key",
            expected="the key that it was written under",
        )
    return key, stored[end:]


def decode_in_order(
    entries: Sequence[tuple[bytes, bytes]], directory: Path, *, reverse: bool = False
) -> list[tuple[bytes, bytes]]:
    """LMDB entries in LMDB's order (`reverse`: backwards) as (key, value) in the order of the full keys.

    The entries must hold each group of long keys that they touch as a whole. Raises CorruptStateError as ``unwrap_value``.
    """
    skip = len(PREFIX)
    if not any(is_long(encoded) for encoded, _ in entries):
        return [(encoded[skip:], stored) for encoded, stored in entries]
    result: list[tuple[bytes, bytes]] = []
    for (long, _), members in groupby(entries, key=lambda entry: (is_long(entry[0]), entry[0][:_GROUP_SIZE])):
        if long:
            result.extend(sorted((unwrap_value(*entry, directory) for entry in members), reverse=reverse))
        else:
            result.extend((encoded[skip:], stored) for encoded, stored in members)
    return result


def scan_start(bound: bytes) -> bytes:
    """The least LMDB key at which an entry with a key >= `bound` can be: the caller still filters by full key."""
    return PREFIX + bound[:SHORT_LIMIT]


def scan_end(bound: bytes) -> bytes:
    """The LMDB key from which on every entry's key is >= `bound`: long bounds end behind their whole group."""
    return PREFIX + bound if len(bound) <= SHORT_LIMIT else _behind(PREFIX + bound[:SHORT_LIMIT])


def resume_after(encoded: bytes) -> bytes:
    """Key at which a scan continues that has ended with `encoded`, and with its whole group if it is long."""
    return _behind(encoded[:_GROUP_SIZE]) if is_long(encoded) else encoded + b"\0"


def resume_before(encoded: bytes) -> bytes:
    """The LMDB key before which a backward scan continues after `encoded`, or after its whole group if it is long."""
    # The short key that equals the group's common bytes comes after the group when one reads backwards.
    return encoded[:_GROUP_SIZE] + b"\0" if is_long(encoded) else encoded


def are_of_one_group(one: bytes, other: bytes) -> bool:
    """True if both are LMDB keys of long keys with the same first bytes."""
    return is_long(one) and is_long(other) and one[:_GROUP_SIZE] == other[:_GROUP_SIZE]


def _behind(prefix: bytes) -> bytes:
    """The least LMDB key behind all that begin with `prefix`, which begins with PREFIX and so is not all 0xff."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1])
