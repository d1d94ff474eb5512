"""A batch is whole or nothing, and who may commit it (correctness.md, rules 1 to 6, 15): the last step fed by hand."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest

from tests.operators.test_exception_handlers import SilentError
from tests.steps.memory_stores import MemoryStores
from tests.steps.step_fixtures import (
    COUNT_TAG,
    INPUT,
    LOST,
    SINK_TAG,
    TASK,
    Context,
    Crash,
    MemoryOutput,
    batch,
    count_spec,
    packed_record,
    rows_batch,
    word,
)
from tidemill.dsl.serdes import Serdes
from tidemill.errors import (
    BatchLostError,
    CommitRefusedError,
    FailedRecord,
    FencedError,
    RetriableError,
    SerdeError,
    StateDiskError,
    StopError,
)
from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.exception_handlers import DeadLetter, ErrorContext, ExceptionHandler, ExceptionHandlers, ExceptionResponse
from tidemill.operators.record import Record
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.rows.schema import CHANGELOG, CHUNK, MARKER, UNREADABLE
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, PartitionStats, TaskRun
from tidemill.task.commit import ORDER, CommitStep
from tidemill.task.partition_time import PartitionTime
from tidemill.topology.operations import Aggregate, Reduce

WORDS = [word("a", 0), word("b", 1), word("a", 2)]


def counts(context: Context) -> dict[str, int]:
    return {key.decode(): struct.unpack(">q", row[8:])[0] for key, row in context.stores.rows["counts"].items()}


def outputs(context: Context, topic: str = "out") -> dict[str, int]:
    return {k.decode(): struct.unpack(">q", v)[0] for t, k, v, _ in context.output.committed if t == topic and k and v}


def test_a_whole_batch_is_counted_logged_and_committed_together() -> None:
    context = Context()
    report = context.run(WORDS)
    assert report.outcome is Outcome.COMMITTED
    assert counts(context) == outputs(context) == outputs(context, "app-counts-changelog") == {"a": 2, "b": 1}
    assert context.output.offsets == {INPUT: 3}
    assert context.stores.positions == {"counts": 2}
    assert {t for _, k, _, t in context.output.committed if k == b"a"} == {102}, "the timestamp is the highest"


def test_a_store_stays_before_the_records_of_another_owner_in_its_changelog() -> None:
    """At least once, a member that was frozen for longer than its session writes what it has begun when the group has given
    its task away, behind the records of the new owner. It lacks those."""
    changelog = TopicPartition("app-counts-changelog", 0)
    context = Context()
    context.run(WORDS)
    assert context.stores.positions == {"counts": 2}
    context.output.logged[changelog] += 5  # the new owner's
    assert context.run([word("a", 3)], start=3).outcome is Outcome.COMMITTED
    assert counts(context) == {"a": 3, "b": 1}
    assert (context.output.logged[changelog], context.stores.positions) == (8, {"counts": 2})
    late = Context()
    late.output.logged[changelog] = 5  # it was frozen in its first batch
    assert late.run(WORDS).outcome is Outcome.COMMITTED
    assert late.stores.positions == {}


def test_the_partitions_that_one_sink_chooses_are_not_those_of_another_below_the_same_node() -> None:
    """The records of a vectorised node are the same objects for all sinks below it."""
    spec = count_spec()
    chooses = replace(spec.sinks[SINK_TAG], partitioner=lambda topic, key, value, partitions: 0)
    other = replace(spec.sinks[SINK_TAG], name="OTHER", topic="other")
    node = replace(spec.nodes[COUNT_TAG], inline=("SINK", "OTHER"))
    context = Context()
    context.run(WORDS, spec=replace(spec, nodes={COUNT_TAG: node}, sinks={SINK_TAG: chooses, 11: other}))
    assert outputs(context, "other") == outputs(context) == {"a": 2, "b": 1}
    assert {tp.topic for tp in context.output.logged} == {"out", "app-counts-changelog"}


def test_a_store_is_in_its_source_topic_where_the_group_has_committed_not_where_reading_begins() -> None:
    rows = TopicPartition("rows", 0)
    spec = count_spec()
    table = replace(spec.stores["counts"], name="rows", tag=CHANGELOG - 1, changelog=None, source_topic="rows", logged=False)
    spec = replace(spec, stores={**spec.stores, "rows": table})
    context = Context()

    def run(start: int, read_to: int) -> dict[str, int]:
        inputs = {INPUT: start, rows: 90}
        context.now = BatchRequest(batch_id=1, inputs=inputs, tasks=(TaskRun(task=TASK, directory="d", epoch="e"),))
        ends = {INPUT: start + 1, rows: read_to}
        report = context.take(batch([word("a", start)], start, starts=inputs, ends=ends), spec)
        assert report.outcome is Outcome.COMMITTED, report.message
        return context.stores.positions

    assert run(0, 90) == {"counts": 1}, "nothing of it is committed: a restore would find nothing to restore"
    assert run(1, 95) == {"counts": 2, "rows": 95}
    assert context.output.offsets[rows] == 95


def test_offsets_are_committed_with_how_far_their_partitions_times_have_come() -> None:
    context = Context()
    context.now = replace(
        BatchRequest(batch_id=1, inputs={INPUT: 0}, tasks=(TaskRun(task=TASK, directory="d", epoch="e"),)),
        times={INPUT: PartitionTime(50, (("kept by Java", 7),))},
    )
    stats = {INPUT: PartitionStats(3, 3, 100, 102, 303)}
    assert context.take(batch(WORDS, 0, partition_stats=stats)).outcome is Outcome.COMMITTED
    assert context.output.times == {INPUT: PartitionTime(102, (("kept by Java", 7),))}


def test_counts_go_on_from_what_the_store_holds() -> None:
    context = Context()
    context.run(WORDS)
    context.run([word("a", 3, n=5)], start=3)
    assert counts(context) == {"a": 7, "b": 1}


def test_a_held_count_that_can_not_be_read_stops_with_the_task_and_the_store() -> None:
    context = Context()
    context.run(WORDS)
    context.stores.rows["counts"][b"a"] = b"?"
    report = context.run([word("a", 3)], start=3)
    assert report.outcome is Outcome.STOPPED
    assert "task 1_0: store counts holds bytes that its serde can't read" in report.message


def test_null_keys_are_dropped_and_counted() -> None:
    report = Context().run([word(None, 0, n=3), word("a", 1)])
    assert report.dropped == 3


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("marker", lambda rows: rows[:1]),
        ("everything", lambda rows: []),
        ("chunk", lambda rows: rows[1:]),
        ("marker twice", lambda rows: [*rows, rows[1]]),
        ("chunk twice", lambda rows: [rows[0], *rows]),
        ("rows", lambda rows: [rows_batch([{"node": CHUNK, "off": 0, "ts": 2, "part": -1}]), rows[1]]),
    ],
)
def test_a_batch_that_was_cut_short_or_repeated_leaves_nothing(what: str, broken) -> None:  # type: ignore[no-untyped-def]
    context = Context()
    context.now = BatchRequest(
        batch_id=1, inputs={INPUT: 0}, tasks=(TaskRun(task=context.stores.at.task, directory="d", epoch="e"),)
    )
    report = context.take(broken(batch(WORDS, 0)))
    assert report.outcome is Outcome.LOST, what
    assert not context.output.committed
    assert not counts(context)


def test_a_marker_that_can_not_be_read_leaves_nothing_and_the_report_says_so() -> None:
    context = Context()
    context.now = BatchRequest(batch_id=1, inputs={INPUT: 0})
    rows = [batch(WORDS, 0)[0], rows_batch([{"node": MARKER, "part": -1, "off": 1, "seq": 0, "ts": 0, "value": b"?"}])]
    report = context.take(rows)
    assert (report.outcome, report.is_misfit) == (Outcome.LOST, True)
    assert "1 bytes that begin with b'?' are no Marker" in report.message
    assert not context.output.committed


@pytest.mark.parametrize(
    "marker", [{"batch_id": 2}, {"chunks": 2}, {"rows": 4}, {"starts": {INPUT: 1}}], ids=["id", "chunks", "rows", "starts"]
)
def test_a_marker_that_says_something_else_leaves_nothing(marker: dict[str, object]) -> None:
    context = Context()
    assert context.run(WORDS, **marker).outcome is Outcome.LOST
    assert not context.output.committed


def test_a_batch_must_begin_where_the_last_commit_of_this_worker_ended() -> None:
    context = Context()
    context.run(WORDS)
    assert context.run([word("a", 2)], start=2).outcome is Outcome.LOST
    assert counts(context) == {"a": 2, "b": 1}


def test_a_new_worker_asks_the_broker_where_the_last_commit_ended() -> None:
    context = Context()
    context.run(WORDS)
    fresh = Context(stores=context.stores, output=context.output)
    assert fresh.run([word("a", 1)], start=1).outcome is Outcome.LOST
    assert fresh.run([word("a", 3)], start=3).outcome is Outcome.COMMITTED
    assert counts(fresh) == {"a": 3, "b": 1}


def test_another_incarnation_of_the_member_commits_nothing() -> None:
    context = Context(incarnation=1)
    assert context.run(WORDS).outcome is Outcome.FENCED
    assert context.output.aborted == 1
    assert not context.output.committed


def test_a_member_that_the_group_forgot_commits_nothing() -> None:
    context = Context(may_commit=False)
    assert context.run(WORDS).outcome is Outcome.FENCED
    assert not counts(context)


@pytest.mark.parametrize(("error", "outcome"), [(LOST, Outcome.LOST), (FencedError("newer"), Outcome.FENCED)])
def test_a_failed_commit_leaves_stores_and_continuity_untouched(error: Exception, outcome: Outcome) -> None:
    context = Context()
    context.output.fails = error
    assert context.run(WORDS).outcome is outcome
    assert not counts(context)
    assert not context.continuity


def test_at_least_once_results_are_out_before_a_changelog_says_so() -> None:
    """Else a crash in between leaves stores that have passed their results on, and nobody has got these."""
    context = Context(output=MemoryOutput(is_transactional=False, refuses_to_flush=LOST))
    assert context.run(WORDS).outcome is Outcome.LOST
    assert {topic for topic, *_ in context.output.flushed} == {"out"}
    assert not counts(context)
    context.output.refuses_to_flush = None
    assert context.run(WORDS).outcome is Outcome.COMMITTED
    written = [topic for topic, *_ in context.output.committed]
    assert written == ["out"] * written.count("out") + ["app-counts-changelog"] * 2
    assert len(context.output.flushed) == written.count("out")


def test_at_least_once_nothing_of_a_frozen_owner_gets_behind_the_next_ones_rows() -> None:
    """It is not fenced: the group is asked when its results are out, and its changelogs are not yet written."""
    context = Context(output=MemoryOutput(is_transactional=False), may_commit=False)
    assert context.run(WORDS).outcome is Outcome.FENCED
    assert {topic for topic, *_ in context.output.flushed} == {"out"}
    assert context.output.written == context.output.flushed


def test_at_least_once_an_owner_that_is_frozen_behind_the_answer_of_the_group_asks_again() -> None:
    """The first answer holds no longer when it is there, the second is that another instance may have the task."""
    context = Context(output=MemoryOutput(is_transactional=False), confirmed_for_s=iter([0.0]))
    assert context.run(WORDS).outcome is Outcome.FENCED
    assert {topic for topic, *_ in context.output.written} == {"out"}
    again = Context(output=MemoryOutput(is_transactional=False), confirmed_for_s=iter([0.0, 60.0, 60.0]))
    assert again.run(WORDS).outcome is Outcome.COMMITTED


def test_a_commit_that_the_group_refuses_costs_the_batch_and_nothing_else() -> None:
    context = Context()
    assert context.run(WORDS).outcome is Outcome.COMMITTED
    context.output.fails = CommitRefusedError("another generation")
    report = context.run([word("a", 3)], start=3)
    assert report.outcome is Outcome.REFUSED
    assert report.stores[0].changelog == {"counts": 2}
    assert (counts(context), context.continuity) == ({"a": 2, "b": 1}, {INPUT: 3})
    context.output.fails = None
    assert context.run([word("a", 3)], start=3).outcome is Outcome.COMMITTED
    assert counts(context) == {"a": 3, "b": 1}


def test_stores_that_are_behind_stop_the_batch_before_anything_is_read_from_them() -> None:
    context = Context()
    context.stores.is_behind = True
    report = context.run(WORDS)
    assert report.outcome is Outcome.LOST
    assert report.stores[0].is_behind
    assert not context.output.committed


@pytest.mark.parametrize("crash", ORDER[1:], ids=lambda step: step.value)
def test_a_crash_behind_any_step_counts_the_batch_once(crash: CommitStep) -> None:
    """The worker dies; a new one starts at the broker's offsets, its stores brought to the changelog's end first."""
    context = Context(crash_at=crash)
    with pytest.raises(Crash):
        context.run(WORDS)
    revived = Context(stores=context.stores, output=context.output)
    revived.output.open = None  # the broker aborts what the dead one left
    logged = {k: v for t, k, v, _ in revived.output.committed if t == "app-counts-changelog"}
    revived.stores.rows["counts"].update({k: struct.pack(">q", 0) + v for k, v in logged.items() if k and v})
    start = revived.output.offsets.get(INPUT, 0)
    revived.run(WORDS[start:], start=start)
    assert counts(revived) == {"a": 2, "b": 1}
    assert outputs(revived) == {"a": 2, "b": 1}


def test_the_commit_steps_stand_in_the_order_that_makes_a_crash_harmless() -> None:
    must_precede = [
        CommitStep.GATHER, CommitStep.CONTINUITY, CommitStep.PRODUCE, CommitStep.ROOM,
        CommitStep.MEMBERSHIP, CommitStep.COMMIT, CommitStep.APPLY,
    ]  # fmt: skip
    assert all(ORDER.index(before) < ORDER.index(after) for before, after in pairwise(must_precede))


def test_changelog_records_go_to_the_store_and_nowhere_else() -> None:
    context = Context()
    logged = packed_record(part=0, off=5, ts=50, key=b"a", value=struct.pack(">q", 9))
    from tidemill.ids import TopicPartition

    report = context.run([logged], changelog_ends={TopicPartition("app-counts-changelog", 0): 7}, ends={INPUT: 0})
    assert report.records_restored == 1
    assert report.restored == {TASK: {"counts": 1}}
    assert counts(context) == {"a": 9}
    assert context.stores.positions == {"counts": 7}
    assert not context.output.committed


def test_a_disk_that_takes_nothing_ends_the_thread_while_its_stores_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StateDiskError("/state/1_0 can't be written: No space left on device")

    context = Context()
    monkeypatch.setattr(context.stores, "apply", refuse)
    logged = packed_record(part=0, off=5, ts=50, key=b"a", value=struct.pack(">q", 9))
    report = context.run([logged], changelog_ends={TopicPartition("app-counts-changelog", 0): 7}, ends={INPUT: 0})
    assert (report.outcome, report.message) == (Outcome.STOPPED, "/state/1_0 can't be written: No space left on device")


@pytest.mark.parametrize(
    ("problem", "outcome"),
    [
        (BatchLostError("task 1_0: another worker has it open"), Outcome.LOST),
        (StopError("task 1_0: /state/1_0 is the state of another task"), Outcome.STOPPED),
        (StateDiskError("/state/1_0 can't be written: No space left on device"), Outcome.STOPPED),
    ],
)
def test_stores_that_can_not_be_opened_cost_the_batch_and_not_the_worker(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, outcome: Outcome
) -> None:
    def refuse(_: object) -> Mapping[TaskId, MemoryStores]:
        raise problem

    context = Context(continuity={INPUT: 3})
    with monkeypatch.context() as patch:
        patch.setattr(context, "open_stores", refuse)
        report = context.run([word("a", 3)], start=3)
    assert (report.outcome, report.message, report.is_misfit) == (outcome, str(problem), False)
    assert not context.continuity
    assert context.run(WORDS).outcome is Outcome.COMMITTED


def test_reduce_and_aggregate_follow_the_offsets_whatever_the_order_of_rows() -> None:
    rows = [word("k", 2, value=b"c"), word("k", 0, value=b"a"), word("k", 1, value=b"b")]
    context = Context()
    context.run(rows, spec=count_spec(Reduce("counts", lambda a, v: a + v), Serdes.string()))
    assert context.stores.rows["counts"][b"k"][8:] == b"abc"
    context = Context()
    joined = Aggregate("counts", lambda: "", lambda k, v, a: a + k + v)
    context.run(rows, spec=count_spec(joined, Serdes.string()))
    assert context.stores.rows["counts"][b"k"][8:] == b"kakbkc"


def test_a_failing_user_function_names_the_task_and_the_offset() -> None:
    context = Context()
    report = context.run([word("k", 0, value=b"x"), word("k", 1, value=b"y")],
                         spec=count_spec(Reduce("counts", lambda a, v: 1 / 0), Serdes.string()))  # fmt: skip
    assert report.outcome is Outcome.STOPPED
    assert "task 1_0" in report.message
    assert "offset 1" in report.message
    assert "ZeroDivisionError" in report.message


def test_what_may_work_later_costs_the_batch_and_not_the_thread() -> None:
    def away(so_far: bytes, value: bytes) -> bytes:
        raise RetriableError("the registry is away")

    context = Context()
    spec = count_spec(Reduce("counts", away), Serdes.string())
    report = context.run([word("k", 0, value=b"x"), word("k", 1, value=b"y")], spec=spec)
    assert (report.outcome, report.message, report.is_misfit) == (Outcome.LOST, "the registry is away", False)
    assert context.output.committed == []


def unreadable(handler: ExceptionResponse | ExceptionHandler) -> tuple[Context, dict[str, object]]:
    policy = Unreadable(handler=handler, topic="dead", expected={0: "a long"})
    row = {"node": UNREADABLE, "part": 0, "off": 4, "seq": 0, "ts": 1, "n": 0, "key": b"k", "value": b"xyz"}
    return Context(unreadable=policy), row


def test_unreadable_records_stop_with_topic_partition_offset_and_reason() -> None:
    context, row = unreadable(ExceptionResponse.FAIL)
    report = context.run([row])
    assert report.outcome is Outcome.STOPPED
    assert "in-0 at offset 4" in report.message
    assert "3 bytes, expected a long" in report.message


class ReadsInts:
    """A serde whose values are no texts, or that refuses all bytes."""

    name, sql_type = "ints", "string"

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem

    def serialize(self, value: int | None) -> bytes | None:
        return None if value is None else value.to_bytes(8, "big")

    def deserialize(self, data: bytes | None) -> int | None:
        if self.problem is not None:
            raise self.problem
        return None if data is None else int.from_bytes(data, "big")


@pytest.mark.parametrize(
    ("serde", "said"),
    [
        (ReadsInts(), "the value can't be read: ints: its Spark type is string, but its values are of the type int"),
        (ReadsInts(SilentError()), "SilentError: (no text: its __str__ raised RuntimeError)"),
        (ReadsInts(ValueError("begin" + "x" * 3_000_000)), "ValueError: begin"),
        (ReadsInts(SerdeError("x" * 3_000_000)), "the value can't be read: xxx"),
    ],
)
def test_what_is_unreadable_says_why_in_a_text_that_fits_a_letter(serde: ReadsInts, said: str) -> None:
    asked: list[str] = []

    def judged(_context: ErrorContext, _record: Record | None, error: Exception) -> ExceptionResponse:
        asked.append(str(error))
        return ExceptionResponse.CONTINUE

    context, row = unreadable(judged)
    context.unreadable = replace(context.unreadable, serdes={0: (Serdes.string(), serde)})
    context.run([row])
    [reason] = asked
    assert said in reason
    assert len(reason) < 11_000


def test_a_trial_counts_if_the_record_to_be_tried_has_come() -> None:
    context = Context()
    context.now = BatchRequest(
        batch_id=1, inputs={INPUT: 0}, tasks=(TaskRun(task=TASK, directory="d", epoch="e"),), incarnation=0, defers=True
    )
    assert context.take(batch([], 0, ends={INPUT: 0})).outcome is Outcome.COMMITTED
    assert context.take(batch([word("a", 0)], 0)).outcome is Outcome.TRIED
    assert context.output.committed == []


class Refusing:
    """A serde that can't write ``bad``."""

    name, sql_type, deserialize = "refusing", "string", Serdes.string().deserialize

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    def serialize(self, value: str | None) -> bytes | None:
        if value == "bad":
            raise self.problem
        return Serdes.string().serialize(value)


