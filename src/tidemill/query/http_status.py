"""Status pages: an instance and its group over HTTP.

    GET /health/live    200, or 503 if only a restart helps        GET /instance     this instance's document
    GET /health/ready   200, or 503 while a task here waits        GET /group        all instances' documents, as one
    GET /metrics        for Prometheus                             GET /topology     what ``tidemill describe --json`` prints
    GET /decisions      ?task=1_0: why a task is where it is: the leader's records, asked there
    GET /history        rebalances that this instance led; ?of=group: that any instance led

Decides that anyone may ask for health (a probe has no token), but its reasons only to those with the token. The documents
are ``StatusSource``'s; ``http_group`` merges them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from tidemill.assignment.scale import ScaleWish
from tidemill.errors import QueryError, RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo
from tidemill.printable import printable
from tidemill.query.document_reader import plain_document, read_document, to_plain
from tidemill.query.group_documents import GroupDocument, HistoryDocument, InstanceDocument, LedDecisions
from tidemill.query.http_answer import to_json
from tidemill.query.http_group import ASK_LIMIT_S, OtherInstances, ask_all, members, merged, merged_history
from tidemill.query.http_metrics import TEXT, to_prometheus
from tidemill.query.http_request import Request, allow_only, whole_number
from tidemill.query.metadata import HostMap
from tidemill.query.scale import advice
from tidemill.query.status_source import StatusSource

T = TypeVar("T")

HEALTH = ("/health/live", "/health/ready")
CHANGES = ("/drain",)
"""Paths of POST."""
MOST_INSTANCES = 10_000
DRAIN_LIMIT_MS, LONGEST_DRAIN_MS = 1_800_000, 7 * 86_400_000
_MOST_OF_HISTORY = 100
_FORWARDED = "handed_on"
"""Parameter of a request that an instance forwards to the leader: it is not forwarded again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPages:
    """``hosts``: the newest assignment by host; ``here`` and ``there`` as in ``Router``."""

    source: StatusSource
    hosts: Callable[[], HostMap]
    own_host: HostInfo | None
    others: OtherInstances
    here: Executor
    there: Executor

    async def find(self, request: Request, *, tells_reasons: bool) -> tuple[int, bytes, str | None] | None:
        """Status, body and media type (None: JSON); None if the request's path is none of these."""
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
                group = await self._group()
                return 200, to_json({**group.to_json(), "scale": plain_document(advice(group, ScaleWish()))}), None
            case ("scale",):
                allow_only(request, ("least", "most", "catch_up_s", "headroom_percent", "capacity_per_s"))
                wish = _scale_wish(request)
                return 200, to_json(plain_document(advice(await self._group(), wish))), None
            case ("history",):
                allow_only(request, ("of",))
                if request.parameters.get("of", "group") != "group":
                    raise QueryError(f"of={printable(request.parameters['of'])}: expected of=group, or no parameter")
                asked = self._group_history() if "of" in request.parameters else self._call(self.source.history)
                return 200, to_json(await asked), None
            case ("topology",):
                allow_only(request, ())
                return 200, to_json(self.source.topology()), None
            case ("decisions",):
                allow_only(request, ("task", _FORWARDED))
                return 200, to_json(await self._decisions(request)), None
            case _:
                return None

    async def change(self, request: Request) -> tuple[int, bytes] | None:
        """A change of the instance (POST), begun when this is answered. None if the path is of none."""
        if request.path != ("drain",):
            return None
        allow_only(request, ("timeout_ms",))
        limit_ms = whole_number(request, "timeout_ms", DRAIN_LIMIT_MS, least=1, most=LONGEST_DRAIN_MS)
        await asyncio.get_running_loop().run_in_executor(self.there, self.source.drain, limit_ms / 1e3)
        return 202, to_json({"drain": (await self._call(self.source.status))["drain"]})

    def _health(self, what: str, tells_reasons: bool) -> tuple[int, bytes, str | None]:
        """A restoring instance is alive and not ready, and says which of the two it is that takes time."""
        is_alive, _ = self.source.alive()
        is_fine, why = self.source.alive() if what == "live" else self.source.ready()
        restoring = self.source.restoring() if is_alive else None
        answer: dict[str, object] = {"status": "up" if is_fine else "down" if restoring is None else "restoring"}
        if why and tells_reasons:
            answer["reasons"] = list(why)
        if restoring is not None and tells_reasons:
            answer["restoring"] = restoring
        return 200 if is_fine else 503, to_json(answer), None

    async def _group(self) -> GroupDocument:
        own = read_document(InstanceDocument, await self._call(self.source.status))
        hosts = self.hosts()
        assigned = {host: tuple(map(TaskId.parse, tasks)) for host, tasks in self.source.assigned(hosts).items()}
        answers = await self._asked("/instance", InstanceDocument, hosts)
        found = members(own, answers, assigned)
        return merged(own.application, own.host, found, int(time.time() * 1e3))

    async def _group_history(self) -> dict[str, object]:
        """``left_out``: whose rebalances are missing, and why."""
        own = read_document(HistoryDocument, await self._call(self.source.history))
        answers = await self._asked("/history", HistoryDocument, self.hosts())
        histories = {str(host): answer for host, answer in answers.items() if not isinstance(answer, str)}
        histories[str(self.own_host or "this instance")] = own
        left_out = [{"host": str(host), "why": answer} for host, answer in answers.items() if isinstance(answer, str)]
        left_out += [{"host": host, "why": one.problem} for host, one in histories.items() if one.problem is not None]
        rebalances = merged_history({host: one.rebalances for host, one in histories.items()})
        return {"rebalances": to_plain(rebalances[-_MOST_OF_HISTORY:]), "left_out": left_out}

    async def _decisions(self, request: Request) -> dict[str, object]:
        """The decisions of the newest rebalance, from the instance that led it: all instances are asked for their newest one."""
        text = request.parameters.get("task")
        try:
            task = None if text is None else TaskId.parse(text)
        except ValueError as problem:
            raise QueryError(str(problem)) from None
        own = await self._call(lambda: self.source.decisions(task))
        if _FORWARDED in request.parameters:
            return own or {"at_ms": None, "decisions": []}
        target = f"/decisions?{_FORWARDED}=1" + ("" if text is None else f"&task={quote(text)}")
        answers = await self._asked(target, LedDecisions, self.hosts())
        given = [answer for answer in answers.values() if not isinstance(answer, str)]
        left_out = [{"host": str(host), "why": answer} for host, answer in answers.items() if isinstance(answer, str)]
        given += [read_document(LedDecisions, own)] if own else []
        newest = max(given, key=lambda answer: -1 if answer.at_ms is None else answer.at_ms, default=None)
        if newest is None or newest.at_ms is None:
            why = "".join(f"; {one['host']} {one['why']}" for one in left_out)
            raise RetriableError(f"no instance that answers has led a rebalance: ask again after the next one{why}")
        return {**plain_document(newest), "left_out": left_out}

    async def _asked(self, target: str, kind: type[T], hosts: HostMap) -> dict[HostInfo, T | str]:
        """Answers of the other instances, or the reason why there is none."""
        wanted = [host for host in _named(hosts) if host != self.own_host]
        return await ask_all(wanted, self.others, target, kind, self.there, limit_s=ASK_LIMIT_S)

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.here, function)


def _scale_wish(request: Request) -> ScaleWish:
    usual = ScaleWish()
    least = whole_number(request, "least", usual.least, least=1, most=MOST_INSTANCES)
    capacity = whole_number(request, "capacity_per_s", 0, least=1) if "capacity_per_s" in request.parameters else None
    return ScaleWish(
        least=least,
        most=whole_number(request, "most", max(usual.most, least), least=least, most=MOST_INSTANCES),
        catch_up_s=whole_number(request, "catch_up_s", usual.catch_up_s, least=1, most=86_400),
        headroom=whole_number(request, "headroom_percent", round(usual.headroom * 100), most=1_000) / 100,
        capacity_per_s=capacity,
    )


def _named(hosts: HostMap) -> list[HostInfo]:
    return sorted({*hosts.active, *hosts.standby})
