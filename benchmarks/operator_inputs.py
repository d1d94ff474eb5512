"""What the operators' benchmark feeds its programs, and what must come out of them: the same for every system.

Records of random keys, ten a millisecond of event time, with a table's rows before them, or of two streams in turn. What is
expected is computed from the records by what the operators mean, not by anything that is measured.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PROGRAMS = ("tumbling_count", "stream_table_join", "stream_stream_join", "session_count")
KEYS = 20_000
PER_MS = 10
START_MS = 1_700_000_000_000
WINDOW_MS, GAP_MS, APART_MS = 60_000, 500, 100

Input = tuple[str, str, str, int]
"""(topic, key, value, timestamp)"""


@dataclass(frozen=True, slots=True)
class Checked:
    """How much of what must come out did, and how much came out that must not."""

    expected: int
    missing: int
    wrong: int

    @property
    def is_right(self) -> bool:
        return not self.missing and not self.wrong

    def __str__(self) -> str:
        return "right" if self.is_right else f"{self.missing:,} of {self.expected:,} missing, {self.wrong:,} wrong"


def topics_of(program: str) -> tuple[str, ...]:
    return ("left", "right") if program.endswith("_join") else ("left",)


def inputs(program: str, records: int) -> Iterator[Input]:
    """In the order in which they are written. A table's rows are not counted as records."""
    chance = random.Random(5)
    if program == "stream_table_join":
        for number in range(KEYS):
            yield "right", str(number), f"row {number}", START_MS - 1
    two_streams = program == "stream_stream_join"
    for number in range(records):
        topic = "right" if two_streams and number % 2 else "left"
        yield topic, str(chance.randrange(KEYS)), f"value {number}", START_MS + number // PER_MS


def check(program: str, records: int, output: Mapping[tuple[bytes, bytes], int]) -> Checked:
    """Compares what came out, each distinct key and value with how often it did, with what must."""
    wanted = _EXPECTED[program](list(inputs(program, records)))
    missing = sum(max(0, times - output.get(pair, 0)) for pair, times in wanted.items())
    wrong = sum(max(0, times - wanted.get(pair, 0)) for pair, times in output.items())
    return Checked(sum(wanted.values()), missing, wrong)


def keeps_latest(program: str) -> bool:
    """Whether only the last value of each key of the output counts: the programs whose result is a table."""
    return program.endswith("_count")


_Pairs = dict[tuple[bytes, bytes], int]


def _tumbling(given: list[Input]) -> _Pairs:
    counts: dict[bytes, int] = defaultdict(int)
    for _, key, _, time in given:
        counts[key.encode() + struct.pack(">q", time // WINDOW_MS * WINDOW_MS)] += 1
    return {(window, struct.pack(">q", count)): 1 for window, count in counts.items()}


def _sessions(given: list[Input]) -> _Pairs:
    times: dict[str, list[int]] = defaultdict(list)
    for _, key, _, time in given:
        times[key].append(time)  # in order
    found: _Pairs = {}
    for key, own in times.items():
        start, count = own[0], 0
        for time, following in zip(own, [*own[1:], None], strict=True):
            count += 1
            if following is None or following - time > GAP_MS:
                found[key.encode() + struct.pack(">qq", time, start), struct.pack(">q", count)] = 1
                start, count = following or 0, 0
    return found


def _rows_looked_up(given: list[Input]) -> _Pairs:
    return {(key.encode(), f"{value}row {key}".encode()): 1 for topic, key, value, _ in given if topic == "left"}


def _pairs(given: list[Input]) -> _Pairs:
    sides: dict[str, tuple[list[tuple[int, str]], list[tuple[int, str]]]] = defaultdict(lambda: ([], []))
    for topic, key, value, time in given:
        sides[key][topic == "right"].append((time, value))
    return {
        (key.encode(), f"{one}{other}".encode()): 1
        for key, (left, right) in sides.items()
        for at, one in left
        for time, other in right
        if abs(at - time) <= APART_MS
    }


_EXPECTED = {
    "tumbling_count": _tumbling,
    "session_count": _sessions,
    "stream_table_join": _rows_looked_up,
    "stream_stream_join": _pairs,
}
