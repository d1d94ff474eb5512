"""The whole group as one document: what every instance tells of itself, asked side by side.

Decides who is asked (all hosts of the newest assignment), how long one is waited for, and what stands for one that does not
answer: the active tasks that it is to have, which nobody may be running now. The rebalances that instances have led are put
into one timeline; who has led the newest one counts as leader, and what it means a copy for (standby or warm-up) counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from tidemill.errors import RetriableError
from tidemill.membership.wire import HostInfo

ASK_LIMIT_S = 1.5
_MOST_REBALANCES = 60

Document = Mapping[str, Any]


class OtherInstances(Protocol):
    def document(self, host: HostInfo, target: str, *, timeout_s: float) -> dict[str, Any]:
        """What GET ``target`` gives there. RetriableError, with why, if it does not answer."""


async def group_document(
    own: dict[str, Any], own_host: HostInfo | None, hosts: Sequence[HostInfo], others: OtherInstances, there: Executor
) -> dict[str, Any]:
    """``own``: this instance's document, with what each is ``assigned``; ``there`` waits for the others."""
    loop = asyncio.get_running_loop()
    wanted = [host for host in hosts if host != own_host]

    async def ask(host: HostInfo) -> dict[str, Any]:
        request = loop.run_in_executor(there, lambda: others.document(host, "/instance", timeout_s=ASK_LIMIT_S))
        try:
            return {**await asyncio.wait_for(request, ASK_LIMIT_S + 0.5), "host": str(host), "away": None}
        except (RetriableError, asyncio.TimeoutError) as error:
            return {"host": str(host), "away": str(error) or f"no answer in {ASK_LIMIT_S:g} s"}

    answers = await asyncio.gather(*(ask(host) for host in wanted))
    return merged({**own, "away": None}, list(answers))


def merged(own: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """One document of all; instances by address, rebalances oldest first."""
    instances = sorted([own, *others], key=lambda one: (one["host"] is None, _by_address(one["host"] or "")))
    rebalances = [
        {**led, "led_by": one["host"] or one["process"][:8]} for one in instances for led in one.pop("led", ())
    ]
    rebalances.sort(key=lambda led: led["at_ms"])
    newest = rebalances[-1] if rebalances else None
    roles = {client["process"]: client for client in newest["clients"]} if newest else {}
    assigned = own.pop("assigned", {})
    for one in instances:
        one["assigned"] = assigned.get(one["host"], [])
        told = roles.get(one.get("process"))
        for thread in one.get("threads", ()):
            for copy in thread["standby"]:
                copy["role"] = "warm-up" if told and copy["task"] in told["warmup"] else "standby"
    silent = [client for client in roles.values() if client["host"] is None and not _is_known(client, instances)]
    return {
        "application": own["application"],
        "asked": own["host"],
        "now_ms": int(time.time() * 1e3),
        "leader": newest["led_by"] if newest else None,
        "instances": instances,
        "silent": silent,
        "rebalances": rebalances[-_MOST_REBALANCES:],
    }


def _is_known(client: Document, instances: list[dict[str, Any]]) -> bool:
    return any(one.get("process") == client["process"] for one in instances)


def _by_address(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return name, int(port) if port.isdigit() else 0
