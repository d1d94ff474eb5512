"""Arguments of ``join_dataframe``, checked. A DataFrame is recognised by its methods: nothing here imports Spark."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.dsl.arguments import function_of
from tidemill.dsl.function_types import ColumnJoiner, ColumnJoinerWithKey, FrameSource, KeyValueMapper
from tidemill.errors import TopologyError
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.functions import PerRecord
from tidemill.topology.spark_operations import DataFrameJoin

_JOIN = "join_dataframe"
_HOW = ("inner", "left")
_SHORTEST_REFRESH_MS = 1_000


def dataframe_join(
    frame: FrameSource,
    joiner: ColumnJoiner | ColumnJoinerWithKey | None,
    on: str | Sequence[str],
    selector: KeyValueMapper[object] | None,
    how: str,
    refresh_interval: Duration | None,
) -> DataFrameJoin:
    """The operation. TopologyError says what doesn't fit."""
    if isinstance(joiner, PerRecord) or isinstance(selector, PerRecord):
        raise TopologyError(
            f"{_JOIN}: per_record functions get Python values, but the DataFrame is joined in the JVM: give functions of Columns"
        )
    if callable(frame):
        function_of(frame, ("session",), f"{_JOIN}: frame")
    elif not all(hasattr(frame, part) for part in ("schema", "select", "join", "groupBy")):
        raise TopologyError(f"{_JOIN}: expected a Spark DataFrame or a function of the session that gives one, got {frame!r}")
    columns = (on,) if isinstance(on, str) else tuple(on)
    if not columns or not all(isinstance(column, str) and column for column in columns):
        raise TopologyError(f"{_JOIN}: on is {on!r}, expected the name of a column of the DataFrame, or several")
    if len(columns) > 1 and selector is None:
        raise TopologyError(f"{_JOIN}: on names {len(columns)} columns: give selector, a function of key and value with as many")
    if selector is not None:
        function_of(selector, ("key", "value"), f"{_JOIN}: selector")
    if how not in _HOW:
        raise TopologyError(f"{_JOIN}: how is {how!r}, expected one of {', '.join(_HOW)}")
    refresh_ms = None if refresh_interval is None else milliseconds(refresh_interval, f"{_JOIN}: refresh_interval")
    if refresh_ms is not None and refresh_ms < _SHORTEST_REFRESH_MS:
        raise TopologyError(
            f"{_JOIN}: refresh_interval is {refresh_ms} ms, expected {_SHORTEST_REFRESH_MS} or more: each refresh reads the "
            "DataFrame and compiles the plan again"
        )
    return DataFrameJoin(
        frame=frame,
        on=columns,
        selector=selector,
        joiner=joiner,
        takes_key=joiner is not None and _takes_key(joiner),
        left=how == "left",
        refresh_ms=refresh_ms,
    )


def _takes_key(joiner: ColumnJoiner | ColumnJoinerWithKey) -> bool:
    """True for (key, value, row), False for (value, row); TopologyError for other arguments."""
    try:
        function_of(joiner, ("value", "row"), _JOIN)
    except TopologyError:
        try:
            function_of(joiner, ("key", "value", "row"), _JOIN)
        except TopologyError:
            raise TopologyError(f"{_JOIN}: the joiner can't be called with (value, row) or (key, value, row)") from None
        return True
    return False
