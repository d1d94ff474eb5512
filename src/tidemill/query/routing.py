"""Routing of reads: from this instance, the owners, else standbys; repeated until all partitions have answered.

Each round asks, for the partitions that are still missing: the copies here, the active hosts (in parallel), then standbys, here
and elsewhere, that are at most ``max_lag`` offsets behind. An owner that has just timed out is asked last, so
that a frozen one delays few requests. After a round there is a pause, since in a rebalance owners change, until
the question's time is over. A request that came from another instance is answered from the copies here only, so none is
forwarded twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from tidemill.deadline import Deadline
from tidemill.errors import InvalidStateStoreError, RetriableError
from tidemill.membership.wire import HostInfo
from tidemill.query.metadata import KeyQueryMetadata
from tidemill.query.rows import FoundRows, RowsQuestion
from tidemill.query.store_info import StoreInfo
from tidemill.task.progress import CopyProgress

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.4
_ATTEMPT_S = 2.0
"""Limit of one request to one host in s: a frozen host must leave time for its standbys."""
_LEAST_BYTES = 256 << 10
"""Least limit of the bytes of one host's answer, where many hosts share the limit of the request."""
_AWAY_S = 1.0
"""Seconds for which a host that did not answer is asked last."""

T = TypeVar("T")


class StoreDirectory(Protocol):
    """Stores of this instance (``StoreQueries``). Calls may block for as long as a broker's answer takes."""

    @property
    def stores(self) -> Mapping[str, StoreInfo]:
        """The stores by name."""

    @property
    def own_host(self) -> HostInfo | None:
        """The address of this instance in others' requests (``application.server``)."""

    def known_partition_count(self, store: StoreInfo) -> int | None: ...

    def partition_count(self, store: StoreInfo) -> int: ...

    def owners(self, store: StoreInfo, partition: int) -> KeyQueryMetadata: ...

    def read(self, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None) -> FoundRows: ...

    def progress(self) -> Sequence[CopyProgress]:
        """Progress of restoring tasks and standbys here."""


