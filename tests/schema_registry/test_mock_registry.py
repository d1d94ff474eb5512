"""``mock://`` registries: one for a process and its workers, which are other processes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tidemill.errors import SerdeError, TopologyError
from tidemill.schema_registry import SchemaRegistry, registry


def schema(name: str, *fields: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": field, "type": "long"} for field in fields]})


def in_another_process(work: str, *given: Any) -> Any:
    """What ``work``, which has ``given`` and sets ``answer``, answers in a process that got them as workers do."""
    code = f"import pickle, sys\ngiven = pickle.load(sys.stdin.buffer)\n{work}\nsys.stdout.buffer.write(pickle.dumps(answer))"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(given), capture_output=True, check=True)
    return pickle.loads(done.stdout)


def test_workers_read_what_was_written_here_and_the_other_way_round() -> None:
    ours = SchemaRegistry("mock://of-this-test-both-ways").avro(schema("User", "id"))
    here = ours.serialize({"id": 1})
    there = SchemaRegistry("mock://of-this-test-both-ways").avro(schema("Order", "pieces"))
    work = "answer = given[0].deserialize(given[1]), given[2].serialize({'pieces': 2})"
    read, written = in_another_process(work, ours, here, there)
    assert read == {"id": 1}
    assert there.deserialize(written) == {"pieces": 2}


def test_each_schema_has_one_number_whichever_process_registers_it() -> None:
    made = SchemaRegistry("mock://of-this-test-numbers")
    user, order, item = (made.avro(schema(name, "id")) for name in ("User", "Order", "Item"))
    first = user.serialize({"id": 1})
    theirs = in_another_process("answer = [serde.serialize({'id': 1}) for serde in given]", order, user)
    last = item.serialize({"id": 1})
    numbers = [int.from_bytes(written[1:5], "big") for written in (first, theirs[0], theirs[1], last)]
    assert numbers == [1, 2, 1, 3]


def test_registries_of_different_names_know_nothing_of_each_other() -> None:
    written = SchemaRegistry("mock://of-this-test-one").avro(schema("User", "id")).serialize({"id": 1})
    with pytest.raises(SerdeError, match="Schema Not Found"):
        SchemaRegistry("mock://of-this-test-other").avro(schema("User", "id")).deserialize(written)


def test_equal_registries_are_equal_in_the_worker_too() -> None:
    made = SchemaRegistry("mock://of-this-test-equal")
    assert in_another_process("answer = given[0]", made) == made == SchemaRegistry("mock://of-this-test-equal")
    assert repr(made) == "SchemaRegistry(url='mock://of-this-test-equal', auto_register=True)"


def test_the_file_goes_with_the_process_that_made_it_and_with_no_other() -> None:
    made = in_another_process(
        "from tidemill.schema_registry import SchemaRegistry\nanswer = SchemaRegistry('mock://gone')._mock_file", "nothing"
    )
    assert not Path(made).parent.exists()
    SchemaRegistry("mock://of-this-test-kept")
    folder = Path(registry._mock_files["mock://of-this-test-kept"]).parent
    registry._remove(str(folder), os.getpid() + 1)
    assert folder.exists()


def test_a_schema_stands_under_the_subject_that_is_given_and_else_under_its_name() -> None:
    made = SchemaRegistry("mock://of-this-test-subjects")
    user, order = schema("User", "id"), schema("Order", "id")
    made.avro(user, subject="users-value").serialize({"id": 1})
    made.avro(order).serialize({"id": 1})
    made.protobuf(Timestamp, subject="times-value").serialize({"seconds": 1})
    made.protobuf(Duration).serialize({"seconds": 1})
    assert sorted(made.client().get_subjects()) == ["Order", "google.protobuf.Duration", "times-value", "users-value"]
    only_looks = SchemaRegistry("mock://of-this-test-subjects", auto_register=False)
    for found in (only_looks.avro(user, subject="users-value"), only_looks.protobuf(Timestamp, subject="times-value")):
        value = dict.fromkeys(("id",) if found.name == "avro" else ("seconds", "nanos"), 2)
        assert in_another_process("answer = given[0].serialize(given[1])", found, value) == found.serialize(value)
    assert only_looks.avro(user).deserialize(only_looks.avro(user, subject="users-value").serialize({"id": 1})) == {"id": 1}
    for lacking, subject in ((only_looks.avro(user), "User"), (only_looks.avro(user, subject="other"), "other")):
        with pytest.raises(SerdeError, match=rf"its subject is {subject}, to which nothing .* another one, give that \(subject="):
            lacking.serialize({"id": 1})


@pytest.mark.parametrize("subject", ["", 5])
def test_a_subject_that_is_no_name_is_refused(subject: Any) -> None:
    with pytest.raises(TopologyError, match=f"subject is {subject!r}, expected a name in the registry"):
        SchemaRegistry("mock://of-this-test-no-name").avro(schema("User", "id"), subject=subject)
