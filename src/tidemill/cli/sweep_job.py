"""Thousands of variants of a scenario as one Spark job: a DataFrame of variants in, one row of results for each out.

Decides how variants become rows and how they are spread over tasks: in small chunks, because runs differ much in length. A
variant that fails is a row with its error, not the end of the job. What happens in a run is decided in ``tidemill.sim``.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemill.errors import TidemillError
from tidemill.sim.auditors import NONE
from tidemill.sim.cluster import simulate
from tidemill.sim.report import summary
from tidemill.sim.scenario import Scenario
from tidemill.sim.variants import with_values

RUNS_PER_PARTITION = 50
ALLOCATIONS_PER_COLLECTION = 50_000
RESULTS = (
    "time_to_balanced_ms", "rebalances", "phases", "moved_tasks", "longest_outage_ms", "total_outage_ms",
    "restored_records", "restored_bytes", "most_extra_copies", "most_loaded",
)  # fmt: skip


def sweep(session: SparkSession, scenario: Scenario, variants: Sequence[Mapping[str, str]]) -> DataFrame:
    """One row per variant, lazily: its values (as text), the numbers of its run, and ``error`` where it has none.

    ``time_to_balanced_ms`` is null where the group was never balanced within the scenario's horizon.
    """
    names = list(variants[0]) if variants else []
    rows = [(number, json.dumps(dict(values))) for number, values in enumerate(variants)]
    partitions = max(-(-len(rows) // RUNS_PER_PARTITION), 1)
    asked = session.createDataFrame(rows, "variant bigint, chosen string").repartition(partitions, "variant")
    columns = [
        "variant bigint",
        *(f"`{name}` string" for name in names),
        *(f"{result} bigint" for result in RESULTS),
        "error string",
    ]
    return asked.mapInArrow(_Runs(scenario, names), ", ".join(columns))


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """A run makes many small values and little garbage: looking for cycles at Python's usual pace takes a tenth of it."""
    usual = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class _Runs:
    """Runs of variants in a Spark worker; without the auditors, which makes runs shorter."""

    def __init__(self, scenario: Scenario, names: Sequence[str]) -> None:
        self._scenario, self._names = scenario, list(names)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema(
            [
                pa.field("variant", pa.int64()),
                *(pa.field(name, pa.string()) for name in self._names),
                *(pa.field(result, pa.int64()) for result in RESULTS),
                pa.field("error", pa.string()),
            ]
        )
        with _seldom_collected():
            for batch in batches:
                rows = [
                    {"variant": row["variant"], **self._result(json.loads(row["chosen"]))} for row in batch.to_pylist()
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _result(self, values: Mapping[str, str]) -> dict[str, object]:
        try:
            scenario = with_values(self._scenario, values)
            found = summary(simulate(scenario, Random(scenario.seed), NONE))
        except (TidemillError, AssertionError) as error:
            return {**values, "error": f"{type(error).__name__}: {error}"}
        return {**values, **{name: found[name] for name in RESULTS}}