class RemoteInstances(Protocol):
    """Asks other instances; every way in which one can be away, or answer with something else, is a RetriableError."""

    def read(
        self, host: HostInfo, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None, timeout_s: float
    ) -> FoundRows: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """``here`` runs what only takes reading files, ``there`` what waits for other hosts or brokers: two executors, so that those
    that don't answer never hold up what is here. ``pages_here`` and ``pages_there`` do the same for questions of many rows, so
    that these never hold up the others."""

    directory: StoreDirectory
    remote: RemoteInstances
    here: Executor
    there: Executor
    pages_here: Executor
    pages_there: Executor
    timeout_s: float
    away_until: dict[HostInfo, Deadline] = field(default_factory=dict, compare=False)

    async def read(self, store: StoreInfo, question: RowsQuestion, *, max_lag: int) -> FoundRows:
        """The rows of all partitions of the question. InvalidStateStoreError, with what each host said, if time ran out."""
        deadline = Deadline.after(self.timeout_s)
        parts: list[FoundRows] = []
        pause_s = _FIRST_PAUSE_S
        while True:
            problems: list[str] = []
            await self._round(store, question, max_lag, parts, problems, deadline)
            missing = question.partitions - _covered(parts)
            if not missing:
                return FoundRows.merged(parts, question)
            if deadline.is_over:
                raise self._unanswered(store, sorted(missing), problems)
            await asyncio.sleep(min(pause_s, deadline.left_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def read_here(self, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None) -> FoundRows:
        """Rows from the copies here. The lag of a standby is known by a broker only."""
        read = partial(self.directory.read, store, question, max_lag=max_lag)
        executor = self.reading(question) if max_lag is None else self._waiting(question)
        return await asyncio.get_running_loop().run_in_executor(executor, read)

    def reading(self, question: RowsQuestion) -> Executor:
        """What reads the question's rows here, and writes its answer."""
        return self.pages_here if question.is_long else self.here

    def _waiting(self, question: RowsQuestion) -> Executor:
        return self.pages_there if question.is_long else self.there

    async def call(self, function: Callable[[], T]) -> T:
        """Something of the directory's that may ask a broker."""
        return await asyncio.get_running_loop().run_in_executor(self.there, function)

    def _is_away(self, host: HostInfo) -> bool:
        """True if the host did not answer a moment ago: others are asked first."""
        until = self.away_until.get(host)
        return until is not None and not until.is_over

    async def _round(
        self,
        store: StoreInfo,
        question: RowsQuestion,
        max_lag: int,
        parts: list[FoundRows],
        problems: list[str],
        deadline: Deadline,
    ) -> None:
        """One attempt at what ``parts`` lacks; adds to it, and to ``problems`` what each host said that had no answer."""

        def lacking() -> frozenset[int]:
            return question.partitions - _covered(parts)

        if lacking():
            parts.append(await self.read_here(store, replace(question, partitions=lacking()), max_lag=None))
        owners = {partition: self.directory.owners(store, partition) for partition in lacking()}
        actives = {p: [found.active_host] for p, found in owners.items() if found.active_host is not None}
        away = {p: hosts for p, hosts in actives.items() if self._is_away(hosts[0])}
        present = {p: hosts for p, hosts in actives.items() if p not in away}
        parts += await self._ask(store, question, present, None, problems, deadline)
        if lacking():
            parts.append(await self.read_here(store, replace(question, partitions=lacking()), max_lag=max_lag))
        standbys = {partition: list(owners[partition].standby_hosts) for partition in lacking()}
        parts += await self._ask(store, question, standbys, max_lag, problems, deadline)
        left = {partition: hosts for partition, hosts in away.items() if partition in lacking()}
        parts += await self._ask(store, question, left, None, problems, deadline)

    async def _ask(
        self,
        store: StoreInfo,
        question: RowsQuestion,
        hosts: Mapping[int, Iterable[HostInfo]],
        max_lag: int | None,
        problems: list[str],
        deadline: Deadline,
    ) -> list[FoundRows]:
        """Rows from other hosts, all asked at once; of two answers for a partition the one that is less behind counts."""
        partitions_of: dict[HostInfo, set[int]] = {}
        for partition, candidates in hosts.items():
            for host in candidates:
                if host != self.directory.own_host:
                    partitions_of.setdefault(host, set()).add(partition)
        loop = asyncio.get_running_loop()
        limit_s = max(0.05, min(_ATTEMPT_S, deadline.left_s))
        most_bytes = max(_LEAST_BYTES, question.most_bytes // max(1, len(partitions_of)))

        async def ask(host: HostInfo, partitions: set[int]) -> FoundRows | None:
            asked = replace(question, partitions=frozenset(partitions), most_bytes=most_bytes)
            request = loop.run_in_executor(
                self._waiting(question),
                lambda: self.remote.read(host, store, asked, max_lag=max_lag, timeout_s=limit_s),
            )
            try:
                found = await asyncio.wait_for(request, limit_s + 0.5)
            except (RetriableError, asyncio.TimeoutError) as error:
                problems.append(f"{host}: {str(error) or f'no answer in {limit_s:.1f} s'}")
                self.away_until[host] = Deadline.after(_AWAY_S)
                return None
            self.away_until.pop(host, None)
            unanswered = sorted(partitions - found.covered.keys())
            if unanswered:
                problems.append(f"{host}: has no copy to answer from of {_listed(unanswered)}")
            return found

        answers = await asyncio.gather(*(ask(host, partitions) for host, partitions in sorted(partitions_of.items())))
        return _without_doubles([answer for answer in answers if answer is not None], frozenset(hosts), question.limit)

    def _unanswered(self, store: StoreInfo, missing: list[int], problems: list[str]) -> InvalidStateStoreError:
        said = "; ".join(dict.fromkeys(problems)) or "it is assigned to no instance with an application.server"
        return InvalidStateStoreError(
            f"{store.name}: no copy of {_listed(missing)} could be read in {self.timeout_s:g} s ({said}); ask again",
            store=store.name,
        )


def _covered(parts: Iterable[FoundRows]) -> frozenset[int]:
    return frozenset(partition for part in parts for partition in part.covered)


def _without_doubles(answers: list[FoundRows], wanted: frozenset[int], limit: int) -> list[FoundRows]:
    """Each partition from one answer only, and none that wasn't asked for."""
    best: dict[int, tuple[int, int]] = {}
    for number, answer in enumerate(answers):
        for partition, lag in answer.covered.items():
            if partition in wanted and (partition not in best or lag < best[partition][0]):
                best[partition] = (lag, number)
    chosen: dict[int, set[int]] = {}
    for partition, (_, number) in best.items():
        chosen.setdefault(number, set()).add(partition)
    return [_part_of(answers[number], partitions, limit) for number, partitions in sorted(chosen.items())]


def _part_of(answer: FoundRows, partitions: Collection[int], limit: int) -> FoundRows:
    """What an answer has of some of its partitions. If the limit has ended its rows, that was at the last key of all of them: the
    rows of these partitions are fewer, and more may follow from there."""
    rows = tuple(row for row in answer.rows if row.partition in partitions)
    is_cut = len(rows) < len(answer.rows) == limit and answer.rows[0].key < answer.rows[-1].key
    return FoundRows(
        rows=rows,
        covered={partition: answer.covered[partition] for partition in partitions},
        more_from=answer.rows[-1].key if is_cut else answer.more_from,
        position=answer.position.of(partitions),
    )


def _listed(partitions: Iterable[int]) -> str:
    found = list(partitions)
    return f"partition{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