def rows_of_columns_for_a_sink(handlers: ExceptionHandlers, problem: Exception) -> tuple[Context, BatchReport]:
    context, _ = unreadable(ExceptionResponse.FAIL)
    context.unreadable = replace(context.unreadable, handlers=handlers)
    spec = count_spec()
    sink = replace(spec.sinks[SINK_TAG], key_serde=Serdes.string(), value_serde=Refusing(problem), inputs=("in",), subtopology=1)
    row = {"node": SINK_TAG, "part": 0, "ts": 1, "key": b"k"}
    rows = [{**row, "off": at, "seq": at << 16, "value": value} for at, value in enumerate([b"good", b"bad", None])]
    return context, context.run(rows, spec=replace(spec, sinks={SINK_TAG: sink}), ends={INPUT: 3})


@pytest.mark.parametrize("problem", [SerdeError("no"), SilentError()])
def test_what_columns_give_and_a_sinks_serde_can_not_write_is_the_production_handlers_matter(problem: Exception) -> None:
    asked: list[tuple[object, ...]] = []

    def handler(at: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
        assert record is not None
        asked.append((str(at.task), at.node, at.topic, at.partition, at.offset, record.key, record.value))
        return ExceptionResponse.DEAD_LETTER

    context, report = rows_of_columns_for_a_sink(ExceptionHandlers(production=handler, dead_letter_topic="dead"), problem)
    assert (report.outcome, report.dropped) == (Outcome.COMMITTED, 1)
    assert asked == [("1_0", "SINK", "in", 0, 1, "k", "bad")]
    assert sorted((t, k, v or b"") for t, k, v, _ in context.output.committed) == [
        ("dead", b"k", b"bad"), ("out", b"k", b""), ("out", b"k", b"good"),
    ]  # fmt: skip


@pytest.mark.parametrize(("problem", "said"), [(SerdeError("no"), "no"), (KeyError(3), "a serde failed: KeyError: 3")])
def test_without_a_handler_it_stops_with_sink_and_record(problem: Exception, said: str) -> None:
    _, report = rows_of_columns_for_a_sink(ExceptionHandlers(), problem)
    assert (report.outcome, report.message) == (Outcome.STOPPED, f"task 1_0, in-0 at offset 1: SINK (topic out): {said}")
    assert report.record == FailedRecord(task="1_0", topic="in", partition=0, offset=1)


def test_unreadable_records_can_be_passed_over() -> None:
    context, row = unreadable(ExceptionResponse.CONTINUE)
    report = context.run([row, word("a", 5)], ends={INPUT: 6})
    assert (report.outcome, report.skipped, report.dropped) == (Outcome.COMMITTED, 1, 1)
    assert counts(context) == {"a": 1}


def test_unreadable_records_can_be_put_aside_as_they_came() -> None:
    context, row = unreadable(ExceptionResponse.DEAD_LETTER)
    context.run([row])
    assert [(t, k, v) for t, k, v, _ in context.output.committed] == [("dead", b"k", b"xyz")]


def test_a_function_writes_letters_of_unreadable_records_itself() -> None:
    def judged(context: ErrorContext, record: Record | None, error: Exception) -> DeadLetter:
        return DeadLetter(topic=f"{context.topic}-unreadable", key=context.source_raw_key, value=context.source_raw_value)

    context, row = unreadable(judged)
    context.run([row])
    assert [(t, k, v) for t, k, v, _ in context.output.committed] == [("in-unreadable", b"k", b"xyz")]


def test_a_function_decides_about_each_unreadable_record_in_their_order() -> None:
    asked: list[tuple[ErrorContext, Record | None, Exception]] = []

    def judged(context: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
        asked.append((context, record, error))
        return ExceptionResponse.CONTINUE if context.offset == 3 else ExceptionResponse.DEAD_LETTER

    context, row = unreadable(judged)
    earlier = {**row, "off": 3, "value": b"?"}
    report = context.run([row, earlier, word("a", 5)], ends={INPUT: 6})
    assert (report.outcome, report.skipped, counts(context)) == (Outcome.COMMITTED, 2, {"a": 1})
    assert [(k, v) for t, k, v, _ in context.output.committed if t == "dead"] == [(b"k", b"xyz")]
    assert [(str(at.task), at.node, at.topic, at.partition, at.offset, at.timestamp) for at, _, _ in asked] == [
        ("0_0", "source", "in", 0, offset, 1) for offset in (3, 4)
    ]
    assert [record for _, record, _ in asked] == [Record(b"k", value, 1, ()) for value in (b"?", b"xyz")]
    assert [type(error) for _, _, error in asked] == [SerdeError, SerdeError]
    assert "3 bytes, expected a long" in str(asked[1][2])


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(("answer", "said"), [
    (Unshown(), "deserialization.exception.handler returned <Unshown, whose __repr__ raised RuntimeError>, expected one of"),
    (ExceptionResponse.FAIL, "3 bytes, expected a long. Correct the serde: deserialization.exception.handler has answered FAIL"),
    (None, "deserialization.exception.handler returned None, expected one of ExceptionResponse.FAIL"),
    (ZeroDivisionError("why"), "deserialization.exception.handler failed: ZeroDivisionError: why (asked about SerdeError"),
])  # fmt: skip
def test_a_function_that_fails_or_answers_fail_stops_with_the_record_it_was_asked_about(answer: object, said: str) -> None:
    def judged(context: ErrorContext, record: Record | None, error: Exception) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    context, row = unreadable(cast("ExceptionHandler", judged))
    report = context.run([row])
    assert report.outcome is Outcome.STOPPED
    assert "task 0_0, in-0 at offset 4: " in report.message
    assert said in report.message


def test_a_function_that_asks_for_a_letter_without_a_topic_for_them_stops() -> None:
    policy = Unreadable(handler=lambda *asked: ExceptionResponse.DEAD_LETTER, topic=None, expected={0: "a long"})
    report = Context(unreadable=policy).run([unreadable(ExceptionResponse.FAIL)[1]])
    assert report.outcome is Outcome.STOPPED
    assert "asks for a dead letter: set errors.dead.letter.queue.topic.name" in report.message


def test_the_marker_is_a_row_below_zero_so_that_no_node_ever_takes_it() -> None:
    assert MARKER < 0
    assert CHUNK < 0
