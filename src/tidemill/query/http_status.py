"""What an instance tells of itself and its group over HTTP.

    GET /health/live    200, or 503 if only a restart helps        GET /instance     this instance's document
    GET /health/ready   200, or 503 while a task here waits        GET /group        all instances' documents, as one
    GET /metrics        for Prometheus                             GET /topology     what ``tidemill describe --json`` prints
    GET /decisions      ?task=1_0: why a task is where it is: the leader's records, asked there

Decides that health is told to anyone (a probe has no token), but its reasons only to those with the token. Leaves to others what
the documents hold (``StatusSource``) and how they are put together (``http_group``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from tidemill.errors import QueryError, RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo
from tidemill.query.document_reader import read_document, to_plain
from tidemill.query.group_documents import InstanceDocument, LedDecisions
from tidemill.query.http_answer import to_json
from tidemill.query.http_group import ASK_LIMIT_S, OtherInstances, ask_all, members, merged
from tidemill.query.http_metrics import TEXT, to_prometheus
from tidemill.query.http_request import Request, allow_only
from tidemill.query.metadata import HostMap
from tidemill.query.status_source import StatusSource

T = TypeVar("T")

HEALTH = ("/health/live", "/health/ready")
_HANDED_ON = "handed_on"
"""The parameter of a question that one instance hands on to the leader: it is not handed on again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPages:
    """``hosts``: who is to have what by the newest assignment; ``here`` and ``there`` as in ``Router``."""

    source: StatusSource
    hosts: Callable[[], HostMap]
    own_host: HostInfo | None
    others: OtherInstances
    here: Executor
    there: Executor

    async def find(self, request: Request, *, tells_reasons: bool) -> tuple[int, bytes, str | None] | None:
        """Status, body and media type (None: JSON); None if nothing of this stands under the request's path."""
        match request.path:
            case ("health", "live" | "ready" as what):
                allow_only(request, ())
                return self._health(what, tells_reasons)
            case ("metrics",):
                allow_only(request, ())
                return 200, await self._call(lambda: to_prometheus(self.source.metrics())), TEXT
            case ("instance",):
                allow_only(request, ())
                return 200, to_json(await self._call(self.source.status)), None
            case ("group",):
                allow_only(request, ())
                return 200, to_json(await self._group()), None
            case ("topology",):
                allow_only(request, ())
                return 200, to_json(self.source.topology()), None
            case ("decisions",):
                allow_only(request, ("task", _HANDED_ON))
                return 200, to_json(await self._decisions(request)), None
            case _:
                return None

    def _health(self, what: str, tells_reasons: bool) -> tuple[int, bytes, str | None]:
        is_fine, why = self.source.alive() if what == "live" else self.source.ready()
        answer: dict[str, Any] = {"status": "up" if is_fine else "down"}
        if why and tells_reasons:
            answer["reasons"] = list(why)
        return 200 if is_fine else 503, to_json(answer), None

    async def _group(self) -> dict[str, Any]:
        own = read_document(InstanceDocument, await self._call(self.source.status))
        hosts = self.hosts()
        assigned = {host: tuple(map(TaskId.parse, tasks)) for host, tasks in self.source.assigned(hosts).items()}
        answers = await self._asked("/instance", InstanceDocument, hosts)
        found = members(own, answers, assigned)
        return merged(own.application, own.host, found, int(time.time() * 1e3)).to_json()

    async def _decisions(self, request: Request) -> dict[str, Any]:
        """From who has led the newest rebalance; the instances are asked for theirs in turn of their newest one."""
        text = request.parameters.get("task")
        try:
            task = None if text is None else TaskId.parse(text)
        except ValueError as problem:
            raise QueryError(str(problem)) from None
        own = await self._call(lambda: self.source.decisions(task))
        if _HANDED_ON in request.parameters:
            return own or {"at_ms": None, "decisions": []}
        target = f"/decisions?{_HANDED_ON}=1" + ("" if text is None else f"&task={quote(text)}")
        answers = await self._asked(target, LedDecisions, self.hosts())
        given = [answer for answer in answers.values() if not isinstance(answer, str)]
        left_out = [{"host": str(host), "why": answer} for host, answer in answers.items() if isinstance(answer, str)]
        given += [read_document(LedDecisions, own)] if own else []
        newest = max(given, key=lambda answer: -1 if answer.at_ms is None else answer.at_ms, default=None)
        if newest is None or newest.at_ms is None:
            why = "".join(f"; {one['host']} {one['why']}" for one in left_out)
            raise RetriableError(f"no instance that answers has led a rebalance: ask again after the next one{why}")
        return {**to_plain(newest), "left_out": left_out}

    async def _asked(self, target: str, kind: type[T], hosts: HostMap) -> dict[HostInfo, T | str]:
        """What the others answer, or why one has no answer."""
        wanted = [host for host in _named(hosts) if host != self.own_host]
        return await ask_all(wanted, self.others, target, kind, self.there, limit_s=ASK_LIMIT_S)

    async def _call(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.here, function)


def _named(hosts: HostMap) -> list[HostInfo]:
    return sorted({*hosts.active, *hosts.standby})
