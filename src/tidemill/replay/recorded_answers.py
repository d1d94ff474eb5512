"""Recorded answers, and their differences from a result.

Decides which fields are answers and that they are compared as values; one error equals another, whatever they say.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.documents import Document
from tidemill.replay.record_kinds import Kind


def recorded_answer(record: Document, kind: Kind, *, sorted_containers: bool = False) -> dict[str, object] | None:
    """The record's answer, in the shape of the result; None if it has none."""
    if kind is Kind.THREAD:
        stages = record.get("stages", ())
        if not stages or any("assignment" not in stage for stage in stages):
            return None
        return {"stages": [{"stage": stage["stage"], "assignment": stage["assignment"]} for stage in stages]}
    if kind in (Kind.CONVERGENCE, Kind.E2E):
        answers = [round_.get("expected", _error_in(round_)) for round_ in record["rounds"]]
        return None if None in answers else {"rounds": answers}
    if kind is Kind.EXPERIMENT:
        return {key: record[key] for key in ("expected", "threads")} if "threads" in record else None
    if kind is Kind.WIRE:
        answer = {key: record[key] for key in ("hex", "decoded") if key in record}
        return answer if "decoded" in answer else _error_in(record)
    if sorted_containers and "expected_sorted_containers" in record:
        return dict(record["expected_sorted_containers"])
    return dict(record["expected"]) if "expected" in record else _error_in(record)


def first_difference(said: object, got: object, where: str = "") -> str | None:
    """The first place where two answers differ, in words; None if they are equal. Two errors are equal."""
    if isinstance(said, Mapping) and isinstance(got, Mapping):
        if "error" in said and "error" in got:
            return None
        for key in (*said, *(key for key in got if key not in said)):
            if key not in said or key not in got:
                return f"{_joined(where, key)}: only in the {'recorded answer' if key in said else 'result'}"
            found = first_difference(said[key], got[key], _joined(where, key))
            if found is not None:
                return found
        return None
    if isinstance(said, list) and isinstance(got, list) and len(said) == len(got):
        pairs = (first_difference(a, b, f"{where}[{at}]") for at, (a, b) in enumerate(zip(said, got, strict=True)))
        scalars = not any(isinstance(entry, (Mapping, list)) for entry in (*said, *got))
        return _unequal(said, got, where) if scalars else next((pair for pair in pairs if pair is not None), None)
    return _unequal(said, got, where)


def _error_in(record: Document) -> dict[str, object] | None:
    return {"error": record["error"]} if "error" in record else None


def _joined(where: str, key: str) -> str:
    return f"{where}.{key}" if where else str(key)


def _unequal(said: object, got: object, where: str) -> str | None:
    return None if said == got else f"{where or 'answer'}: recorded {said}, result {got}"
