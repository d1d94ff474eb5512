"""Windows of a program's own: which windows a record is in, when they close, and where one ends that a store gives back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.operators.harness import Run, start
from tests.operators.own_windows import Days, october
from tidemill import EmitStrategy, Serdes, StreamsBuilder, Suppressed, TimeWindows, Windowed, Windows, per_record
from tidemill.dsl.table import KTable
from tidemill.errors import TopologyError
from tidemill.operators.stores import store_of
from tidemill.operators.window_store import TimestampedWindowStore
from tidemill.topology.key_value_serdes import KeyValueSerdes

STRING, LONG = Serdes.string(), Serdes.long()
LONG_DAY = f"[k@{october(25, 0)}/{october(26, 0)}]"
NEXT_DAY = f"[k@{october(26, 0)}/{october(27, 0)}]"


def _run(windows: Windows, then: Callable[[KTable], KTable] = lambda table: table) -> Run:
    b = StreamsBuilder()
    counted = b.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(windows).count(store="w")
    named = then(counted).to_stream().select_key(per_record(lambda window, _: str(window), STRING))
    named.to("out", key=STRING, value=LONG)
    return start(b.build())


def _piped(run: Run, *times: int) -> list[tuple[str, int]]:
    before = len(run.written)
    for time in times:
        run.pipe(0, "in", b"k", b"v", time)
    return [(k.decode(), LONG.deserialize(v)) for _, k, v, *_ in run.written[before:]]


def _windows_kept(run: Run) -> list[Windowed]:
    store = store_of(run.topology.stores["w"], run.rows["w"], KeyValueSerdes(key=STRING, value=LONG))
    assert isinstance(store, TimestampedWindowStore)
    return [windowed for windowed, _ in store.all()]


class Odd(Windows):
    """What ``given`` gives for each time."""

    def __init__(self, given: Any, size: int = 10) -> None:
        super().__init__(size=size)
        self.given = given

    def windows_for(self, timestamp: int) -> Any:
        return self.given(timestamp)


def test_a_day_has_as_many_hours_as_its_zone_gives_it() -> None:
    run = _run(Days())
    assert october(26, 0) - october(25, 0) == 25 * 3_600_000
    assert _piped(run, october(25, 0), october(25, 23, 59), october(26, 0)) == [(LONG_DAY, 1), (LONG_DAY, 2), (NEXT_DAY, 1)]
    assert _piped(run, october(25, 12)) == [], "closed at midnight"


def test_a_record_counts_while_its_windows_grace_lasts() -> None:
    run = _run(Days(grace=october(26, 2) - october(26, 0)))
    _piped(run, october(26, 1, 59))
    assert _piped(run, october(25, 12)) == [(LONG_DAY, 1)]
    _piped(run, october(26, 2))
    assert _piped(run, october(25, 12)) == []


def test_final_results_come_when_the_window_ends_not_when_its_size_is_over() -> None:
    run = _run(Days(), lambda table: table.suppress(Suppressed.until_window_closes()))
    assert _piped(run, october(24, 1), october(24, 2), october(25, 0)) == [(f"[k@{october(24, 0)}/{october(25, 0)}]", 2)]


def test_what_a_store_gives_back_ends_where_the_window_does() -> None:
    run = _run(Days(grace=timedelta(days=1)))
    _piped(run, october(25, 12), october(26, 12))
    assert _windows_kept(run) == [Windowed("k", october(25, 0), october(26, 0)), Windowed("k", october(26, 0), october(27, 0))]


def test_windows_may_overlap_be_missing_and_come_as_a_mapping_in_any_order() -> None:
    run = _run(Odd(lambda t: {t // 10 * 10: t // 10 * 10 + 10, t // 10 * 10 + 2: t // 10 * 10 + 9} if t % 2 else {}))
    assert _piped(run, 4) == []
    assert _piped(run, 5) == [("[k@0/10]", 1), ("[k@2/9]", 1)]


def test_a_window_that_is_given_twice_counts_its_record_once() -> None:
    assert _piped(_run(Odd(lambda t: [(0, 10), (0, 10)])), 5) == [("[k@0/10]", 1)]


def test_a_window_whose_start_is_not_in_it_ends_its_size_later_where_it_is_read() -> None:
    run = _run(Odd(lambda t: [(0, 7)] if t else []))
    assert _piped(run, 5) == [("[k@0/7]", 1)]
    assert _windows_kept(run) == [Windowed("k", 0, 10)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, r"windows_for\(5\) gave 3, expected pairs of start and end"),
        (None, "gave None, expected pairs"),
        ([0, 10], r"gave \[0, 10\], expected pairs"),
        ([(0, 5.5)], r"gave \[\(0, 5.5\)\], expected pairs"),
        ([(0, None)], "expected pairs"),
        ([(-1, 5)], "gave a window from -1 to 5, expected a start from 0 on"),
        ([(5, 5)], "gave a window from 5 to 5"),
        ([(0, 11)], "from 0 to 11, expected a start from 0 on and an end at most 10 ms later, which is the size"),
        ([(2**63 - 5, 2**63)], "gave a window from"),
        ([(0, 10), (0, 8)], r"gave windows from 0 to 10 and to 8, expected one for each start"),
    ],
)
def test_what_is_no_window_is_refused(given: object, expected: str) -> None:
    with pytest.raises(Exception, match=expected) as error:
        _piped(_run(Odd(lambda t: given)), 5)
    assert "Odd" in str(error.value)


def test_final_results_of_windows_of_ones_own_are_those_of_suppress() -> None:
    b = StreamsBuilder()
    windowed = b.stream("in").group_by_key().windowed_by(Days())
    with pytest.raises(TopologyError, match=r"got Days; use suppress\(Suppressed.until_window_closes\(\)\)"):
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    assert windowed.emit_strategy(EmitStrategy.ON_WINDOW_UPDATE) == windowed


def test_a_class_that_is_not_finished_is_refused() -> None:
    class Bare(Windows):
        pass

    class Unsized(Windows):
        def __init__(self) -> None:
            pass

        def windows_for(self, timestamp: int) -> list[tuple[int, int]]:
            return []

    with pytest.raises(TopologyError, match="Bare: windows_for is missing"):
        Bare(size=5)
    with pytest.raises(TopologyError, match="Odd: the size is 0"):
        Odd(None, size=0)
    grouped = StreamsBuilder().stream("in").group_by_key()
    with pytest.raises(TopologyError, match=r"Unsized has no size; its __init__ calls super\(\).__init__\(size=...\)"):
        grouped.windowed_by(Unsized())
    with pytest.raises(TypeError, match="TimeWindows is final; derive from Windows"):
        type("Mine", (TimeWindows,), {})
