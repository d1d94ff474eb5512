"""Kinds of recorded lines.

Decides the kind by the fields that only one kind has, by the id's prefix, or by what the caller says; and takes the
WordCount experiment, one document, apart into lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from tidemill.documents import Document
from tidemill.errors import ConfigError


class Kind(Enum):
    """Kind of a record; the value is its name on the command line."""

    HIGH_AVAILABILITY = "ha"
    CONVERGENCE = "convergence"
    STICKY = "sticky"
    PUBLIC_STICKY = "public_sticky"
    FALLBACK = "fallback"
    RACK = "rack"
    THREAD = "thread"
    EXPERIMENT = "experiment"
    E2E = "e2e"
    WIRE = "wire"


_KIND_OF_ID_PREFIX = {
    "ha-": Kind.HIGH_AVAILABILITY,
    "conv-": Kind.CONVERGENCE,
    "stic-": Kind.STICKY,
    "psticky-": Kind.PUBLIC_STICKY,
    "fall-": Kind.FALLBACK,
    "rack-": Kind.RACK,
    "thr-": Kind.THREAD,
    "e2e-": Kind.E2E,
}


def kind_of(record: Document, otherwise: Kind | None = None) -> Kind:
    """The kind: by fields that only one kind has, else by the id's prefix, else ``otherwise``."""
    by_fields = _kind_by_fields(record)
    if by_fields is not None:
        return by_fields
    name = str(record.get("id", ""))
    by_id = next((kind for prefix, kind in _KIND_OF_ID_PREFIX.items() if name.startswith(prefix)), None)
    kind = by_id or otherwise or (Kind.HIGH_AVAILABILITY if _looks_like_high_availability(record) else None)
    if kind is None:
        raise ConfigError(
            f"can't tell which assignor the record {name!r} is about: neither its fields nor the prefix of its id say so; "
            f"give --kind, one of {', '.join(kind.value for kind in Kind)}"
        )
    return kind


def experiment_records(document: Document) -> Iterator[Document]:
    """The cases of ``seed_experiment.json``, one record for each version of Kafka: clients' and threads' tasks."""
    for case in document["same_inputs"]:
        for version, answer in case.items():
            if version.startswith("kafka_"):
                yield _experiment_record(case["input"], version, answer["result"], case["id"])
    for version, run in document.get("own_trajectory", {}).items():
        for round_ in run["rounds"]:
            yield _experiment_record(round_["input"], version, round_["result"], round_["input"]["id"])


def _experiment_record(inputs: Document, version: str, result: Document, name: str) -> Document:
    answers = {key: result[key] for key in ("expected", "threads") if key in result}
    return {**inputs, "id": f"{name}/{version}", "kafka": version.removeprefix("kafka_"), **answers}


def _kind_by_fields(record: Document) -> Kind | None:
    if str(record.get("type", "")).startswith(("SubscriptionInfo", "AssignmentInfo")):
        return Kind.WIRE
    if "rounds" in record:
        return Kind.E2E if "topology" in record else Kind.CONVERGENCE
    if "client" in record and ("stages" in record or "assigned_active" in record):
        return Kind.THREAD
    if "must_preserve_active_task_assignment" in record:
        return Kind.PUBLIC_STICKY
    if "assignor" in record:
        return Kind.RACK
    return Kind.EXPERIMENT if "kafka" in record else None


def _looks_like_high_availability(record: Document) -> bool:
    """Only the answers of the sticky assignors depend on an iteration order."""
    return {"configs", "tasks", "clients"} <= record.keys() and "iteration_order" not in record
