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
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tidemill.errors import QueryError, RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo
from tidemill.query.http_answer import to_json
from tidemill.query.http_group import ASK_LIMIT_S, OtherInstances, group_document
from tidemill.query.http_metrics import TEXT, to_prometheus
from tidemill.query.http_request import Request, allow_only
from tidemill.query.metadata import HostMap
from tidemill.query.status_source import StatusSource

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
        own = await self._call(self.source.status)
        hosts = self.hosts()
        own["assigned"] = self.source.assigned(hosts)
        return await group_document(own, self.own_host, _named(hosts), self.others, self.there)

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
        answers = [*([own] if own else []), *await self._asked(target)]
        led = [answer for answer in answers if answer.get("at_ms") is not None]
        if not led:
            raise RetriableError("no instance that answers has led a rebalance: ask again after the next one")
        return max(led, key=lambda answer: int(answer["at_ms"]))

    async def _asked(self, target: str) -> list[dict[str, Any]]:
        loop = asyncio.get_running_loop()
        hosts = [host for host in _named(self.hosts()) if host != self.own_host]

        def ask(host: HostInfo) -> Awaitable[dict[str, Any]]:
            request = loop.run_in_executor(self.there, lambda: self.others.document(host, target, timeout_s=ASK_LIMIT_S))
            return asyncio.wait_for(request, ASK_LIMIT_S + 0.5)  # one that sends a byte now and then is never silent

        answers = await asyncio.gather(*map(ask, hosts), return_exceptions=True)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _call(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.here, function)


def _named(hosts: HostMap) -> list[HostInfo]:
    return sorted({*hosts.active, *hosts.standby})
