"""`tidemill assign explain` on the article's round and on recorded assignments."""

import json
from pathlib import Path

import pytest

from tidemill.cli.main import main

ROOT = Path(__file__).parents[2]
ARTICLE = ROOT / "examples" / "scenarios" / "article.toml"
VECTORS = ROOT / "tests" / "vectors"


def output(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["assign", "explain", *map(str, arguments)])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_the_articles_round_says_why_1_0_is_warmed_up_and_when_it_moves(capsys):
    code, said, _ = output(capsys, ARTICLE, "--task", "1_0")
    assert code == 0
    assert "article, round 1, 13:48:02" in said
    assert "1_0 is active on 4b61083e for now, a caught-up client (it runs it now)" in said
    assert "1_0 is being warmed up on bbb83e43" in said
    assert "bbb83e43 has nothing of its 2 offsets, more than acceptable.recovery.lag = 0" in said
    assert "warm-up 1 of max.warmup.replicas = 2" in said
    assert "Expected on its target 13:49:02" in said


def test_the_articles_round_says_why_1_3_is_not_warmed_up_and_when_it_moves(capsys):
    code, said, _ = output(capsys, ARTICLE, "--task", "1_3")
    assert code == 0
    assert "1_3 is not being warmed up on bbb83e43 yet" in said
    assert "movement 4 of 4" in said
    assert "used up before it: 1_0 on bbb83e43, 1_2 on 7156cef1" in said
    assert "Expected on its target 13:50:02" in said


def test_todays_order_warms_up_1_1_instead_of_1_2(capsys):
    code, said, _ = output(capsys, ARTICLE, "--compatibility", "4.3", "--json")
    assert code == 0
    warmed = {d["task"] for d in json.loads(said)["decisions"] if d["copy"] == "warm-up" and d["on"]}
    assert warmed == {"1_0", "1_1"}


def test_a_recorded_assignment_is_explained_by_its_id(capsys):
    code, said, _ = output(
        capsys, VECTORS / "seed_experiment.json.gz", "--id", "round1-disk5/kafka_2.7.2", "--task", "1_3", "--json"
    )
    assert code == 0
    decisions = json.loads(said)["decisions"]
    assert {(d["copy"], d["rule"]) for d in decisions} == {
        ("active", "kept until the target is caught up"),
        ("warm-up", "no warm-up left"),
    }
    assert all(d["rebalances_to_go"] == 2 for d in decisions)


def test_a_round_of_a_record_with_rounds_is_chosen_by_number(capsys):
    first = output(capsys, VECTORS / "convergence.jsonl.gz", "--round", "1")[1]
    second = output(capsys, VECTORS / "convergence.jsonl.gz", "--round", "2")[1]
    assert ", round 1 (" in first.splitlines()[0]
    assert ", round 2 (" in second.splitlines()[0]
    assert first.splitlines()[1:] != second.splitlines()[1:]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((ARTICLE, "--round", "9"), "expected 1 to 3"),
        ((ARTICLE, "--task", "7_7"), "has no such task; it has 0_0 to 1_5"),
        ((ARTICLE, "--task", "one"), "not a task id"),
        ((ARTICLE, "--id", "x"), "a scenario has no ids"),
        ((VECTORS / "seed_experiment.json.gz", "--id", "x"), "no record 'x'; it has round0-two-clients/kafka_2.7.2"),
        ((VECTORS / "wire.jsonl.gz",), "no assignment of tasks to clients"),
        ((ARTICLE.parent / "none.toml",), "can't be read"),
    ],
)
def test_what_can_not_be_explained_is_refused_with_what_can(capsys, arguments, words):
    code, _, error = output(capsys, *arguments)
    assert code == 2
    assert words in error
