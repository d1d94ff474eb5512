"""Other processes for the tests of the state: batches whose values say which batch wrote them, and a checked way to read them.

Run as a script: ``state_processes.py write DIRECTORY MAP_SIZE BATCHES`` or ``read DIRECTORY BATCHES``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tidemill.ids import TopicPartition
from tidemill.state.lmdb import TaskState
from tidemill.state.store import Positions

STORES = ("a", "b")
KEYS = [b"key-%d" % number for number in range(60)]
INPUT = TopicPartition("in", 0)
FOR_EVER = 10**9


def at_batch(number: int) -> Positions:
    """Where the state stands after batch `number`; 0 is a new one."""
    return Positions(changelog=dict.fromkeys(STORES, number) if number else {}, inputs={INPUT: number} if number else {})


def apply_batch(state: TaskState, number: int, *, value_size: int = 200) -> None:
    """Batch `number`: every key of both stores says so; odd batches write each third key to one store only."""
    value = b"%012d" % number
    writes: dict[str, list[tuple[bytes, bytes | None]]] = {
        store: [(key, value.ljust(value_size)) for key in KEYS] for store in STORES
    }
    writes["b"] += [(key, None) for key in KEYS[::3]] if number % 2 else []
    state.apply(expected=at_batch(number - 1), new=at_batch(number), writes=writes)


def batch_found(state: TaskState) -> int:
    """The batch that the state is at, after checking that every entry was written by it."""
    before = state.positions()
    entries = {store: dict(state.scan(store)) for store in STORES}
    if state.positions() != before:  # A batch was applied meanwhile, so the two scans need not agree.
        return -1
    number = before.changelog.get("a", 0)
    assert before == at_batch(number), before
    wanted = set(KEYS) if number else set()
    assert set(entries["a"]) == wanted
    assert set(entries["b"]) == wanted - (set(KEYS[::3]) if number % 2 else set())
    assert {int(value) for values in entries.values() for value in values.values()} <= {number}
    return number


def start(*arguments: object) -> subprocess.Popen[str]:
    """This file as another process, with pipes to it."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _write(directory: Path, map_size: int, batches: int) -> None:
    state = TaskState.open(directory, STORES, map_size=map_size)
    number = batch_found(state)
    print("ready", flush=True)
    for following in range(number + 1, number + batches + 1):
        apply_batch(state, following)
    state.close(clean=True)


def _write_when_told(directory: Path) -> None:
    state = TaskState.open(directory, STORES)
    print("ready", flush=True)
    for line in sys.stdin:
        apply_batch(state, int(line))
        print("applied", flush=True)


def _read(directory: Path, batches: int) -> None:
    """Read until the state is at the batch; prints how many different batches were seen whole, and the size of the map."""
    state = TaskState.open_to_read(directory)
    values = state.get_many("a", KEYS)
    seen = {values[0]}
    print("ready", flush=True)
    while state.positions().inputs.get(INPUT, 0) < batches:
        values = state.get_many("a", KEYS)  # One snapshot: all of one batch.
        assert len({value[:12] for value in values if value is not None}) <= 1
        seen.add(values[0])
        assert batch_found(state) <= batches
    seen.add(state.get_many("a", KEYS)[0])
    print(len(seen), state.size()[0], flush=True)


def _hold_a_snapshot(directory: Path) -> None:
    state = TaskState.open_to_read(directory)
    with state._environment.read():
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    role, folder, *numbers = sys.argv[1:]
    {"write": _write, "read": _read, "hold": _hold_a_snapshot, "told": _write_when_told}[role](Path(folder), *map(int, numbers))
