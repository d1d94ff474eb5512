"""`tidemill assign sweep`: variants as a Spark job, and which of them are the best trade-offs."""

from pathlib import Path
from random import Random

import pytest

from tidemill.cli.assign_sweep import best_trade_offs
from tidemill.cli.files import read_scenario
from tidemill.cli.main import main
from tidemill.sim.cluster import simulate
from tidemill.sim.report import summary
from tidemill.sim.variants import combinations, parse_axis, with_values

SCENARIO = Path(__file__).parents[2] / "examples" / "scenarios" / "replace-a-by-d.toml"


def row(name, time, outage=0, restored=0, copies=0, loaded=0, error=None):
    return {
        "name": name, "time_to_balanced_ms": time, "longest_outage_ms": outage, "restored_bytes": restored,
        "most_extra_copies": copies, "most_loaded": loaded, "error": error,
    }  # fmt: skip


def test_a_trade_off_is_best_if_nothing_beats_it_in_everything():
    rows = [
        row("slow and light", 100, copies=1), row("fast and heavy", 10, copies=6), row("beaten", 100, copies=2),
        row("the same", 10, copies=6), row("never", None), row("failed", 1, error="x"),
    ]  # fmt: skip
    assert [found["name"] for found in best_trade_offs(rows)] == ["fast and heavy", "slow and light"]


@pytest.mark.spark
def test_each_variant_is_a_row_with_the_numbers_of_its_run(spark):
    from tidemill.cli.sweep_job import RESULTS, sweep

    base = read_scenario(SCENARIO)
    variants = [v.values for v in combinations([parse_axis("max.warmup.replicas=1,6"), parse_axis("seed=1..3")])]
    rows = sorted(sweep(spark, base, variants).collect(), key=lambda found: found["variant"])
    assert len(rows) == len(variants) == 6
    for found, values in zip(rows, variants, strict=True):
        scenario = with_values(base, values)
        expected = summary(simulate(scenario, Random(scenario.seed)))
        assert {name: found[name] for name in values} == dict(values)
        assert {name: found[name] for name in RESULTS} == {name: expected[name] for name in RESULTS}
        assert found["error"] is None


@pytest.mark.spark
def test_a_variant_that_fails_is_a_row_with_its_error(spark):
    from tidemill.cli.sweep_job import sweep

    base = read_scenario(SCENARIO)
    good, bad = sweep(spark, base, [{"assignor": "balanced"}, {"assignor": "nobody"}]).orderBy("variant").collect()
    assert good["error"] is None
    assert "no assignor is named 'nobody'" in bad["error"]
    assert bad["time_to_balanced_ms"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--vary", "colour=1..3"), "colour can't be varied"),
        (("--vary", "seed=1..2000000"), "expected at most 1,000,000"),
        (("--vary", "seed=1", "--out", "/nowhere/at/all.parquet"), "does not exist"),
    ],
)
def test_what_can_not_be_swept_is_refused_before_spark_is_started(capsys, arguments, words):
    with pytest.raises(SystemExit) as ended:
        main(["assign", "sweep", str(SCENARIO), *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
