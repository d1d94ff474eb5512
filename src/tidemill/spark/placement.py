"""The placement of an instance's Python workers: on the driver's machine, or on the executors of a cluster.

Decides on which executor each stream thread's batches shall run. A thread stays where it is as long as that executor lives and
has a slot for it: its workers, and the stores of its tasks, are there. One whose executor is gone gets the one with most room,
and waits for a slot a while, since a cluster replaces executors. That is a preference, which Spark follows while it can
(``spark.locality.wait``); nothing that has to be right depends on it, since a worker trusts only the driver, the broker and the
positions in its stores.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from tidemill.deadline import Deadline
from tidemill.errors import EnvironmentProblem
from tidemill.log_format import LogEvent
from tidemill.spark.java import JavaObject, array_of, class_of, sequence_of
from tidemill.spark.plan.python_steps import one_row

log = logging.getLogger("tidemill.placement")

START_LIMIT_S = 90.0
"""For the executors of a session that was just started."""
_REPLACEMENT_LIMIT_S = 15.0
"""Seconds that a thread whose executor is gone waits for one with a free slot, before it shares one."""
_SETTLE_LIMIT_S = 0.5
_GONE_LIMIT_S = 1.0
"""Seconds after which the driver knows of a lost executor, once a batch has failed because of it."""
_POLL_S = 0.1
_DRIVER = "driver"
_PORT = re.compile(r":\d+$")
_shares_lock = threading.Lock()
_shares: list[SlotShare] = []


def is_cluster(master: str) -> bool:
    """True if executors of such a master are processes of their own; so are those of ``local-cluster[...]``. Empty: local."""
    return bool(master) and re.fullmatch(r"local(\[.*\])?", master.strip()) is None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Executor:
    """``location`` is how Spark's scheduler names it."""

    name: str
    host: str
    slots: int

    @property
    def location(self) -> str:
        return f"executor_{self.host}_{self.name}"


def room(executors: Sequence[Executor], placed: Mapping[str, str]) -> dict[str, int]:
    """Slots of each executor that no thread has; below 0 where threads share."""
    return {e.name: e.slots - sum(name == e.name for name in placed.values()) for e in sorted(executors)}


def choose(thread: str, executors: Sequence[Executor], placed: Mapping[str, str]) -> str | None:
    """The executor for ``thread``: where it is, unless it shares a slot there and another has one to spare; else the one with
    most room; of these, the oldest. None: there is none.

    ``placed``: where the threads are, this one included.
    """
    left = room(executors, {other: name for other, name in placed.items() if other != thread})
    best = min(left, key=lambda name: (-left[name], len(name), name), default=None)
    now = placed.get(thread)
    if now is None or now not in left or best is None:
        return best
    return now if left[now] > 0 or left[best] <= 0 else best


class Placement(Protocol):
    """The places where stream threads' batches run."""

    @property
    def slots(self) -> int:
        """For threads, and one to spare."""

    def root(self, thread: str) -> DataFrame:
        """The leaf of this thread's plan: one row with a bigint ``id``."""

    def settle(self, thread: str) -> bool:
        """True if the thread has a place for its next batch; waits a moment for one."""

    def is_settled(self, thread: str) -> bool:
        """True if it has one for itself, as far as is known without asking."""

    def is_gone(self, thread: str) -> bool:
        """True if the place that it had is gone, and with it the stores there."""

    def leave(self, thread: str) -> None:
        """The thread was removed: its place is free for others."""


def local_slots(context: SparkContext) -> int:
    """How many tasks run at the same time on a local master: its cores by ``spark.task.cpus``. Its ``defaultParallelism`` is
    another number where ``spark.default.parallelism`` is set."""
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


