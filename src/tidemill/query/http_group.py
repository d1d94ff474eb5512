"""The whole group as one document, from those of its instances, which are asked in parallel.

Decides who is asked (all hosts of the newest assignment), how long one is waited for, and what replaces one that does not
answer, or whose answer can't be read: its assigned active tasks, which may not be running anywhere now. The rebalances
that instances have led are put into one timeline; who has led the newest one counts as leader, and what it means a copy for
(standby or warm-up) counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Protocol, TypeVar

from tidemill.documents import Document
from tidemill.errors import RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo
from tidemill.query.document_reader import UnreadableDocumentError, read_document
from tidemill.query.group_documents import (
    GroupDocument,
    InstanceDocument,
    MemberDocument,
    RebalanceDocument,
    ThreadDocument,
)

ASK_LIMIT_S = 1.5
_MOST_REBALANCES = 60

T = TypeVar("T")


class OtherInstances(Protocol):
    def document(self, host: HostInfo, target: str, *, timeout_s: float) -> Document:
        """The document at ``target`` of that instance. RetriableError, with why, if it does not answer."""


async def ask_all(
    hosts: Sequence[HostInfo], others: OtherInstances, target: str, kind: type[T], there: Executor, *, limit_s: float
) -> dict[HostInfo, T | str]:
    """Answer of each host, as ``kind``, or a sentence that says why there is no such answer; ``there`` waits for them."""
    loop = asyncio.get_running_loop()

    def ask(host: HostInfo) -> T:
        found = others.document(host, target, timeout_s=limit_s)
        try:
            return read_document(kind, found)
        except UnreadableDocumentError as error:
            raise RetriableError(f"answers, but not as an instance of this version of Tidemill: {error}") from None

    async def answer(host: HostInfo) -> T | str:
        request: Awaitable[T] = loop.run_in_executor(there, ask, host)
        try:
            return await asyncio.wait_for(request, limit_s + 0.5)  # one that sends a byte now and then is never silent
        except (RetriableError, asyncio.TimeoutError) as error:
            return str(error) or f"no answer in {limit_s:g} s"

    return dict(zip(hosts, await asyncio.gather(*map(answer, hosts)), strict=True))


def members(
    own: InstanceDocument, answers: Mapping[HostInfo, InstanceDocument | str], assigned: Mapping[str, Sequence[TaskId]]
) -> list[MemberDocument]:
    """This instance and the others, each under the address at which it was asked."""
    found = [MemberDocument(host=own.host, reported=own, away=None)]
    for host, answer in answers.items():
        if isinstance(answer, str):
            found.append(MemberDocument(host=str(host), reported=None, away=answer))
        else:
            found.append(MemberDocument(host=str(host), reported=replace(answer, host=str(host)), away=None))
    return [replace(one, assigned=tuple(assigned.get(one.host or "", ()))) for one in found]


def merged(application: str, asked: str | None, found: Sequence[MemberDocument], now_ms: int) -> GroupDocument:
    """One document of all; instances by address, rebalances oldest first."""
    instances = sorted(found, key=lambda one: (one.host is None, _by_address(one.host or "")))
    reported = [one.reported for one in instances if one.reported is not None]
    rebalances = [replace(led, led_by=one.host or one.process[:8]) for one in reported for led in one.led]
    rebalances.sort(key=lambda led: led.at_ms)
    newest = rebalances[-1] if rebalances else None
    known = {one.process for one in reported}
    silent = (one for one in (newest.clients if newest else ()) if one.host is None and one.process not in known)
    return GroupDocument(
        application=application,
        asked=asked,
        now_ms=now_ms,
        leader=newest.led_by if newest else None,
        instances=tuple(_with_roles(one, newest) for one in instances),
        silent=tuple(silent),
        rebalances=tuple(rebalances[-_MOST_REBALANCES:]),
    )


def merged_history(histories: Mapping[str, Sequence[RebalanceDocument]]) -> list[RebalanceDocument]:
    """The rebalances that instances have led, by the instances' names, as one list, oldest first."""
    found = [replace(led, led_by=name) for name, of_one in histories.items() for led in of_one]
    return sorted(found, key=lambda led: (led.at_ms, led.led_by))


def _with_roles(member: MemberDocument, newest: RebalanceDocument | None) -> MemberDocument:
    """The member, with its copies marked as warm-ups or standbys by the leader's assignment."""
    reported = member.reported
    if reported is None:
        return member
    clients = newest.clients if newest else ()
    warmups = {task for client in clients if client.process == reported.process for task in client.warmup}

    def with_roles(thread: ThreadDocument) -> ThreadDocument:
        copies = (replace(copy, role="warm-up" if copy.task in warmups else "standby") for copy in thread.standby)
        return replace(thread, standby=tuple(copies))

    return replace(member, reported=replace(reported, threads=tuple(map(with_roles, reported.threads))))


def _by_address(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return name, int(port) if port.isdigit() else 0
