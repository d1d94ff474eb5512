"""Groups of plain consumers as processes, and what their logs tell: what was processed, or processed twice, or not committed.

    group = ConsumerGroup(scene, "my-topic", CommitStyle.SYNC, True, "name"); a = group.start("a"); a.leave(); group.end()

Every wait has a limit; nothing outlives ``end``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from instances import ExperimentError, Scene, until
from plain_consumer import CommitStyle, ConsumerSettings

_PROGRAM = Path(__file__).parent / "plain_consumer.py"
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a consumer's log."""

    at_s: float
    kind: str
    rest: str


@dataclass(frozen=True, slots=True)
class Processed:
    at_s: float
    partition: int
    offset: int

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


class ConsumerLog:
    """What one consumer has written (see ``plain_consumer``); read anew at each question."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def lines(self) -> Iterator[Line]:
        if not self.file.exists():
            return
        for line in self.file.read_text().splitlines():
            at_s, kind, *rest = line.split(" ", 2)
            yield Line(float(at_s), kind, rest[0] if rest else "")

    def first(self, kind: str, since_s: float = 0.0) -> Line | None:
        return next((line for line in self.lines if line.kind == kind and line.at_s >= since_s), None)

    @property
    def has_partitions(self) -> bool:
        """It was given some, at least once."""
        return any(line.kind == "A" and not line.rest.endswith("-") for line in self.lines)

    @property
    def processed(self) -> list[Processed]:
        return [Processed(line.at_s, *map(int, line.rest.split())) for line in self.lines if line.kind == "R"]

    @property
    def committed(self) -> dict[int, int]:
        """By partition, as far as it knew."""
        pairs = (pair.split(":") for line in self.lines if line.kind == "C" for pair in line.rest.split(","))
        return {int(partition): int(offset) for partition, offset in pairs}

    @property
    def uncommitted(self) -> int:
        """Records that it has processed and whose commit was not answered."""
        committed = self.committed
        return len({r.place for r in self.processed if r.offset >= committed.get(r.partition, 0)})


def repeated(logs: Sequence[ConsumerLog], since_s: float, until_s: float, of: ConsumerLog | None = None) -> int:
    """Times that a record was processed again between these moments; only records that ``of`` had processed, if given."""
    concerned = None if of is None else {record.place for record in of.processed}
    seen: set[tuple[int, int]] = set()
    again = 0
    for record in sorted((r for log in logs for r in log.processed), key=lambda r: r.at_s):
        if record.place in seen and since_s <= record.at_s < until_s:
            again += concerned is None or record.place in concerned
        seen.add(record.place)
    return again


def missing(logs: Sequence[ConsumerLog], ends: Mapping[int, int]) -> int:
    """Records before ``ends`` (by partition) that nobody has processed."""
    done = {r.place for log in logs for r in log.processed if r.offset < ends[r.partition]}
    return sum(ends.values()) - len(done)


class ConsumerProcess:
    """One consumer, from its start to its end."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings, self.log = settings, ConsumerLog(Path(settings.log))
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), json.dumps(dataclasses.asdict(settings))],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip

    def leave(self) -> None:
        """Asks it to close in good order."""
        self._order("leave")

    def crash(self) -> None:
        """Asks for its SIGKILL half-way through the records of a poll."""
        self._order("crash")

    def wait_ended(self) -> None:
        try:
            self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ExperimentError(f"{self.settings.name} did not end within {_LIMIT_S:.0f} s; {self.problem()}") from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def check(self) -> None:
        """ExperimentError if it has ended."""
        if self._process.poll() is not None:
            raise ExperimentError(f"consumer {self.settings.name} of {self.settings.group} has ended: {self.problem()}")

    def problem(self) -> str:
        return self._errors.read_text(errors="replace")[-1500:] or "it said nothing"

    @property
    def _errors(self) -> Path:
        return self.log.file.with_suffix(".err")

    def _order(self, order: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()


@dataclass
class ConsumerGroup:
    """Consumers of one topic in one group; ``kept`` holds those that have ended, too."""

    scene: Scene
    topic: str
    style: CommitStyle
    eager: bool
    name: str
    kept: list[ConsumerProcess] = field(default_factory=list)

    def start(self, name: str, **settings: object) -> ConsumerProcess:
        known = ConsumerSettings(
            servers=self.scene.servers,
            topic=self.topic,
            group=self.name,
            name=name,
            log=str(self.scene.folder / f"{self.name}-{name}.log"),
            style=self.style.name,
            eager=self.eager,
        )
        consumer = ConsumerProcess(dataclasses.replace(known, **settings))  # type: ignore[arg-type]
        self.kept.append(consumer)
        return consumer

    def __getitem__(self, name: str) -> ConsumerProcess:
        return next(consumer for consumer in self.kept if consumer.settings.name == name)

    @property
    def logs(self) -> list[ConsumerLog]:
        return [consumer.log for consumer in self.kept]

    def wait_assigned(self, *names: str) -> None:
        """Until each of these has partitions."""
        self._wait(lambda log: log.has_partitions, names, "partitions")

    def wait_processing(self, *names: str, since_s: float = 0.0) -> None:
        """Until each of these has processed a record since then."""
        self._wait(lambda log: log.first("R", since_s) is not None, names, "a record")

    def _wait(self, claim: Callable[[ConsumerLog], bool], names: Sequence[str], what: str) -> None:
        def holds() -> bool:
            for name in names:
                self[name].check()
            return all(claim(self[name].log) for name in names)

        until(holds, f"{what} for {', '.join(names)} of {self.name}", _LIMIT_S)

    def end(self) -> None:
        for consumer in self.kept:
            consumer.kill()
