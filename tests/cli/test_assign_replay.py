"""`tidemill assign replay` on files: what is printed, the exit code, and what is said of files that can't be used."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemill.cli.assign import app
from tidemill.cli.assign_replay import read_records
from tidemill.errors import ConfigError

VECTORS = Path(__file__).parent.parent / "vectors"


def run(*arguments):
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def output_of(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def error_of(*arguments):
    result = run(*arguments)
    assert isinstance(result.exception, ConfigError), result.output
    return str(result.exception)


def lines_of(name, count):
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line, _ in zip(file, range(count), strict=False)]


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    "name", ["ha_assignor", "convergence", "sticky_assignor", "public_sticky", "fallback_prior", "rack_aware", "wire"]
)
def test_recorded_lines_are_equal(name, tmp_path):
    assert output_of(write(tmp_path / "lines.jsonl", lines_of(name, 12))) == "12 of 12 equal\n"


def test_the_wordcount_experiment_is_answered_for_both_versions():
    assert output_of(VECTORS / "seed_experiment.json.gz") == "18 of 18 equal\n"


def test_the_wordcount_experiment_may_be_printed_over_many_lines(tmp_path):
    document = json.loads(gzip.decompress((VECTORS / "seed_experiment.json.gz").read_bytes()))
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps(document, indent=1))
    assert output_of(path) == "18 of 18 equal\n"


def test_answers_of_2_7_are_joined_with_inputs_by_id(tmp_path):
    answers = write(tmp_path / "answers.jsonl", lines_of("kafka272_sticky_assignor", 40))
    inputs = VECTORS / "sticky_assignor.jsonl.gz"
    assert output_of(answers, "--inputs", inputs) == "40 of 40 equal\n"
    assert run(answers, "--inputs", inputs, "--compatibility", "4.3").exit_code == 1
    assert "--inputs" in error_of(answers)


def test_inputs_beside_answers_of_2_7_are_found(tmp_path):
    write(tmp_path / "sticky_assignor.jsonl", lines_of("sticky_assignor", 10))
    answers = write(tmp_path / "kafka272_sticky_assignor.jsonl", lines_of("kafka272_sticky_assignor", 10))
    assert output_of(answers) == "10 of 10 equal\n"


def test_whole_rebalances_are_recomputed_with_the_topologies_beside_them(tmp_path):
    lines = [line for line in lines_of("e2e_assignor", 10) if line["topology"] in ("wordcount_demo/all", "pipe/all")]
    path = write(tmp_path / "e2e.jsonl", lines)
    assert "--topologies" in error_of(path)
    (tmp_path / "topologies.jsonl.gz").write_bytes((VECTORS / "topologies.jsonl.gz").read_bytes())
    assert output_of(path) == f"{len(lines)} of {len(lines)} equal\n"
    lines[0]["topology"] = "no/such"
    output = output_of(write(path, lines))
    assert f"{len(lines) - 1} of {len(lines) - 1} equal" in output
    assert "1 not compared: the topology no/such" in output


def test_a_difference_is_shown_and_gives_exit_code_1(tmp_path):
    lines = lines_of("ha_assignor", 9)
    for line in lines[2:]:
        line["expected"]["followup_needed"] = "perhaps"
    result = run(write(tmp_path / "lines.jsonl", lines))
    assert result.exit_code == 1
    first, second, *_, last = result.output.splitlines()
    assert first == "2 of 9 equal"
    assert second.startswith("  ha-s-2: followup_needed: recorded perhaps, result ")
    assert last == "  ... and 2 more"


def test_printed_results_have_the_shape_of_the_answers(tmp_path):
    for name, shape in (("ha_assignor", "expected"), ("public_sticky", "expected")):
        lines = lines_of(name, 5)
        inputs = [{key: value for key, value in line.items() if key != "expected"} for line in lines]
        printed = output_of(write(tmp_path / "lines.jsonl", inputs), "--print").splitlines()
        assert [json.loads(text) for text in printed] == [{"id": line["id"], "result": line[shape]} for line in lines]


def test_printed_threads_have_one_entry_a_stage(tmp_path):
    line = lines_of("thread_assignment", 1)[0]
    printed = json.loads(output_of(write(tmp_path / "lines.jsonl", [line]), "--print"))
    stages = [{"stage": stage["stage"], "assignment": stage["assignment"]} for stage in line["stages"]]
    assert printed == {"id": "thr-0", "result": {"stages": stages}}


def test_printed_convergence_has_one_answer_a_round(tmp_path):
    line = lines_of("convergence", 1)[0]
    printed = json.loads(output_of(write(tmp_path / "lines.jsonl", [line]), "--print"))
    assert printed["result"] == {"rounds": [round_["expected"] for round_ in line["rounds"]]}


def test_printed_wire_lines_have_bytes_and_what_they_decode_to(tmp_path):
    line = lines_of("wire", 1)[0]
    printed = json.loads(output_of(write(tmp_path / "lines.jsonl", [line]), "--print"))
    assert printed["result"] == {"hex": line["hex"], "decoded": line["decoded"]}


def test_sorted_containers_have_answers_of_their_own(tmp_path):
    path = write(tmp_path / "lines.jsonl", lines_of("fallback_prior", 30))
    assert output_of(path, "--sorted-containers") == "30 of 30 equal\n"


def test_a_kind_may_be_given_where_nothing_tells_it(tmp_path):
    lines = [{**line, "id": f"case{at}"} for at, line in enumerate(lines_of("fallback_prior", 5))]
    path = write(tmp_path / "lines.jsonl", lines)
    assert output_of(path, "--kind", "fallback") == "5 of 5 equal\n"
    assert "--kind" in error_of(path)
    assert "expected one of ha, convergence" in error_of(path, "--kind", "nonsense")


def test_unusable_files_are_refused_in_one_sentence(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert "can't be read" in error_of(path)
    path.write_text('{"id": "ha-1"\n')
    assert "line 1: not JSON" in error_of(path)
    path.write_text("[1]\n")
    assert "expected an object" in error_of(path)
    path.write_text('{"id": "ha-1", "configs": {}}\n')
    assert "line 1 (ha-1): not a usable record: KeyError 'tasks'" in error_of(path)
    path.write_text("")
    assert "none of its 0 records" in error_of(path)
    path.write_bytes(b"\x1f\x8b\x08\x00broken")
    assert "damaged gzip" in error_of(path)
    path.write_bytes(b"\xff\xfe{}")
    assert "not UTF-8" in error_of(path)
    write(path, [{key: value for key, value in line.items() if key != "expected"} for line in lines_of("ha_assignor", 2)])
    assert "none of its 2 records can be compared" in error_of(path)
    assert "expected one of 4.3, 2.7" in error_of(path, "--compatibility", "3.0")


def test_2_7_is_refused_for_what_has_no_form_of_2_7(tmp_path):
    path = write(tmp_path / "lines.jsonl", lines_of("thread_assignment", 1))
    assert "no form of 2.7" in error_of(path, "--compatibility", "2.7")


def test_a_name_may_have_characters_that_begin_a_line_elsewhere(tmp_path: Path) -> None:
    record = {"id": "one\u2028name\x85"}
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    assert list(read_records(file)) == [(1, record)]
