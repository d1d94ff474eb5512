"""`tidemill assign simulate`: text, JSON, variants and pictures."""

import json
from pathlib import Path

import pytest

from tidemill.cli.main import main

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
ARTICLE = SCENARIOS / "article.toml"


def output(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["assign", "simulate", *map(str, arguments)])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_the_article_is_told_round_by_round(capsys):
    code, said, _ = output(capsys, ARTICLE)
    assert code == 0
    assert "round 1: bbb8 joined" in said
    assert "  7156  active 1_1 1_2 1_3 1_5; standby -; warm-up -" in said
    assert "unbalanced: 7156 has 4 of 6 tasks; its 2 threads are worth 2.00" in said
    assert "round 3: probing rebalance" in said
    assert "round 4" not in said
    assert "stable: no further rebalance is asked for" in said


def test_the_same_seed_gives_the_same_run_and_another_one_other_moments(capsys):
    first, again = (json.loads(output(capsys, ARTICLE, "--json")[1]) for _ in range(2))
    other = json.loads(output(capsys, ARTICLE, "--json", "--compare", "seed=2")[1])
    assert first == again
    times = [[round_["time_ms"] for round_ in runs[0]["rounds"]] for runs in (first, other)]
    assert times[0] != times[1]


def test_variants_stand_side_by_side(capsys):
    code, said, _ = output(
        capsys, SCENARIOS / "replace-a-by-d.toml", "--compare", "assignor=HighAvailabilityTaskAssignor,balanced",
        "--compare", "max.warmup.replicas=2,6",
    )
    assert code == 0
    rows = [line.split() for line in said.splitlines() if line.startswith("assignor=")]
    assert [row[:2] for row in rows] == [
        ["assignor=HighAvailabilityTaskAssignor", "max.warmup.replicas=2"],
        ["assignor=HighAvailabilityTaskAssignor", "max.warmup.replicas=6"],
        ["assignor=balanced", "max.warmup.replicas=2"],
        ["assignor=balanced", "max.warmup.replicas=6"],
    ]
    assert [row[5] for row in rows] == ["4", "4", "0", "0"], "moves of running tasks"


def test_the_files_own_variants_run(capsys):
    code, said, _ = output(capsys, SCENARIOS / "no-copy-caught-up.toml", "--variants")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()[3:]] == ["2.7", "4.3"]


@pytest.mark.parametrize(("suffix", "starts"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_the_picture_is_drawn(capsys, tmp_path, suffix, starts):
    file = tmp_path / f"run{suffix}"
    assert output(capsys, SCENARIOS / "replace-c-by-d.toml", "--plot", file)[0] == 0
    assert file.read_bytes().startswith(starts)


def test_a_misspelt_key_is_refused_with_those_there_are(capsys, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text(ARTICLE.read_text().replace("threads = 2", "thread = 2", 1))
    code, _, error = output(capsys, file)
    assert code == 2
    assert "thread is not known; expected joins_s, name, process_id" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--compare", "max.warmups=1,2"), "max.warmups can't be varied; expected one of assignor, compatibility"),
        (("--compare", "max.warmup.replicas"), "expected NAME=VALUE"),
        (("--compare", "assignor=best"), "no assignor is named 'best'"),
        (("--plot", "picture.pdf"), "expected a name that ends in .svg or .png"),
        (("--variants",), "has no [[variants]]"),
    ],
)
def test_wrong_options_are_refused_with_what_is_expected(capsys, arguments, words):
    code, _, error = output(capsys, ARTICLE, *arguments)
    assert code == 2
    assert words in error