class OnDriverHost:
    """``local[...]``: all workers are processes of the driver's machine."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def slots(self) -> int:
        return local_slots(self._session.sparkContext)

    def root(self, thread: str) -> DataFrame:
        del thread
        return one_row(self._session)

    def settle(self, thread: str) -> bool:
        del thread
        return True

    def is_settled(self, thread: str) -> bool:
        del thread
        return True

    def is_gone(self, thread: str) -> bool:
        del thread
        return False

    def leave(self, thread: str) -> None:
        del thread


class OnExecutors:
    """Any other master. May be used from any thread.

    Raises:
        EnvironmentProblem: no executors with a slot for each of ``threads`` came up within the limit.
    """

    def __init__(self, session: SparkSession, threads: int, start_limit_s: float = START_LIMIT_S) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._placed: dict[str, str] = {}
        self._crowded: frozenset[str] = frozenset()
        self._waits_since: dict[str, float] = {}
        self._preferences: dict[str, JavaObject] = {}
        self._wait_for_slots(threads, start_limit_s)

    @property
    def slots(self) -> int:
        return self._slots() + 1  # what else a session runs takes its turn between two batches

    def root(self, thread: str) -> DataFrame:
        context, session = self._session.sparkContext, self._session._jsparkSession
        row = self._java("org.apache.spark.sql.RowFactory").create(array_of(self._session, sequence_of(self._session, [0])))
        rows = sequence_of(self._session, [row])
        classes = self._java("java.lang.Class")
        kind = self._java("scala.reflect.ClassTag").apply(classes.forName("org.apache.spark.sql.Row"))
        # The RDD looks into this map at every job: a plan is moved by another entry, without being built again.
        preferred = self._preferences.setdefault(thread, self._java("scala.collection.mutable.HashMap")())
        rdd = self._java("org.apache.spark.rdd.ParallelCollectionRDD")(context._jsc.sc(), rows, 1, preferred, kind)
        schema = session.parseDataType(StructType([StructField("id", IntegerType())]).json())
        typed = DataFrame(session.createDataFrame(rdd.toJavaRDD(), schema), self._session).selectExpr("cast(id AS bigint)")
        # As the rows of a range, so that the planner knows of the one partition: a groupBy would put an exchange there else.
        one = one_row(self._session)._jdf
        logical = classes.forName("org.apache.spark.sql.execution.LogicalRDD$").getField("MODULE$").get(None)
        # From Spark 4.3 on there is a fourth parameter, whose default the JVM's callers have to name.
        defaults = () if pyspark.__version__.startswith("4.2.") else (getattr(logical, "fromDataset$default$4")(),)
        plan = logical.fromDataset(typed._jdf.queryExecution().executedPlan().execute(), one, False, *defaults)
        return DataFrame(self._java("org.apache.spark.sql.classic.Dataset").ofRows(session, plan), self._session)

    def _java(self, name: str) -> JavaObject:
        return class_of(self._session, name)

    def settle(self, thread: str) -> bool:
        since = self._waits_since.setdefault(thread, time.monotonic())
        until = Deadline.after(_SETTLE_LIMIT_S)
        while not self._found_place(thread, may_share=time.monotonic() - since > _REPLACEMENT_LIMIT_S):
            if until.is_over:
                return False
            time.sleep(_POLL_S)
        self._waits_since.pop(thread, None)  # the starter of its workers may have found its place meanwhile
        return True

    def _found_place(self, thread: str, *, may_share: bool) -> bool:
        with self._lock:
            executors = self.executors()
            name = choose(thread, executors, self._placed)
            if name is None:
                return False
            others = {other: at for other, at in self._placed.items() if other != thread}
            if name != self._placed.get(thread):
                if room(executors, others)[name] <= 0 and not may_share:
                    return False
                self._move(thread, next(found for found in executors if found.name == name))
            left = room(executors, self._placed)
            self._crowded = frozenset(name for name, slots in left.items() if slots < 0)
            return True

    def is_settled(self, thread: str) -> bool:
        at = self._placed.get(thread)
        return at is not None and at not in self._crowded

    def is_gone(self, thread: str) -> bool:
        until = Deadline.after(_GONE_LIMIT_S)
        while self._placed.get(thread) in {executor.name for executor in self.executors()}:
            if until.is_over:
                return False
            time.sleep(_POLL_S)
        return True

    def leave(self, thread: str) -> None:
        with self._lock:
            self._placed.pop(thread, None)

    def _move(self, thread: str, to: Executor) -> None:
        before = self._placed.get(thread, "")
        log.info(LogEvent("thread-placed", thread=thread, executor=to.name, host=to.host, before=before))
        self._placed[thread] = to.name
        self._prefer(thread, to.location)

    def _prefer(self, thread: str, location: str) -> None:
        places = sequence_of(self._session, [location])
        self._preferences.setdefault(thread, self._java("scala.collection.mutable.HashMap")()).put(0, places)

    def executors(self) -> list[Executor]:
        """Live executors, as far as the driver knows."""
        found = self._session.sparkContext._jsc.sc().statusStore().executorList(True)
        summaries = [found.apply(at) for at in range(found.size())]
        return sorted(
            Executor(name=each.id(), host=_PORT.sub("", each.hostPort()), slots=each.maxTasks())
            for each in summaries
            if each.id() != _DRIVER
        )

    def _slots(self) -> int:
        return sum(executor.slots for executor in self.executors())

    def _wait_for_slots(self, threads: int, limit_s: float) -> None:
        deadline = Deadline.after(limit_s)
        while (slots := self._slots()) < threads:
            if deadline.is_over:
                master = self._session.sparkContext.master
                raise EnvironmentProblem(
                    f"{threads} stream threads need {threads} task slots, but the executors of {master} have {slots} after "
                    f"{limit_s:.0f} s: give it more cores or memory (spark.executor.cores, spark.executor.memory), or lower "
                    "num.stream.threads; what an executor said that did not start is in its log"
                )
            time.sleep(_POLL_S)


def placement_of(session: SparkSession, threads: int) -> Placement:
    """The placement for the session's master."""
    return OnExecutors(session, threads) if is_cluster(session.sparkContext.master or "") else OnDriverHost(session)


class SlotShare:
    """An instance's task slots in a Spark session that several instances of this process share, as in a notebook.

    ``threads`` returns the number of slots in use, until ``give_back``. A stream thread's job occupies its slot as long as the
    thread lives, and a job without a slot would wait silently: so the slots of other instances are counted before a thread is
    added.
    """

    def __init__(self, session: SparkSession, threads: Callable[[], int]) -> None:
        self._context, self._threads = session.sparkContext.applicationId, threads
        with _shares_lock:
            self.taken_before = self._taken()
            _shares.append(self)

    def taken_by_others(self) -> int:
        with _shares_lock:
            return self._taken()

    def give_back(self) -> None:
        with _shares_lock:
            _shares.remove(self)

    def _taken(self) -> int:
        return sum(share._threads() for share in _shares if share is not self and share._context == self._context)
