"""Every round of the recorded runs of Kafka's whole StreamsPartitionAssignor."""

import gzip
import json
import os
from pathlib import Path

import pytest

from tidemill.errors import AssignmentError
from tidemill.replay.end_to_end import replay_e2e, replay_rounds, result_json

VECTORS = Path(__file__).parents[1] / "vectors"


def _records(name):
    opened = gzip.open if name.endswith(".gz") else open
    with opened(VECTORS / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


LINES = _records("e2e_assignor.jsonl.gz")
TOPOLOGIES = {
    topology["id"]: topology
    for topology in (*_records("topologies.jsonl.gz"), *_records("topologies_of_e2e.jsonl"))
}


EVERY = 1 if os.environ.get("TIDEMILL_ALL_VECTORS") == "1" else 3


@pytest.mark.parametrize("topology", sorted({line["topology"] for line in LINES}))
def test_every_round_is_answered_as_kafkas_leader_does(topology):
    lines = [line for line in LINES if line["topology"] == topology][::EVERY]
    assert lines
    for line in lines:
        for number, (round_, (answer, topics)) in enumerate(
            zip(line["rounds"], replay_rounds(line, TOPOLOGIES), strict=True)
        ):
            where = f"{line['id']} round {number}"
            assert result_json(answer) == round_["expected"], where
            assert answer.is_stable == round_["stable"], where
            assert {topic.name: topic.partitions for topic in topics} == round_["internal_topic_partitions"], where
            for field in ("partitions_by_host", "standby_partitions_by_host"):
                assert {_hosts(answer, field)} == {json.dumps(round_[field], sort_keys=True)}, where


def _hosts(answer, field):
    """The same for all members."""
    told = {
        json.dumps({str(host): list(map(str, parts)) for host, parts in getattr(given.info, field).items()}, sort_keys=True)
        for given in answer.members.values()
    }
    assert len(told) == 1
    return told.pop()


def test_a_replay_reads_no_answer_of_the_line():
    line = next(line for line in LINES if len(line["rounds"]) > 3)
    answers = ("expected", "stable", "internal_topic_partitions", "partitions_by_host", "standby_partitions_by_host")
    asked = {**line, "rounds": [{k: v for k, v in r.items() if k not in answers} for r in line["rounds"]]}
    assert replay_e2e(asked, TOPOLOGIES) == [round_["expected"] for round_ in line["rounds"]]


def test_a_line_whose_topology_is_not_given_is_refused_by_name():
    with pytest.raises(AssignmentError, match=r"topology pipe/all .* 1 topologies were given"):
        replay_e2e({**LINES[0], "topology": "pipe/all"}, {"other": {}})
