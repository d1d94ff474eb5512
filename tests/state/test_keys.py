"""Keys of any length as LMDB keys."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.errors import CorruptStateError
from tidemill.state import keys

FOLDER = Path("state/1_0")
HEAD = b"h" * keys.SHORT_LIMIT
#: Keys around the limit that share their first bytes, and every short one.
ANY_KEY = st.one_of(
    st.binary(max_size=6),
    st.binary(max_size=3).map(lambda end: HEAD[:-1] + end),
    st.binary(max_size=3).map(lambda end: HEAD + end),
    st.binary(max_size=2).map(lambda end: b"\xff" * keys.SHORT_LIMIT + end),
)


@given(ANY_KEY)
@example(HEAD)
def test_a_key_has_the_same_bytes_alone_and_among_others(key: bytes) -> None:
    alone = keys.encode(key)
    assert keys.encode_many([key]) == [alone]
    assert keys.encode_many([key, HEAD + b"long"])[0] == alone


@given(ANY_KEY, st.binary(max_size=8))
def test_every_key_fits_lmdb_and_comes_back(key: bytes, value: bytes) -> None:
    puts, deletes = keys.encode_writes({key: value})
    ((encoded, stored),) = puts
    assert deletes == []
    assert 1 <= len(encoded) <= 511
    assert keys.decode_in_order(puts, FOLDER) == [(key, value)]
    assert keys.is_long(encoded) == (len(key) > keys.SHORT_LIMIT)
    assert stored == value or keys.is_long(encoded)


def test_the_limit_is_what_lmdb_allows(tmp_path: object) -> None:
    with lmdb.open(str(tmp_path)) as environment:
        assert environment.max_key_size() >= keys.LONG_SIZE


@given(st.lists(ANY_KEY, max_size=12, unique=True), st.booleans())
def test_entries_in_lmdbs_order_decode_into_the_order_of_full_keys(found: list[bytes], backwards: bool) -> None:
    puts, _ = keys.encode_writes(dict.fromkeys(found, b"v"))
    decoded = keys.decode_in_order(sorted(puts, reverse=backwards), FOLDER, reverse=backwards)
    assert [key for key, _ in decoded] == sorted(found, reverse=backwards)


@given(ANY_KEY, ANY_KEY)
def test_a_scan_between_the_bounds_misses_no_key(bound: bytes, key: bytes) -> None:
    if key >= bound:
        assert keys.encode(key) >= keys.scan_start(bound)
    else:
        assert keys.encode(key) < keys.scan_end(bound)


@given(ANY_KEY, ANY_KEY)
def test_a_scan_goes_on_exactly_behind_the_group_that_it_has_read(last: bytes, other: bytes) -> None:
    at, candidate = keys.encode(last), keys.encode(other)
    read = candidate == at or keys.are_of_one_group(at, candidate)
    assert (candidate >= keys.resume_after(at)) == (other > last and not read)
    assert (candidate < keys.resume_before(at)) == (other < last and not read)


def test_a_long_entry_under_another_keys_hash_is_refused() -> None:
    (encoded, _), (_, stored) = keys.encode_writes({HEAD + b"1": b"", HEAD + b"2": b""})[0]
    with pytest.raises(CorruptStateError, match="state/1_0 is corrupt: found an entry of 495 bytes whose full key does not"):
        keys.unwrap_value(encoded, stored, FOLDER)


def test_a_long_entry_that_was_cut_short_is_refused() -> None:
    ((encoded, stored),) = keys.encode_writes({HEAD + b"1": b""})[0]
    with pytest.raises(CorruptStateError, match="does not belong"):
        keys.unwrap_value(encoded, stored[:-1], FOLDER)


def test_a_long_entry_whose_length_goes_beyond_its_end_is_refused() -> None:
    ((encoded, stored),) = keys.encode_writes({HEAD + b"1": b""})[0]
    longer = (len(stored) - 3).to_bytes(4, "big") + stored[4:]
    with pytest.raises(CorruptStateError, match="does not belong"):
        keys.unwrap_value(encoded, longer, FOLDER)
