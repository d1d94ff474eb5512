"""What the operators' benchmark feeds its programs, and what must come out of them: the same for every system.

Records of random keys, ten a millisecond of event time, with a table's rows before them, or of two streams in turn, or of a
table whose keys change their groups. What is expected is computed from the records by what the operators mean, not by anything
that is measured.
"""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

OF_ONE_TASK = (
    "tumbling_count", "stream_table_join", "stream_stream_join", "session_count", "table_table_join", "processor_count",
)  # fmt: skip
OF_GROUPS = ("grouped_table_count", "foreign_key_join")
"""The values of their left table name a group, and repartition topics are between their tasks."""
PROGRAMS = (*OF_ONE_TASK, *OF_GROUPS)
KEYS, GROUPS = 20_000, 1_000
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
    rows = {"stream_table_join": KEYS, "foreign_key_join": GROUPS}.get(program, 0)
    for number in range(rows):
        yield "right", str(number), f"row {number}", START_MS - 1
    takes_turns = program in ("stream_stream_join", "table_table_join")
    for number in range(records):
        topic = "right" if takes_turns and number % 2 else "left"
        key, value = str(chance.randrange(KEYS)), f"value {number}"
        if program in OF_GROUPS:
            value = f"{value} {chance.randrange(GROUPS)}"
        yield topic, key, value, START_MS + number // PER_MS


def check(program: str, records: int, output: Mapping[tuple[bytes, bytes], int]) -> Checked:
    """Compares what came out, each distinct key and value with how often it did, with what must."""
    wanted = _EXPECTED[program](list(inputs(program, records)))
    missing = sum(max(0, times - output.get(pair, 0)) for pair, times in wanted.items())
    wrong = sum(max(0, times - wanted.get(pair, 0)) for pair, times in output.items())
    return Checked(sum(wanted.values()), missing, wrong)


def keeps_latest(program: str) -> bool:
    """Whether only the last value of each key of the output counts: the programs whose result is a table."""
    return program.endswith("_count") or program in (*OF_GROUPS, "table_table_join")


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


def _grouped_table(given: list[Input]) -> _Pairs:
    rows = {key: value.split()[2] for _, key, value, _ in given}
    counts = Counter({value.split()[2]: 0 for _, _, value, _ in given})
    counts.update(rows.values())
    return {(group.encode(), struct.pack(">q", count)): 1 for group, count in counts.items()}


def _foreign_rows(given: list[Input]) -> _Pairs:
    rows = {key: value for topic, key, value, _ in given if topic == "left"}
    return {(key.encode(), f"{value}row {value.split()[2]}".encode()): 1 for key, value in rows.items()}


def _rows_of_both(given: list[Input]) -> _Pairs:
    left, right = ({key: value for topic, key, value, _ in given if topic == side} for side in ("left", "right"))
    return {(key.encode(), f"{value}{right[key]}".encode()): 1 for key, value in left.items() if key in right}


def _counts(given: list[Input]) -> _Pairs:
    counts = Counter(key for _, key, _, _ in given)
    return {(key.encode(), struct.pack(">q", count)): 1 for key, count in counts.items()}


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
    "table_table_join": _rows_of_both,
    "processor_count": _counts,
    "grouped_table_count": _grouped_table,
    "foreign_key_join": _foreign_rows,
}
