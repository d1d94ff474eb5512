"""The vectorised count of windows leaves what the operator leaves, record by record, whatever the batches."""

from __future__ import annotations

import random

import pytest

from tests.steps.aggregation_harness import (
    ENDS_OF_TIME,
    LATEST,
    PARTITIONS,
    InBatches,
    PerRecord,
    batches,
    inputs,
    inputs_at,
    topology_of,
)
from tidemill.steps.vector.window_count import count_windows
from tidemill.topology.operations import Counting, WindowAggregate
from tidemill.topology.windows import TimeWindows, UnlimitedWindows

WINDOWS = {
    "tumbling": TimeWindows.of_size(10_000),
    "tumbling with grace": TimeWindows.of_size(7000, grace=5000),
    "hopping": TimeWindows.of_size(10_000, advance=4000, grace=2000),
    "hopping, even": TimeWindows.of_size(9000, advance=3000),
    "unlimited": UnlimitedWindows.of(start=110_000),
}


@pytest.mark.parametrize("retention", [None, 100_000], ids=["least retention", "longer retention"])
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS.keys())
def test_rows_changelog_drops_and_last_results_are_the_operators(windows: TimeWindows, retention: int | None) -> None:
    for seed in range(6):
        chance = random.Random(seed)
        topology = topology_of(WindowAggregate("w", windows, Counting()), None if windows.size is None else retention)
        operator, step = PerRecord(topology), InBatches(topology, count_windows)
        for batch in batches(chance, inputs(chance, 300)):
            operator.pipe(batch)
            made = step.pipe(batch)
            order = [(part, (key or b"")[-8:], key) for part, key in zip(made.parts, made.keys, strict=True)]
            assert order == sorted(set(order)), "each window of a key once, in the order of their starts"
            assert step.dropped == operator.dropped
        assert step.sent == operator.sent
        for part in PARTITIONS:
            assert step.readers[part].rows == operator.readers[part].rows
            assert step.logged[part] == operator.stores[part].logged


def test_the_operator_goes_on_where_the_step_has_ended() -> None:
    topology = topology_of(WindowAggregate("w", WINDOWS["tumbling with grace"], Counting()))
    given = inputs(random.Random(9), 200)
    unbroken, step = PerRecord(topology), InBatches(topology, count_windows)
    unbroken.pipe(given)
    step.pipe(given[:100])
    after = PerRecord(topology, {part: reader.rows["w"] for part, reader in step.readers.items()})
    after.pipe(given[100:])
    assert step.dropped + after.dropped == unbroken.dropped
    assert [after.readers[part].rows for part in PARTITIONS] == [unbroken.readers[part].rows for part in PARTITIONS]


WIDE = {
    "tumbling": TimeWindows.of_size(10),
    "endless grace": TimeWindows.of_size(10, grace=LATEST),
    "wide": TimeWindows.of_size(LATEST // 2, grace=LATEST // 2),
    "hopping": TimeWindows.of_size(10, advance=3, grace=LATEST - 20),
    "unlimited": UnlimitedWindows.of(start=5),
}


@pytest.mark.parametrize("timestamps", ENDS_OF_TIME.values(), ids=ENDS_OF_TIME.keys())
@pytest.mark.parametrize("windows", WIDE.values(), ids=WIDE.keys())
def test_at_the_ends_of_time_no_number_overflows(windows: TimeWindows, timestamps: tuple[int, ...]) -> None:
    for seed in range(3):
        topology = topology_of(WindowAggregate("w", windows, Counting()))
        operator, step = PerRecord(topology), InBatches(topology, count_windows)
        given = inputs_at(random.Random(seed), 30, timestamps)
        for at in range(0, 30, 10):
            operator.pipe(given[at : at + 10])
            step.pipe(given[at : at + 10])
            assert (step.dropped, step.sent, step.readers[0].rows) == (operator.dropped, operator.sent, operator.readers[0].rows)
