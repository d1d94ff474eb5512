"""How many instances are wanted: by lag, rate and capacity, and never while tasks are on their way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.query.stand_in_status import group_app, recorded
from tests.query.stand_ins import ask
from tidemill.assignment.scale import ScaleAdvice, ScaleWish
from tidemill.query.group_documents import GroupDocument, read_group
from tidemill.query.scale import advice

Document = dict[str, Any]


def document(per_s: float = 1_000.0, behind: int = 0, capacity: float | None = None) -> Document:
    """Three instances of four tasks each, all at work: figures of each instance."""
    found = recorded("warming_up")
    for one in found["instances"]:
        [thread] = one["threads"]
        thread.update(records_per_s=per_s, capacity_per_s=capacity, standby=[])
        for task in thread["active"]:
            task.update(behind=0)
        thread["active"][0]["behind"] = behind
    return found


def told(found: Document, **wish: Any) -> ScaleAdvice:
    group: GroupDocument = read_group(found)
    return advice(group, ScaleWish(**wish))


@pytest.mark.parametrize(
    ("figures", "wish", "wanted"),
    [
        # 3 x 1,000/s with 30 % headroom are 3,900/s
        ({"capacity": 2_000.0}, {}, 2),
        ({"capacity": 1_300.0}, {}, 3),
        ({"capacity": 1_000.0}, {}, 4),
        ({"capacity": 1_000.0}, {"headroom": 0.0}, 3),
        # 3 x 300,000 records in 300 s are 3,000/s more
        ({"capacity": 1_300.0, "behind": 300_000}, {}, 6),
        ({"capacity": 1_300.0, "behind": 300_000}, {"catch_up_s": 3_000}, 4),
        ({"capacity": 1_300.0, "behind": 300_000}, {"most": 4}, 4),
        ({"capacity": 100_000.0}, {}, 2),
        ({"capacity": 100_000.0}, {"least": 3}, 3),
        ({"capacity": 10.0}, {}, 12),
        ({}, {"capacity_per_s": 1_000}, 4),
        ({"capacity": 5_000.0}, {"capacity_per_s": 1_000}, 4),
        ({"per_s": 0.0, "capacity": 2_000.0}, {}, 2),
    ],
)
def test_the_number_follows_from_rate_lag_headroom_and_capacity(
    figures: Mapping[str, Any], wish: Mapping[str, Any], wanted: int
) -> None:
    found = told(document(**figures), **wish)
    assert (found.wanted, found.present, found.waits) == (wanted, 3, False), found.why


def test_where_the_capacity_is_not_known_a_lag_asks_for_one_more_and_nothing_for_less() -> None:
    assert told(document()).wanted == 3
    assert told(document(behind=1_000)).wanted == 3
    more = told(document(behind=10_000_000))
    assert (more.wanted, more.capacity_per_s) == (4, None)
    assert "not known yet" in more.why
    assert told(document(per_s=0.0, behind=10)).wanted == 4


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -float("inf"), -5.0, 1e-320])
def test_a_figure_of_an_instance_that_can_be_none_counts_as_none(garbage: float) -> None:
    found = document(capacity=1_300.0)
    found["instances"][0]["threads"][0].update(records_per_s=garbage, capacity_per_s=garbage)
    scale = told(found)
    assert (scale.wanted, scale.records_per_s, scale.capacity_per_s) == (2, 2_000.0, 1_300.0)


def test_instances_that_would_have_no_task_for_any_thread_are_none_that_are_wanted() -> None:
    found = document(per_s=100_000.0, capacity=1_000.0)
    thread = found["instances"][1]["threads"][0]
    found["instances"][1]["threads"] = [thread, {**thread, "active": []}]
    assert told(found).wanted == 6  # twelve tasks, two threads
    for one in found["instances"]:
        one["threads"] = []
    assert told(found, capacity_per_s=1).wanted >= 1


def test_the_capacity_of_an_instance_is_that_of_its_threads_that_were_at_their_limit() -> None:
    found = document()
    thread = found["instances"][0]["threads"][0]
    found["instances"][0]["threads"] = [{**thread, "capacity_per_s": 400.0}, {**thread, "active": []}]
    assert told(found).capacity_per_s == pytest.approx(400.0 * 4 / 3, abs=0.1)


def restoring(one: Document) -> None:
    one["restoring"] = {"tasks": ["1_0"], "offsets_left": 9, "offsets_per_s": None, "seconds_left": None}


def draining(one: Document) -> None:
    one["drain"] = {"phase": "draining", "message": "", "since_ms": 1, "until_ms": 2, "active": 1, "standby": 0}


def warming_up(one: Document) -> None:
    one["threads"][0]["standby"] = [
        {"task": "1_0", "lag": 9, "offsets_per_s": None, "seconds_left": None, "role": "warm-up"}
    ]


def rebalancing(one: Document) -> None:
    one["state"] = "REBALANCING"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (restoring, "restores 1 task"), (draining, "drains"), (warming_up, "1 task warms up"), (rebalancing, "is REBALANCING"),
    ],
)  # fmt: skip
def test_while_tasks_are_on_their_way_the_number_stays(what: Any, why: str) -> None:
    found = document(behind=300_000, capacity=1_000.0)
    assert told(found).wanted > 3
    what(found["instances"][0])
    waits = told(found)
    assert (waits.wanted, waits.waits) == (3, True)
    assert why in waits.why


def test_standbys_that_follow_hold_nothing_up() -> None:
    found = document(capacity=1_000.0)
    warming_up(found["instances"][0])
    found["instances"][0]["threads"][0]["standby"][0]["role"] = "standby"
    assert not told(found).waits


def test_an_instance_that_is_away_or_silent_counts_and_holds_the_number() -> None:
    away = recorded("one_away")
    for one in away["instances"]:
        one.setdefault("assigned", [])
    found = told(away)
    assert (found.wanted, found.present, found.waits) == (3, 3, True)
    silent = document(capacity=10.0)
    silent["silent"] = [{"process": "p", "host": None, "active": [], "standby": [], "warmup": []}]
    assert (told(silent).wanted, told(silent).present) == (4, 4)


def test_over_http_it_is_one_document_with_the_operators_wishes() -> None:
    app, _, others = group_app()
    for one in others.told.values():
        assert one is not None
    reply = ask(app, "/scale?least=2&most=5&capacity_per_s=100&headroom_percent=0&catch_up_s=60")
    assert reply.status == 200
    assert (reply.json["wanted"], reply.json["present"], reply.json["waits"]) == (3, 3, True)
    assert "warm" in reply.json["why"]


@pytest.mark.parametrize(
    "query", ["least=0", "most=0", "least=5&most=4", "capacity_per_s=0", "catch_up_s=0", "headroom_percent=-1", "wanted=3"]
)
def test_wishes_that_make_no_sense_are_refused(query: str) -> None:
    assert ask(group_app()[0], f"/scale?{query}").status == 400
