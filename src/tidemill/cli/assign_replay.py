"""`tidemill assign replay`: recompute recorded answers of Kafka's assignors and compare, or print.

Decides how files become records (JSON Lines, gzipped or not; the WordCount experiment is one document), which other file
a record needs, and what is printed. Which assignor answers, and how, is decided in `tidemill.replay.assignors`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from tidemill.cli.files import read_text
from tidemill.documents import Document
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.assignment.kip441.high_availability import Compatibility
    from tidemill.replay.record_kinds import Kind

UNUSABLE = (KeyError, IndexError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, AssertionError)
"""Errors of a record without the fields of its kind, or with other values in them."""
SHOWN_DIFFERENCES = 5
SHOWN_CHARACTERS = 600

Record = Document
Choice = TypeVar("Choice", bound=Enum)


def replay(
    file: Path = typer.Argument(help="Recorded answers: JSON Lines, optionally gzipped."),
    print_results: bool = typer.Option(False, "--print", help="Print each result as a line of JSON instead of comparing."),
    kind: str | None = typer.Option(
        None, help="Kind of records whose fields and id don't tell it: ha, convergence, sticky, public_sticky, "
        "fallback, rack, thread, e2e, wire or experiment."
    ),
    compatibility: str | None = typer.Option(
        None, help="The version of Kafka whose answers are recomputed: 4.3, or 2.7 (as for kafka272 files)."
    ),
    inputs: Path | None = typer.Option(
        None, help="File with the inputs, joined by id, if FILE has only answers; by default the file in its folder whose "
        "name is FILE's without kafka272_."
    ),
    topologies: list[Path] = typer.Option(
        [], help="Topologies of e2e records (may be repeated); by default topologies.jsonl.gz in the folder of "
        "FILE."
    ),
    sorted_containers: bool = typer.Option(
        False, "--sorted-containers", help="Sticky and fallback: inputs in sorted order instead of Java's hash order."
    ),
) -> None:
    """Recompute recorded assignments: N of M equal, and the first differences. Exit code 1 if any differs."""
    run = _Replay(
        file=file,
        kind=kind,
        compatibility=compatibility,
        inputs_file=inputs,
        topologies_files=topologies,
        sorted_containers=sorted_containers,
    )
    if print_results:
        for name, result, _ in run.results():
            typer.echo(json.dumps({"id": name, "result": result}, ensure_ascii=False, separators=(",", ":")))
    elif _report(run) > 0:
        raise typer.Exit(1)


def _report(run: _Replay) -> int:
    """Print the comparison; the number of results that differ."""
    from tidemill.replay.recorded_answers import first_difference

    compared = 0
    left_out: Counter[str] = Counter()
    differences: list[str] = []
    for name, result, answer in run.results():
        if answer is None:
            left_out["no answer to compare with; --print shows the results"] += 1
            continue
        if "rounds" in answer and "error" in result:
            left_out[result["error"]] += 1
            continue
        compared += 1
        difference = first_difference(answer, result)
        if difference is not None:
            differences.append(f"{name}: {difference}")
    if compared == 0:
        reasons = "; ".join(left_out) or "it is empty"
        raise ConfigError(f"{run.file}: none of its {left_out.total()} records can be compared: {reasons}")
    typer.echo(f"{compared - len(differences)} of {compared} equal")
    for reason, count in left_out.items():
        typer.echo(f"  {count} not compared: {reason}")
    for difference in differences[:SHOWN_DIFFERENCES]:
        typer.echo(f"  {difference if len(difference) <= SHOWN_CHARACTERS else difference[:SHOWN_CHARACTERS] + ' ...'}")
    if len(differences) > SHOWN_DIFFERENCES:
        typer.echo(f"  ... and {len(differences) - SHOWN_DIFFERENCES} more")
    return len(differences)


@dataclass(kw_only=True)
class _Replay:
    """One run over one file; other files are read when a record first needs them."""

    file: Path
    kind: str | None
    compatibility: str | None
    inputs_file: Path | None
    topologies_files: list[Path]
    sorted_containers: bool

    def results(self) -> Iterator[tuple[str, Record, Record | None]]:
        """(id, result, recorded answer or None) of each record."""
        from tidemill.replay.record_kinds import Kind, kind_of
        from tidemill.replay.recorded_answers import recorded_answer

        otherwise = None if self.kind is None else one_of(Kind, self.kind, "--kind")
        for line_number, record in read_records(self.file):
            name = str(record.get("id", f"line {line_number}"))
            try:
                joined, compatibility = self._with_inputs(record, name)
                found = kind_of(joined, otherwise)
                result = self._result(joined, found, compatibility)
                answer = recorded_answer(joined, found, sorted_containers=self.sorted_containers)
            except UNUSABLE as error:
                raise ConfigError(
                    f"{self.file}, line {line_number} ({name}): not a usable record: {type(error).__name__} {error}; "
                    "expected the fields that recorded answers of its kind have"
                ) from error
            yield name, result, answer

    def _with_inputs(self, record: Record, name: str) -> tuple[Record, Compatibility]:
        """A record of answers only is completed from the inputs, and is 2.7's unless the caller says otherwise."""
        from tidemill.assignment.kip441.high_availability import Compatibility

        said = None if self.compatibility is None else one_of(Compatibility, self.compatibility, "--compatibility")
        if record.keys() - {"id", "same_as_4.3.0", "expected", "error"}:
            return record, said or Compatibility.KAFKA_4_3
        found = self._inputs.get(name)
        if found is None:
            raise ConfigError(f"{self.file}: no inputs for record {name}; give the file that has them with --inputs")
        answers: Record = {key: record[key] for key in ("expected", "error") if key in record}
        without: Record = {key: value for key, value in found.items() if not key.startswith("expected")}
        return {**without, **answers}, said or Compatibility.KAFKA_2_7

    def _result(self, record: Record, kind: Kind, compatibility: Compatibility) -> Record:
        from tidemill.assignment.kip441.high_availability import Compatibility
        from tidemill.replay.assignors import ReplayOptions, replayed
        from tidemill.replay.record_kinds import Kind

        if compatibility is Compatibility.KAFKA_2_7 and kind in (Kind.E2E, Kind.WIRE, Kind.PUBLIC_STICKY, Kind.THREAD):
            raise ConfigError(f"--compatibility 2.7: records of kind {kind.value} have no form of 2.7; leave it out")
        if kind is Kind.WIRE:
            from tidemill.replay.wire import replay_wire

            return replay_wire(record)
        if kind is Kind.E2E:
            from tidemill.replay.end_to_end import replay_e2e

            if record["topology"] not in self._topologies:
                return {"error": f"the topology {record['topology']} is in no file of topologies; see --topologies"}
            return {"rounds": replay_e2e(record, self._topologies)}
        return replayed(
            record, kind, ReplayOptions(compatibility=compatibility, sorted_containers=self.sorted_containers)
        )

    @cached_property
    def _inputs(self) -> dict[str, Record]:
        other = self.file.with_name(self.file.name.removeprefix("kafka272_"))
        file = self.inputs_file or (other if other.name != self.file.name else None)
        if file is None or not file.exists():
            raise ConfigError(
                f"{self.file}: records with an answer but no inputs; give the file that has them with --inputs"
                + ("" if file is None else f" ({file} does not exist)")
            )
        return {str(record.get("id")): record for _, record in read_records(file)}

    @cached_property
    def _topologies(self) -> dict[str, Record]:
        usual = [self.file.with_name(name) for name in ("topologies.jsonl.gz", "topologies.jsonl")]
        files = self.topologies_files or [path for path in usual if path.exists()][:1]
        if not files:
            raise ConfigError(
                f"{self.file}: records of whole rebalances name topologies, but there is no {usual[0]}; "
                "give their file with --topologies"
            )
        return {str(record.get("id")): record for file in files for _, record in read_records(file)}


def read_records(file: Path) -> Iterator[tuple[int, Record]]:
    """(line number, record); a document of several lines is the WordCount experiment."""
    from tidemill.replay.record_kinds import experiment_records

    lines = read_text(file, expected="a file of recorded answers, JSON Lines").split("\n")  # text may have others
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            record = _document(lines) if number == 1 else None
            if record is None:
                raise ConfigError(f"{file}, line {number}: not JSON ({error}); expected one JSON object a line") from None
        if not isinstance(record, dict):
            raise ConfigError(f"{file}, line {number}: a JSON {type(record).__name__}; expected an object")
        if "same_inputs" in record:
            yield from enumerate(experiment_records(record), 1)
            return
        yield number, record


def _document(lines: list[str]) -> object:
    try:
        return json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None


def one_of(choices: type[Choice], text: str, option: str) -> Choice:
    """The member of this value; ConfigError that names the option."""
    try:
        return choices(text)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise ConfigError(f"{option} {text}: expected one of {names}") from None
