"""The static sides of ``join_dataframe``: what a plan broadcasts, as of the last refresh.

Decides the form of a side: one row for each key, with all rows of that key, so that a join never multiplies rows by itself. A
refresh reads all of it before any plan sees it, and keeps it on Spark's disk, independent of where it came from. Each refresh of
any side is a new version; when plans change to it is the refresher's.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Protocol

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemill.dsl.json_schema import quoted_name
from tidemill.errors import ConfigError, RetriableError, TopologyError
from tidemill.spark.batch_failures import session_gone
from tidemill.spark.java import is_stopped
from tidemill.spark.job_thread import background_pool
from tidemill.topology.spark_operations import DataFrameJoin

KEY, ROWS = "key:", "rows:"
"""Columns of a side: ``key:0`` ..., and the array of rows."""


@dataclass(frozen=True, slots=True)
class Side:
    """``frame``: its keys and rows; ``row``: the type of one row."""

    frame: DataFrame
    row: StructType


class Plan(Protocol):
    """A stream thread's plan."""

    def rebuild(self) -> None:
        """Takes the newest version; no batch waits for it."""


@dataclass(slots=True)
class Lookups:
    """All sides of a topology. ``read`` may be called from any thread, ``sides`` gives one consistent version."""

    joins: Mapping[str, DataFrameJoin]
    session: SparkSession | None
    application_id: str = ""
    _sides: Mapping[str, Side] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    plans: weakref.WeakSet[Plan] = field(default_factory=weakref.WeakSet)
    """Plans that broadcast the sides; changed and gone through under ``_following``."""
    _following: threading.Lock = field(default_factory=threading.Lock)

    def read(self, names: tuple[str, ...] | None = None) -> None:
        """Reads these sides (None: all) again; if one fails none has changed.

        Raises:
            TopologyError: a column of ``on`` is missing.
            StopError: the session was stopped, or its JVM has died.
            RetriableError: a function could not connect to where it has the DataFrame from. Else whatever Spark raises.
        """
        if not self.joins:
            return
        if self.session is None:
            raise TopologyError("join_dataframe needs a Spark session")
        wanted = names or tuple(self.joins)
        what = f"reads the DataFrames of {', '.join(wanted)}"
        try:
            with self._lock, background_pool(self.session, self.application_id, what):
                found = {name: _read(name, self.joins[name], self.session) for name in wanted}
                self._sides = {**self._sides, **found}
        except Exception as problem:
            if is_stopped(self.session):
                raise session_gone(self.session, problem) from problem
            if isinstance(problem, ConnectionError):  # of a function that makes a DataFrame: not of the JVM, which answers
                said = f"{type(problem).__name__}: {problem}"
                raise RetriableError(f"{', '.join(wanted)}: the DataFrame of join_dataframe can't be had: {said}") from problem
            raise

    def refresh(self, names: tuple[str, ...] | None = None) -> None:
        """``read``, and lets all plans follow."""
        self.read(names)
        with self._following:  # a thread that is added meanwhile changes the set, which would end a walk through it
            plans = list(self.plans)
        for plan in plans:
            plan.rebuild()

    def follow(self, plan: Plan) -> None:
        """From now on the plan is rebuilt at each refresh. Any thread."""
        with self._following:
            self.plans.add(plan)

    def leave(self, plan: Plan) -> None:
        """No refresh rebuilds the plan any more. Any thread."""
        with self._following:
            self.plans.discard(plan)

    @property
    def sides(self) -> Mapping[str, Side]:
        return self._sides


def _read(name: str, join: DataFrameJoin, session: SparkSession) -> Side:
    frame = join.frame(session) if callable(join.frame) else join.frame
    if not isinstance(frame, DataFrame):
        raise TopologyError(f"{name}: the function of join_dataframe gave {type(frame).__name__}, expected a Spark DataFrame")
    if frame.sparkSession.sparkContext is not session.sparkContext:
        raise ConfigError(
            f"{name}: the DataFrame is of another Spark session than the application's: start it with KafkaStreams(..., "
            "session=...), or give a function of the session that makes the DataFrame"
        )
    missing = [column for column in join.on if column not in frame.columns]
    if missing:
        raise TopologyError(f"{name}: the DataFrame has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    _check_names(name, frame.columns, is_case_sensitive=session.conf.get("spark.sql.caseSensitive") == "true")
    keys = [F.col(quoted_name(column)).alias(f"{KEY}{number}") for number, column in enumerate(join.on)]
    rows = frame.select(*keys, F.struct(*[F.col(quoted_name(column)) for column in frame.columns]).alias("row"))
    names = [F.col(f"`{KEY}{number}`") for number in range(len(keys))]
    with_keys = rows.where(reduce(and_, [key.isNotNull() for key in names]))  # dropna would take NaN for null
    grouped = with_keys.groupBy(*names).agg(F.collect_list("row").alias(ROWS))
    kept = grouped.coalesce(1).localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    return Side(kept, StructType(frame.schema.fields))


def _check_names(name: str, columns: list[str], *, is_case_sensitive: bool) -> None:
    """TopologyError if Spark can't tell columns apart."""
    compared = columns if is_case_sensitive else [column.lower() for column in columns]
    alike = [column for column, one in zip(columns, compared, strict=True) if compared.count(one) > 1]
    if alike:
        raise TopologyError(
            f"{name}: Spark takes the DataFrame's columns {', '.join(map(repr, alike))} for one: give them names that"
            " differ in more than the case of their letters, with frame.toDF(...)"
        )
