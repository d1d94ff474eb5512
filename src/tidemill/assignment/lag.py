"""Lags of clients on tasks: from offset sums to lags, and the claims that rules may make about lags.

Decides KIP-441's caught-up predicate, its rank, and which clients are most caught up. Invariant: a client without an
entry has no state of the task, so its lag is the task's end offset; only differing entries are kept, which makes the
work proportional to the copies that exist and not to clients times tasks. What follows from a lag is decided by the
assignors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tidemill.assignment.model import LATEST_OFFSET, LONG_MAX, UNKNOWN_OFFSET_SUM, ClientState
from tidemill.errors import AssignmentError
from tidemill.ids import TaskId

NO_STATE = 0
"""Offset sum of a task that a client does not mention."""


def lag_of(offset_sum: int, end_offset_sum: int) -> int:
    """The lag behind the end of a task's changelogs; -2 and -3 stay what they are.

    A sum above the end is taken as a corrupted store, which must be restored as a whole: lag = end.
    """
    if offset_sum in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM):
        return offset_sum
    return end_offset_sum if offset_sum > end_offset_sum else end_offset_sum - offset_sum


def is_caught_up(lag: int, acceptable_recovery_lag: int) -> bool:
    """True for a lag up to ``acceptable.recovery.lag`` and for a running active; for an unknown lag only if every lag is
    accepted."""
    return (
        0 <= lag <= acceptable_recovery_lag or lag == LATEST_OFFSET or acceptable_recovery_lag == LONG_MAX
    )


def rank_of(lag: int, end_offset_sum: int, acceptable_recovery_lag: int) -> int:
    """KIP-441's rank of a client for a task: 0 if caught up, else what is left to restore (all of it if unknown)."""
    if is_caught_up(lag, acceptable_recovery_lag):
        return 0
    return end_offset_sum if lag == UNKNOWN_OFFSET_SUM else lag


def sparse_lags(
    offset_sums: Mapping[TaskId, int], stateful_tasks: Collection[TaskId], end_offset_sums: Mapping[TaskId, int]
) -> dict[TaskId, int]:
    """``ClientState.lags`` of one process from the union of its consumers' offset sums; other tasks have lag = end."""
    return {
        task: lag_of(offset_sum, end_offset_sums[task])
        for task, offset_sum in offset_sums.items()
        if task in stateful_tasks
    }


class Lags:
    """The lags of all stateful tasks on all clients, by position: task and client numbers are their places in order."""

    __slots__ = ("_acceptable", "_by_client", "_client_count", "_end_is_caught_up", "_least", "_reported", "_tasks", "end")

    def __init__(
        self,
        clients: Sequence[ClientState],
        tasks: Sequence[TaskId],
        end_offset_sums: Mapping[TaskId, int],
        acceptable_recovery_lag: int,
    ) -> None:
        self._acceptable = acceptable_recovery_lag
        self._client_count = len(clients)
        self._tasks = tasks
        self._by_client = [client.lags for client in clients]
        self.end = _ends(clients, tasks, end_offset_sums)
        self._reported: list[list[tuple[int, int]]] = [[] for _ in tasks]
        number = {task: position for position, task in enumerate(tasks)}
        ends, reported_of = self.end, self._reported
        for position, lags in enumerate(self._by_client):
            for task, lag in lags.items():
                at = number.get(task)
                if at is not None and lag != ends[at]:
                    reported_of[at].append((lag, position))
        self._end_is_caught_up = [is_caught_up(end, acceptable_recovery_lag) for end in self.end]
        self._least = [
            min(reported)[0] if len(reported) == len(clients) else min(min(reported)[0], end) if reported else end
            for reported, end in zip(self._reported, self.end, strict=True)
        ]

    def lag(self, task: int, client: int) -> int:
        return self._by_client[client].get(self._tasks[task], self.end[task])

    def to_restore(self, task: int, client: int) -> int:
        """0 = nothing (caught up), 1 = some of the state, 2 = all of it."""
        lag = self.lag(task, client)
        return 0 if is_caught_up(lag, self._acceptable) else 2 if lag == self.end[task] else 1

    def least(self, task: int) -> int:
        """The lag of the most caught-up client: -3 sorts below -2, and that below 0."""
        return self._least[task]

    def is_caught_up(self, task: int, client: int) -> bool:
        lag = self._by_client[client].get(self._tasks[task], self.end[task])
        return is_caught_up(lag, self._acceptable)

    def reported(self, task: int) -> Sequence[tuple[int, int]]:
        """(lag, client) of the clients whose lag is not the end offset, in client order."""
        return self._reported[task]

    def end_is_caught_up(self, task: int) -> bool:
        """True if even a client without state counts as caught up."""
        return self._end_is_caught_up[task]

    def caught_up_count(self, task: int) -> int:
        reported = self._reported[task]
        if not reported:
            return self._client_count if self._end_is_caught_up[task] else 0
        acceptable = self._acceptable
        caught_up = sum([is_caught_up(lag, acceptable) for lag, _ in reported])
        return caught_up + (self._client_count - len(reported) if self._end_is_caught_up[task] else 0)

    def caught_up_clients(self, task: int) -> list[int]:
        """Caught-up clients, in no particular order; all clients but a few when the end itself is within the acceptable lag."""
        if self._end_is_caught_up[task]:
            return [client for client in range(self._client_count) if self.is_caught_up(task, client)]
        acceptable = self._acceptable
        return [client for lag, client in self._reported[task] if is_caught_up(lag, acceptable)]

    def most_caught_up_before(self, task: int, client: int) -> Iterator[int]:
        """The clients that come before ``client`` in the order of (lag, client)."""
        end = self.end[task]
        stop = (self.lag(task, client), client)
        reported = sorted(entry for entry in self._reported[task] if entry < stop)
        yield from (other for lag, other in reported if lag < end)
        if (end, 0) < stop:
            named = {other for _, other in self._reported[task]}
            before = client if stop[0] == end else self._client_count
            yield from (other for other in range(before) if other not in named)
        yield from (other for lag, other in reported if lag > end)


def _ends(clients: Sequence[ClientState], tasks: Sequence[TaskId], end_offset_sums: Mapping[TaskId, int]) -> list[int]:
    ends = []
    for task in tasks:
        end = end_offset_sums.get(task)
        if end is None:
            silent = next((client for client in clients if task not in client.lags), None)
            if silent is not None:
                raise AssignmentError(
                    f"no lag of stateful task {task} for client {silent.process_id}: neither the client's lags nor "
                    f"end_offset_sums name the task; give its end offset sum (0 for a new changelog)"
                )
            end = max(client.lags[task] for client in clients)
        ends.append(end)
    return ends
