"""A run's rows as they come, in Arrow batches that keep to no border, cut into micro-batches again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.steps import micro_batch_rows
from tidemill.steps.micro_batch_rows import head_rows, micro_batches, source_run, step_run
from tidemill.steps.rows.schema import FILLER, HEAD, MARKER, SCHEMA
from tidemill.steps.source_step import marker_rows
from tidemill.steps.standing import ARROW_ROWS, rows_behind
from tidemill.task.batch import BatchRequest, Marker
from tidemill.task.message_pack import pack

DATA = 4


class Output:
    """In place of what PySpark's worker writes to."""

    flushed = 0

    def flush(self) -> None:
        Output.flushed += 1


@pytest.fixture(autouse=True)
def output(monkeypatch: pytest.MonkeyPatch) -> None:
    Output.flushed = 0
    monkeypatch.setattr(micro_batch_rows, "WorkerOutput", Output)


def request(number: int) -> BatchRequest:
    return BatchRequest(batch_id=number, inputs={TopicPartition("in", 0): number})


def rows(number: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"node": DATA, "off": number, "seq": at} for at in range(count)], schema=SCHEMA)


def marker(number: int) -> pa.RecordBatch:
    return marker_rows(Marker(batch_id=number, starts={}, ends={}, changelog_ends={}, chunks=1, rows=0))


def rows_of(asked: BatchRequest) -> Iterator[pa.RecordBatch]:
    yield rows(asked.batch_id, asked.batch_id * 50)
    yield marker(asked.batch_id)


def given(*requests: BatchRequest) -> Any:
    texts = iter([*map(pack, requests), None])
    return lambda: next(texts)


def cut_anew(batches: Iterable[pa.RecordBatch], sizes: random.Random) -> list[pa.RecordBatch]:
    """The same rows in other Arrow batches."""
    table = pa.Table.from_batches(list(batches)).combine_chunks()
    found, at = [], 0
    while at < table.num_rows:
        size = sizes.randint(1, ARROW_ROWS)
        found += table.slice(at, size).combine_chunks().to_batches()
        at += size
    return found


def tags(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("node").to_pylist()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_each_micro_batch_has_its_request_its_rows_and_its_marker_wherever_arrow_batches_end(seed: int) -> None:
    requests = [request(number) for number in (1, 2, 3)]
    run = source_run(given(*requests), rows_of, is_standing=True, steps=2)
    found = []
    for asked, pieces in micro_batches(cut_anew(run, random.Random(seed))):
        held = list(pieces)
        assert tags(held[-1]) == [MARKER]
        offsets = [offset for piece in held[:-1] for offset in piece.column("off").to_pylist()]
        assert {tag for piece in held[:-1] for tag in tags(piece)} == {DATA}
        found.append((asked, offsets))
    assert found == [(each, [each.batch_id] * each.batch_id * 50) for each in requests]


def test_a_run_of_one_request_ends_with_its_marker() -> None:
    run = list(source_run(given(request(1)), rows_of, is_standing=False, steps=1))
    assert [tags(batch)[0] for batch in run] == [HEAD, DATA, MARKER]
    assert Output.flushed == 0, "the end of the run flushes it"


@pytest.mark.parametrize("steps", [1, 2])
def test_a_standing_run_hands_each_micro_batch_on_before_it_asks_for_the_next(steps: int) -> None:
    flushed = []

    def asked() -> bytes | None:
        flushed.append(Output.flushed)
        return pack(request(len(flushed))) if len(flushed) < 3 else None

    run = list(source_run(asked, rows_of, is_standing=True, steps=steps))
    behind = [tags(batch)[0] for batch in run].count(FILLER)
    assert behind == 2 * len(list(rows_behind(next_is_last=steps == 1)))
    assert flushed == [0, 1, 2]


def test_what_follows_a_micro_batch_closes_the_arrow_batch_that_it_ends_in() -> None:
    behind = list(rows_behind(next_is_last=False))
    assert behind
    for batch in behind:
        assert batch.num_rows == ARROW_ROWS + 1, "Spark looks for one row more before it closes a full batch"
        assert set(tags(batch)) == {FILLER}


def test_before_a_step_that_is_not_the_last_more_follows_than_its_socket_holds() -> None:
    sizes = [sum(len(value or b"") for value in batch.column("value").to_pylist()) for batch in rows_behind(next_is_last=False)]
    assert sizes[0] == 0
    assert sizes[1] > 2 * (208 << 10)
    assert len(list(rows_behind(next_is_last=True))) == 1


def test_a_micro_batch_that_is_cut_short_has_no_marker() -> None:
    whole = list(source_run(given(request(1)), rows_of, is_standing=False, steps=1))
    [(asked, pieces)] = [(asked, list(pieces)) for asked, pieces in micro_batches(whole[:-1])]
    assert asked == request(1)
    assert [tags(piece)[0] for piece in pieces] == [DATA]


def test_rows_that_belong_to_no_micro_batch_are_not_skipped_silently() -> None:
    whole = list(source_run(given(request(1)), rows_of, is_standing=False, steps=1))
    head, *between, marker = whole
    for stray in ([rows(1, 3), *whole], [*whole, *rows_behind(next_is_last=True), rows(1, 3)], [head, marker, *between]):
        with pytest.raises(StopError, match=r"[0-9]+ rows outside of a micro-batch, expected its head and marker"):
            [list(pieces) for _, pieces in micro_batches(stray)]


def test_fillers_belong_to_none() -> None:
    assert list(micro_batches([*rows_behind(next_is_last=True), *rows_behind(next_is_last=False)])) == []


@pytest.mark.parametrize("is_standing", [True, False])
def test_a_step_that_cuts_a_batch_short_ends_and_waits_for_no_report(is_standing: bool) -> None:
    """The last step would wait for the marker, and this one for the last one's report."""
    source = [head_rows(pack(request(1))), *rows_of(request(1)), head_rows(pack(request(2))), *rows_of(request(2))]
    served: list[int] = []

    def run(asked: BatchRequest, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return iter(list(pieces)[:-1])

    made = list(step_run(source, run, served.append, is_standing=is_standing, next_is_last=True))
    assert [tags(batch)[0] for batch in made] == [HEAD, DATA]
    assert served == []


@pytest.mark.parametrize("is_standing", [True, False])
def test_a_step_hands_on_requests_and_waits_for_the_report_before_it_reads_on(is_standing: bool) -> None:
    events: list[Any] = []

    def reading(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            events.append(("read", tags(batch)[0]))
            yield batch

    def run(asked: BatchRequest, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        events.append(("run", asked.batch_id))
        return iter(list(pieces))

    heads = [head_rows(pack(request(batch))) for batch in (1, 2)]
    source = [heads[0], *rows_of(request(1)), heads[1], *rows_of(request(2))]

    def served(batch: int) -> None:
        events.append(("served", batch))

    made = step_run(reading(source), run, served, is_standing=is_standing, next_is_last=True)
    handed_on = [(asked.batch_id, [tags(piece)[0] for piece in pieces]) for asked, pieces in micro_batches(made)]
    assert handed_on == [(1, [DATA, MARKER]), (2, [DATA, MARKER])]
    of_a_batch = [("read", HEAD), ("run", 0), ("read", DATA), ("read", MARKER)]
    expected = [(what, number if what == "run" else tag) for number in (1, 2) for what, tag in of_a_batch]
    if is_standing:
        expected = [*expected[:4], ("served", 1), *expected[4:], ("served", 2)]
    assert events == expected
    assert Output.flushed == (2 if is_standing else 0)
