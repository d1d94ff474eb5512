"""Another instance that answers garbage counts as one that does not answer: the others' answers are given, and say so."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.stand_in_status import group_app, instances_of, recorded
from tests.query.stand_ins import COUNTS, ask, store_info
from tidemill.errors import RetriableError
from tidemill.membership.wire import HostInfo
from tidemill.query import http_forward
from tidemill.query import rows as rows_module
from tidemill.query.document_reader import UnreadableDocumentError, read_document, to_plain
from tidemill.query.group_documents import InstanceDocument, LedDecisions, read_group
from tidemill.query.http_forward import HttpInstances, document
from tidemill.query.rows import FoundRows, Row, RowsQuestion
from tidemill.topology.nodes import Store, StoreKind

OTHER, THIRD = HostInfo("127.0.0.1", 34283), HostInfo("127.0.0.1", 38887)
TOLD: Any = next(told for host, told in instances_of(recorded("warming_up")).items() if host == OTHER)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from([10**30, -(1 << 63), "1_0", "NaN"])
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6
)


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of everything within a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before, *(path for key, one in inner for path in paths(one, (*before, key)))]


def with_changed(value: Any, path: tuple[Any, ...], put: Any) -> Any:
    if not path:
        return put
    changed = copy.copy(value)
    changed[path[0]] = with_changed(value[path[0]], path[1:], put)
    return changed


PATHS = paths(TOLD)


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(PATHS), put=anything)
def test_a_group_is_answered_whatever_one_instance_tells(path: tuple[Any, ...], put: Any) -> None:
    app, _, others = group_app()
    others.told[OTHER] = with_changed(TOLD, path, put)
    others.document = lambda host, target, *, timeout_s: others.told[host]  # type: ignore[method-assign]
    reply = ask(app, "/group")
    assert reply.status == 200
    group = read_group(reply.json)
    assert [one.host for one in group.instances if one.reported is not None][-1] == str(THIRD)
    [other] = [one for one in group.instances if one.host == str(OTHER)]
    assert (other.reported is None) == (other.away is not None)


@pytest.mark.parametrize(
    "garbage", [None, [], {}, {"at_ms": "x", "decisions": []}, {"at_ms": 10**400, "decisions": []}, {"at_ms": 5}]
)
def test_decisions_come_from_the_others_and_say_whose_were_left_out(garbage: Any) -> None:
    app, _, others = group_app()
    others.decided[THIRD] = {"at_ms": 9, "decisions": []}
    answer: Callable[..., Any] = others.document
    others.document = lambda host, *rest, **options: garbage if host == OTHER else answer(host, *rest, **options)  # type: ignore[method-assign]
    reply = ask(app, "/decisions")
    assert (reply.status, reply.json["at_ms"]) == (200, 9)
    [left_out] = reply.json["left_out"]
    assert left_out["host"] == str(OTHER)
    assert "answers, but not as an instance of this version" in left_out["why"]


def test_a_document_of_another_shape_is_refused_with_where_and_what() -> None:
    with pytest.raises(UnreadableDocumentError, match=r"^threads\[0\]\.active is null, expected a list$"):
        read_document(InstanceDocument, with_changed(TOLD, ("threads", 0, "active"), None))
    with pytest.raises(UnreadableDocumentError, match=r"^the document has no at_ms$"):
        read_document(LedDecisions, {})


def test_what_is_read_is_what_was_told_without_what_nothing_is_known_of() -> None:
    known = {key: value for key, value in TOLD.items() if key not in ("away", "assigned")}
    assert to_plain(read_document(InstanceDocument, {**TOLD, "new": 1})) == known
    assert read_group(read_group(recorded("warming_up")).to_json()) == read_group(recorded("warming_up"))


@pytest.mark.parametrize("body", [b"null", b"[]", b"3", b"{", b"\xff", b"[" * 100_000, b'{"a":' + b"9" * 5_000 + b"}"])
def test_what_is_no_json_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(RetriableError):
        document(body)


def test_a_number_that_json_lacks_is_read_as_it_was_written() -> None:
    told = read_document(InstanceDocument, json.loads(json.dumps(with_changed(TOLD, ("threads", 0, "latency_ms"), float("nan")))))
    assert told.threads[0].latency_ms != told.threads[0].latency_ms


# --- rows ----------------------------------------------------------------------------------------------------------------

RANGE = RowsQuestion(partitions=frozenset({0, 1}), low=b"b", high=b"y", limit=3)
KEY = RowsQuestion(partitions=frozenset({0}), key=b"k")
WINDOWS = RowsQuestion(partitions=frozenset({0}), key=b"k", times=(0, 9), limit=3)
WINDOW_STORE = store_info(store=Store(name="counts", kind=StoreKind.TIMESTAMPED_WINDOW, window_size_ms=5))
START = (7).to_bytes(8, "big")


def rows(*keys: bytes, partition: int = 0, stored: bytes = bytes(16), more_from: bytes | None = None) -> FoundRows:
    return FoundRows(rows=tuple(Row(key, stored, partition) for key in keys), covered={0: 0, 1: 4}, more_from=more_from)


@pytest.mark.parametrize(
    ("question", "good", "bad"),
    [
        (
            RANGE,
            rows(b"b", b"k", b"y"),
            [
                rows(b"k", b"b"), rows(b"k", b"b", b"y"), rows(b"a"), rows(b"z"), rows(b"c", b"d", b"e", b"f"),
                rows(b"c", partition=7),
            ],
        ),
        (
            RANGE,
            rows(b"b", b"k", more_from=b"l"),
            [rows(b"b", b"k", more_from=b"k"), rows(b"b", more_from=b""), rows(b"b", more_from=b"z"), rows(more_from=b"k")],
        ),
        (KEY, rows(b"k"), [rows(b"j"), rows(b"kk"), rows(b"k", b"k")]),
        (
            WINDOWS,
            rows(b"k" + START),
            [rows(b"k"), rows(b"j" + START), rows(b"k" + START, stored=b""), rows(b"k" + START + START)],
        ),
        (RANGE, rows(b"k", b"k"), []),
        (WINDOWS, rows(b"k" + START, stored=bytes(8)), []),
    ],
    ids=["range", "page", "key", "windows", "a key in two places", "a window with an empty text"],
)
def test_rows_that_do_not_answer_the_question_are_no_answer(
    monkeypatch: pytest.MonkeyPatch, question: RowsQuestion, good: FoundRows, bad: list[FoundRows]
) -> None:
    store = COUNTS if question.times is None else WINDOW_STORE

    def read(answer: FoundRows) -> FoundRows:
        monkeypatch.setattr(http_forward, "fetch", lambda *_, **__: answer.to_bytes())
        return HttpInstances().read(OTHER, store, question, max_lag=None, timeout_s=1)

    assert read(good) == good
    for answer in bad:
        with pytest.raises(RetriableError, match="is no instance of this application's version"):
            read(answer)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_rows_that_would_unfold_to_more_than_was_sent_are_refused_before_they_do(codec: str) -> None:
    schema = pa.ipc.open_stream(rows(b"k").to_bytes()).schema
    columns = [pa.array([b"k"]), pa.array([bytes(64 << 20)], pa.binary()), pa.array([0], pa.int32())]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([column[:0] for column in columns], schema=schema))
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    default = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(default)
    pa.set_memory_pool(counted)
    try:
        with pytest.raises(ValueError, match="they are compressed, which no instance does"):
            FoundRows.from_bytes(sink.getvalue().to_pybytes())
    finally:
        pa.set_memory_pool(default)
    assert counted.max_memory() < 1 << 20


@pytest.mark.parametrize("covered", [b'{"0":-1, "1": 4}', b'{"0":true,"1":4}', b"[1234567, 12345]"])
def test_how_far_copies_are_behind_is_a_number_for_each(covered: bytes) -> None:
    data = rows(b"k").to_bytes()
    with pytest.raises(ValueError, match="not rows of a store"):
        FoundRows.from_bytes(data.replace(b'{"0": 0, "1": 4}', covered))


def test_rows_that_point_outside_of_what_was_sent_are_refused() -> None:
    """pyarrow would give what lies behind them in this process's memory."""
    stored = b"as it is stored"
    before, offsets, after = rows(b"k", stored=stored).to_bytes().rpartition(struct.pack("<ii", 0, len(stored)))
    assert offsets
    with pytest.raises(ValueError, match="not rows of a store"):
        FoundRows.from_bytes(before + struct.pack("<ii", 0, 5000) + after)


def test_rows_without_number_are_not_made_before_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "Row", None)
    with pytest.raises(ValueError, match="more rows than were asked for"):
        FoundRows.from_bytes(rows(b"a", b"b", b"c").to_bytes(), 2)
