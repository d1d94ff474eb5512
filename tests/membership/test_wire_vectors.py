"""Every line of the wire vectors, byte for byte."""

import gzip
import json
from pathlib import Path

import pytest

from tidemill.membership.wire import decode_assignment, encode_assignment
from tidemill.replay.wire import replay_wire

VECTORS = Path(__file__).parents[1] / "vectors"


def _lines():
    with gzip.open(VECTORS / "wire.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


LINES = _lines()


@pytest.mark.parametrize("kind", ["SubscriptionInfo", "AssignmentInfo", "SubscriptionInfoDecode"])
def test_every_line_is_encoded_to_kafkas_bytes_and_read_back_as_kafka_does(kind):
    lines = [line for line in LINES if line["type"] == kind]
    assert lines
    answers = {"hex", "decoded"} if kind != "SubscriptionInfoDecode" else {"decoded"}
    for line in lines:
        given = {key: value for key, value in line.items() if key not in answers}
        assert replay_wire(given) == {"hex": line["hex"], "decoded": line["decoded"]}, line["id"]


def test_every_decoded_assignment_holds_the_hosts_and_standbys_that_were_written():
    versions = set()
    for line in LINES:
        if line["type"] != "AssignmentInfo":
            continue
        info = decode_assignment(bytes.fromhex(line["hex"]))
        versions.add(info.version)
        assert {str(task): [list(p) for p in parts] for task, parts in info.standby_tasks.items()} == dict(
            line["standby_tasks"]
        )
        for first, field in ((2, "partitions_by_host"), (6, "standby_partitions_by_host")):
            written = line[field] if info.version >= first else []
            read = [[host, port, [list(p) for p in parts]] for (host, port), parts in getattr(info, field).items()]
            assert read == written, line["id"]
        assert encode_assignment(info).hex() == line["hex"], line["id"]
    assert versions == set(range(1, 12))


def test_a_line_that_no_version_can_carry_is_answered_with_an_error():
    line = {**next(line for line in LINES if line["type"] == "SubscriptionInfo"), "version": 12}
    assert "version" in replay_wire(line)["error"]
