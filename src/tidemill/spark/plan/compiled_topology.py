"""A topology compiled for an application's stream threads: the specs of its steps, and the data frame that they run in.

Made once per application; each stream thread has its own plan, a copy of one or built for it. Decides the order of compiling:
serdes that the program leaves open are found by the types of the columns that arrive, so the specs, which name serdes, come after
the plan, whose steps do nothing yet. How the frame is put together is ``compile``'s, what the specs say ``step_specs``'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from tidemill.errors import TopologyError
from tidemill.operators.operation_table import operations_of
from tidemill.spark.java import JavaObject
from tidemill.spark.plan.batch_sinks import BatchFunction, batch_functions
from tidemill.spark.plan.compile import Compiler
from tidemill.spark.plan.lookups import Lookups
from tidemill.spark.plan.plan_check import check_physical
from tidemill.spark.plan.plan_size import planning
from tidemill.spark.plan.planned_topology import merge_functions, planned
from tidemill.spark.plan.python_steps import ArrowStep, SharedPlan, idle
from tidemill.spark.plan.sendable import refuse_unsendable, send_by_value
from tidemill.spark.plan.stages import Stages, stages
from tidemill.spark.plan.step_specs import StepSpecs
from tidemill.steps.step_spec import SourceSpec, StepSpec
from tidemill.topology.key_value_serdes import NO_SERDES, KeyValueSerdes
from tidemill.topology.nodes import Topology
from tidemill.topology.spark_operations import DataFrameJoin


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the source step takes records of a task's several inputs: as they come, or ``by_time``, by their timestamps; an input
    that has nothing is waited for ``idle_ms`` then (``max.task.idle.ms``)."""

    by_time: bool = False
    idle_ms: int = 0


@dataclass(slots=True, kw_only=True)
class CompiledTopology:
    """Everything that does not depend on the thread."""

    application_id: str
    topology: Topology
    stages: Stages
    source: SourceSpec
    steps: tuple[StepSpec, ...]
    compiler: Compiler
    alignment: Alignment
    lookups: Lookups
    """The static sides of ``join_dataframe``."""
    batch_functions: Mapping[str, BatchFunction] = field(default_factory=dict)
    """Functions of ``foreach_batch``, by node."""
    _idle: DataFrame | None = None
    """The plan from inferring the serdes, in which no rows are summed."""
    _shared: Mapping[bool, SharedPlan] = field(default_factory=lambda: {sums: SharedPlan() for sums in (False, True)})
    """Shared plans by a flag: rows are summed in the JVM."""
    _checked: set[bool] = field(default_factory=set)
    _checking: threading.Lock = field(default_factory=threading.Lock)
    _building: threading.Lock = field(default_factory=threading.Lock)
    """The compiler keeps what it knows of the plan that it builds, whether that sums for one."""

    @property
    def can_stand(self) -> bool:
        """True if its plan can serve many micro-batches in one run."""
        return self.compiler.can_stand

    @property
    def sums(self) -> bool:
        """True if its plan sums rows in the JVM where it may."""
        return self.compiler.has_sums

    def shared_plan(self, root: DataFrame, copy: Callable[[JavaObject], JavaObject], *, sums: bool) -> JavaObject | None:
        """A thread's physical plan as a copy of the one that all threads share. None if each needs a plan of its own: a static
        side that is refreshed is another one for each, and so are the workers of UDFs. ``root``: as of ``frame``."""
        if self.lookups.joins or self.compiler.has_udfs:
            return None
        return self._shared[sums].of_thread(partial(self._planned, root, sums), copy)

    def _planned(self, root: DataFrame, sums: bool) -> JavaObject:
        frame = None if sums else self._idle
        if frame is None:
            frame = self.frame(root, idle, [idle] * len(self.steps), lambda _step: None, sums=sums)
        self.check(frame, sums=sums)
        return frame._jdf.queryExecution().executedPlan()

    def with_topics(self, topology: Topology) -> CompiledTopology:
        """The same, with the specs of steps that read the topics of ``topology``, which is otherwise the same: these are in no
        expression, so the plan stays."""
        specs = StepSpecs(self.compiler, planned(topology), self.application_id)
        source, steps = _specs(specs, self.stages, self.alignment)
        return replace(
            self, topology=topology, source=source, steps=steps, batch_functions=_batch_functions(topology, steps[-1])
        )

    def frame(
        self, root: DataFrame, source: ArrowStep, steps: Sequence[ArrowStep], pin: Callable[[str], None], *, sums: bool
    ) -> DataFrame:
        """A thread's static plan, from its one row on; to be checked. Not ``sums``: rows that may be summed pass one by one."""
        with self._building:
            return self.compiler.build(root, source, list(steps), pin, sums=sums)

    def check(self, frame: DataFrame, *, sums: bool) -> None:
        """Refuses a plan that must not run (correctness.md, rule 18); of its expressions, which don't depend on the thread,
        compiling has. Threads wait for the first one's check: their plans are all alike."""
        with self._checking:
            if sums not in self._checked:
                check_physical(frame, lookups=len(self.lookups.joins))
                self._checked.add(sums)


def compile_topology(
    session: SparkSession | None,
    topology: Topology,
    application_id: str,
    *,
    default_serdes: KeyValueSerdes = NO_SERDES,
    presum: bool = True,
    alignment: Alignment = Alignment(),
    one_by_one: bool = False,
    owner: SparkSession | None = None,
) -> CompiledTopology:
    """Compiles ``topology``. ``session`` may be None where all functions are ``PerRecord``: nothing runs in the JVM then.
    ``alignment``: of topics whose records meet in an operator. ``one_by_one``: single records may have to be left out (exception
    handlers), so Python functions get one at a time.
    ``owner``: the session that functions of ``join_dataframe`` get, where ``session`` is one for plans only.

    Raises:
        TopologyError: a serde is missing or does not fit a column, an expression can't be part of a static plan, or a function
            can't be sent to the workers.
    """
    send_by_value()
    program, topology = topology, planned(topology)
    plan = stages(topology, without_jvm=session is None, one_by_one=one_by_one)
    lookups = Lookups(operations_of(topology, DataFrameJoin), owner or session, application_id)
    lookups.read()
    compiler = Compiler(
        topology,
        plan,
        default_serdes=default_serdes,
        presum=presum,
        lookups=lookups,
        merges=merge_functions(program),
    )
    if session is None and compiler.has_columns:
        raise TopologyError("the topology has functions of columns, which need a Spark session")
    with planning(program):
        frame = compiler.infer(session if compiler.has_columns else None)
    source, steps = _specs(StepSpecs(compiler, topology, application_id), plan, alignment)
    refuse_unsendable(source, steps)
    return CompiledTopology(
        application_id=application_id,
        topology=program,
        stages=plan,
        source=source,
        steps=steps,
        compiler=compiler,
        alignment=alignment,
        lookups=lookups,
        batch_functions=_batch_functions(program, steps[-1]),
        _idle=frame,
    )


def _specs(specs: StepSpecs, plan: Stages, alignment: Alignment) -> tuple[SourceSpec, tuple[StepSpec, ...]]:
    source = specs.source(by_time=alignment.by_time, idle_ms=alignment.idle_ms)
    return source, tuple(specs.step(number) for number in range(1, plan.last + 1))


def _batch_functions(program: Topology, last: StepSpec) -> dict[str, BatchFunction]:
    return batch_functions(program, {sink.name: sink for sink in last.batch_sinks})
