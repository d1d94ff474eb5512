"""Contract of a task's state, whichever class keeps it: the one that ``lmdb`` implements.

A task has one state: its stores and, written in the same transaction, their positions. The invariant of an
implementation: what is read is always some batch that was applied whole, together with that batch's positions, and a batch is
applied only on the positions that it was computed from (compare-and-swap).

Keys and values are bytes; the operators decide what they mean, the task what the positions mean for a commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidemill.ids import TopicPartition

#: Changes of one batch: per store (key, value) pairs, None deletes; of two pairs with one key the later counts.
Writes = Mapping[str, Sequence[tuple[bytes, bytes | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Position of a task's state. All offsets are those of the *next* record to read.

    ``changelog``: per logged store; ``inputs``: per input partition; ``epoch``: the owner that may write, "" for none yet.
    """

    changelog: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[TopicPartition, int] = field(default_factory=dict)
    epoch: str = ""

    def may_follow(self, found: Positions) -> bool:
        """True if a batch computed from these positions may be applied to a state that is at `found`.

        Owner and changelog decide; a store without a position is at 0. Input offsets are the group's business: a restored
        state has none.
        """
        stores = {*self.changelog, *found.changelog}
        return self.epoch == found.epoch and all(
            self.changelog.get(store, 0) == found.changelog.get(store, 0) for store in stores
        )


@dataclass(frozen=True, slots=True)
class CheckedWrites:
    """Writes that nothing can refuse any more, in the encoding of the state that checked them; good for that state only."""

    puts: Mapping[str, Sequence[tuple[bytes, bytes]]]
    deletes: Mapping[str, Sequence[bytes]]


class TaskStores(Protocol):
    """The state of one task. Reads may come from several threads; writes from the owner's only."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores, sorted."""

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, in their order, None where there is none; all from one snapshot."""

    def scan(
        self,
        store: str,
        low: bytes | None = None,
        high: bytes | None = None,
        *,
        reverse: bool = False,
        chunk: int = 1000,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``low <= key < high`` in the order of their keys' bytes (unsigned).

        Each chunk is a snapshot of its own: a batch that is applied meanwhile shows up in the rest of the scan.
        """

    def positions(self) -> Positions:
        """The positions of the stores now."""

    def claim(self, epoch: str) -> Positions:
        """Make `epoch` the task's owner: batches of every other epoch are refused from now on. The positions after it."""

    def check(self, writes: Writes) -> CheckedWrites:
        """Everything about `writes` that can refuse; call it before the Kafka transaction ends, then apply the result.

        Raises StateError if a store is unknown or there is no room.
        """

    def apply(self, *, expected: Positions, new: Positions, writes: Writes | CheckedWrites) -> None:
        """Apply a batch, all or nothing: the state goes from `expected` to `new`.

        Raises StateBehindError, with nothing applied, unless ``expected.may_follow(positions())``.
        """

    def wipe(self, store: str | None = None) -> None:
        """Empty one store and forget its changelog position, or empty all and forget every position; the owner stays."""

    def close(self, *, clean: bool) -> None:
        """Release everything; ``clean`` also makes a persistent state safe against a power cut."""


def unknown_store(where: str, store: str, known: Sequence[str]) -> str:
    """The sentence for a store name that the task does not have."""
    return f"{where} has no store {store!r}; its stores are {', '.join(known) or 'none'}"


def require_epoch_kept(expected: Positions, new: Positions) -> None:
    """A batch may not change the owner: that is what ``claim`` is for. Raises ValueError."""
    if expected.epoch != new.epoch:
        raise ValueError(f"a batch can't change the owner's epoch (expected {expected.epoch!r}, new {new.epoch!r}): use claim()")
