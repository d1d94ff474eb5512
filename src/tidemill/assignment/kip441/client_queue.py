"""Kafka's queue of clients by load, from which movements take the least loaded client that can keep a task.

Decides which client that is: the one with the fewest copies per thread, then the first. Only, Kafka's heap is out of
order for a while when the target of a movement has lost a copy and the keeper is put back before the target is. Where
that can make a difference the heap is run step by step as Java's is, from the last moment at which it was in order;
everywhere else a minimum gives the same. Beyond ``MOST_STEPS`` (large groups with several standbys) the minimum is
taken all the same: the answer may then name another of several caught-up clients than Kafka would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from tidemill.assignment.placement import TaskPlacement
from tidemill.java_collections.hash_table import hash_order, process_hash

MOST_STEPS = 50_000
"""Number of clients that the heap may hand out in one phase before being exact costs more than it is worth."""


class _PutBack(NamedTuple):
    """Two clients and how many copies more and fewer they have."""

    keeper: int
    gained: int
    target: int
    lost: int


class ClientQueue:
    """For one phase of movements: ``poll`` a keeper, move copies in the placement, ``put_back`` keeper and target."""

    def __init__(self, placement: TaskPlacement) -> None:
        self._placement = placement
        self._steps_left = MOST_STEPS
        self._heap: _Heap | None = None
        self._is_disordered = False
        self._all_were_polled = False
        self._log: list[int | _PutBack] = []

    def poll(self, eligible: Sequence[int]) -> int | None:
        """The least loaded of these clients; None if there are none."""
        if not eligible:
            self._start_over()
            return None
        if self._heap is None and self._is_disordered and len(eligible) > 1:
            self._heap = self._brought_up_to_date()
        if self._heap is not None:
            self._steps_left -= len(self._placement.clients)
            return self._heap.poll(set(eligible))
        polled = min(eligible, key=lambda client: (self._placement.load(client), client))
        self._log.append(polled)
        return polled

    def put_back(self, keeper: int, target: int, *, gained: int, lost: int) -> None:
        """After the keeper has got ``gained`` copies in the placement, and the target has ``lost`` some."""
        entry = _PutBack(keeper, gained, target, lost)
        if self._heap is not None:
            self._heap.put_back(entry)
            return
        self._log.append(entry)
        self._is_disordered |= lost > 0

    def _start_over(self) -> None:
        """A heap in order again: everyone was polled in vain and put back."""
        self._heap = None
        self._is_disordered = False
        self._all_were_polled = True
        self._log.clear()

    def _brought_up_to_date(self) -> _Heap | None:
        """The heap after all that was logged since it was in order; None if that takes too many steps."""
        clients: Iterable[int] = range(len(self._placement.clients))
        steps = (len(self._log) + 1) * len(self._placement.clients)
        if steps > self._steps_left:
            return None
        self._steps_left -= steps
        copies = self._placement.count.copy()
        for entry in self._log:
            if isinstance(entry, _PutBack):
                copies[entry.keeper] -= entry.gained
                copies[entry.target] += entry.lost
        heap = _Heap(self._placement, copies)
        heap.fill(heap.in_hash_order(sorted(clients, key=heap.key)) if self._all_were_polled else clients)
        for entry in self._log:
            if isinstance(entry, _PutBack):
                heap.put_back(entry)
            else:
                heap.poll({entry})
        return heap


class _Heap:
    """``java.util.PriorityQueue`` whose order depends on copies that change while clients are in it."""

    def __init__(self, placement: TaskPlacement, copies: list[int]) -> None:
        self._capacity = placement.capacity
        self._copies = copies
        self._hashes = [process_hash(client.process_id) for client in placement.clients]
        self._heap: list[int] = []

    def key(self, client: int) -> tuple[float, int]:
        return self._copies[client] / self._capacity[client], client

    def in_hash_order(self, clients: Iterable[int]) -> list[int]:
        return hash_order(clients, self._hashes.__getitem__)

    def fill(self, clients: Iterable[int]) -> None:
        for client in clients:
            self._heap.append(client)
            self._sift_up(len(self._heap) - 1)

    def poll(self, eligible: Set[int]) -> int:
        """Take clients until one is eligible; the others are put back in the order of a hash set."""
        rejected: list[int] = []
        while True:
            client = self._heap[0]
            self._remove_at(0)
            if client in eligible:
                self.fill(self.in_hash_order(rejected))
                return client
            rejected.append(client)

    def put_back(self, entry: _PutBack) -> None:
        self._copies[entry.keeper] += entry.gained
        self._copies[entry.target] -= entry.lost
        for client in (entry.keeper, entry.target):
            if client in self._heap:
                self._remove_at(self._heap.index(client))
            self.fill([client])

    def _remove_at(self, at: int) -> None:
        last = self._heap.pop()
        if at == len(self._heap):
            return
        self._heap[at] = last
        self._sift_down(at)
        if self._heap[at] == last:
            self._sift_up(at)

    def _sift_up(self, at: int) -> None:
        heap, client = self._heap, self._heap[at]
        while at > 0:
            parent = (at - 1) >> 1
            if self.key(client) >= self.key(heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = client

    def _sift_down(self, at: int) -> None:
        heap, client = self._heap, self._heap[at]
        half = len(heap) >> 1
        while at < half:
            child = 2 * at + 1
            if child + 1 < len(heap) and self.key(heap[child]) > self.key(heap[child + 1]):
                child += 1
            if self.key(client) <= self.key(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = client
