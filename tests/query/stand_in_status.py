"""A group of three instances as it once was (tests/dashboard/recorded), without threads, brokers or Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.query.stand_ins import COUNTS, StandInDirectory, host_map, router
from tidemill.errors import RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo, host_of
from tidemill.metrics.names import Metric, MetricName, RecordingLevel
from tidemill.query.http_app import ReadsApp
from tidemill.query.http_status import StatusPages
from tidemill.query.metadata import HostMap

RECORDED = Path(__file__).parents[1] / "dashboard" / "recorded"
Document = dict[str, Any]


def recorded(name: str) -> Document:
    found: Document = json.loads((RECORDED / f"{name}.json").read_text())
    return found


def instances_of(group: Document) -> dict[HostInfo, Document | None]:
    """What each instance had told, None for one that was away."""
    told: dict[HostInfo, Document | None] = {}
    for one in group["instances"]:
        host = host_of(one["host"])
        assert host is not None
        led = [{**led} for led in group["rebalances"] if led["led_by"] == one["host"]]
        told[host] = None if one["away"] is not None else {**one, "led": led}
    return told


@dataclass
class StandInStatus:
    """One instance. ``down``: why it is not alive."""

    document: Document
    down: str = ""
    decided: Document | None = None
    planned: dict[str, list[str]] = field(default_factory=dict)
    measured: dict[MetricName, Metric] = field(default_factory=dict)
    refusal: Exception | None = None
    """Why it does not drain."""

    def status(self) -> Document:
        return json.loads(json.dumps(self.document))

    def decisions(self, task: TaskId | None) -> Document | None:
        return self.decided

    def assigned(self, hosts: HostMap) -> dict[str, list[str]]:
        return self.planned

    def topology(self) -> Document:
        return recorded("topology")

    def history(self) -> Document:
        return {"rebalances": self.document["led"], "problem": None}

    def restoring(self) -> Document | None:
        found: Document | None = self.document.get("restoring")
        return found

    def drain(self, timeout_s: float) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.document["drain"] = {
            "phase": "draining", "message": "", "since_ms": 1, "until_ms": 1 + int(timeout_s * 1e3), "active": 3, "standby": 0,
        }  # fmt: skip

    def metrics(self) -> dict[MetricName, Metric]:
        return self.measured

    def alive(self) -> tuple[bool, tuple[str, ...]]:
        return not self.down, (self.down,) if self.down else ()

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        return self.document["ready"] and not self.down, tuple(self.document["why"])


@dataclass
class StandInOthers:
    """The others of the group; ``decided``: what they say of decisions."""

    told: dict[HostInfo, Document | None]
    decided: dict[HostInfo, Document] = field(default_factory=dict)
    asked: list[tuple[HostInfo, str]] = field(default_factory=list)

    def document(self, host: HostInfo, target: str, *, timeout_s: float) -> Document:
        self.asked.append((host, target))
        document = self.told.get(host)
        if document is None:
            raise RetriableError("does not answer (ConnectionRefusedError: [Errno 111] Connection refused)")
        if target == "/history":
            return {"rebalances": document["led"], "problem": None}
        if target.startswith("/decisions"):
            return self.decided.get(host, {"at_ms": None, "decisions": []})
        return json.loads(json.dumps(document))


def group_app(
    name: str = "warming_up", *, token: str = "", entries: dict[str, int] | None = None, **source: Any
) -> tuple[ReadsApp, StandInStatus, StandInOthers]:
    """The HTTP application of the instance that was asked for the recorded group."""
    group = recorded(name)
    told = instances_of(group)
    own = host_of(group["asked"])
    assert own is not None
    here = StandInDirectory(
        own_host=own, hosts=host_map({own: (0, 1, 2)}), copies={0: None, 1: None, 2: None}, entries=entries or {},
        stores={"counts-store": COUNTS if entries is None else _counts_store()},
    )  # fmt: skip
    routing = router(here)
    status, others = StandInStatus(told[own] or {}, planned=_planned(group), **source), StandInOthers(told)
    pages = StatusPages(
        source=status,
        hosts=lambda: HostMap(active=dict.fromkeys(told, ())),
        own_host=own,
        others=others,
        here=routing.here,
        there=routing.there,
    )
    app = ReadsApp(
        router=routing, application_id=group["application"], token=token, max_staleness=100, status=pages
    )
    return app, status, others


def _planned(group: Document) -> dict[str, list[str]]:
    return {client["host"]: client["active"] for client in group["rebalances"][-1]["clients"]}


def _counts_store() -> Any:
    from tests.query.stand_ins import store_info

    return store_info("counts-store")


def gauge(name: str, group: str, value: float | str, **tags: str) -> tuple[MetricName, Metric]:
    metric_name = MetricName(name, group, tuple((key.replace("_", "-"), text) for key, text in tags.items()))
    return metric_name, Metric(metric_name, value, RecordingLevel.INFO)
