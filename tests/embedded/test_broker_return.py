"""What the controller has written is read from the metadata log itself, however slowly that grows."""

from __future__ import annotations

from pathlib import Path

from kafka.record.memory_records import MemoryRecordsBuilder

from tidemill.embedded.broker_return import _NO_OP, _REGISTRATION_CHANGE, _End

SEGMENT = "00000000000000000000.log"


def batch(offset: int, *kinds: bytes) -> bytes:
    made = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 16, offset=offset)
    for kind in kinds:
        made.append(timestamp=0, key=None, value=kind + bytes(8))
    made.close()
    return bytes(made.buffer())


def test_a_record_counts_when_its_batch_is_in_the_log_whole(tmp_path: Path) -> None:
    log, before, fencing = tmp_path / SEGMENT, batch(0, _NO_OP, _REGISTRATION_CHANGE), batch(3, _REGISTRATION_CHANGE, b"\x01\x05")
    log.write_bytes(before + batch(2, _NO_OP)[:-1])  # a kill has torn the last one
    end = _End.of(tmp_path)
    assert end.position == len(before)
    log.write_bytes(before)  # the controller cuts it off when it comes back
    for written in (batch(2, _NO_OP), batch(2, _NO_OP) + fencing[:-1]):
        log.write_bytes(before + written)
        assert end.appended() == {_NO_OP: 1}
    log.write_bytes(before + batch(2, _NO_OP) + fencing)
    assert end.appended() == {_NO_OP: 1, _REGISTRATION_CHANGE: 1, b"\x01\x05": 1}


def test_a_segment_that_begins_afterwards_is_read_too(tmp_path: Path) -> None:
    (tmp_path / SEGMENT).write_bytes(batch(0, _REGISTRATION_CHANGE))
    end = _End.of(tmp_path)
    (tmp_path / "00000000000000000001.log").write_bytes(batch(1, _REGISTRATION_CHANGE))
    assert end.appended() == {_REGISTRATION_CHANGE: 1}
