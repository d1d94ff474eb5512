"""What Tidemill is measured by: each target, and what was reached in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from catch_up import CatchUp
from instance_kill import InstanceKill
from latency import Latency
from systems import KAFKA_STREAMS, STRUCTURED_STREAMING, TIDEMILL

_MEMORY_MIB = 1536


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """By the system's name."""

    catch_up: dict[str, CatchUp]
    latency: dict[str, Latency]
    instance_kill: dict[str, InstanceKill]

    def wrong(self) -> list[str]:
        """Which runs ended with wrong counts."""
        parts: dict[str, Mapping[str, CatchUp | Latency | InstanceKill]] = {
            "a": self.catch_up, "b": self.latency, "d": self.instance_kill,
        }  # fmt: skip
        return [
            f"{name}, part {part}: {result.wrong.over} words too many, {result.wrong.under} too few; {result.wrong.example}"
            for part, results in parts.items()
            for name, result in results.items()
            if result.wrong
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``is_met``: None if the figure that it is compared with was not measured."""

    part: str
    what: str
    wanted: str
    reached: str
    is_met: bool | None


def judged(results: Results) -> list[Target]:
    return [*_catch_up(results), *_latency(results), *_instance_kill(results)]


def _catch_up(results: Results) -> Iterator[Target]:
    ours = results.catch_up.get(TIDEMILL.name)
    if ours is None:
        return
    streams, structured = (results.catch_up.get(system.name) for system in (KAFKA_STREAMS, STRUCTURED_STREAMING))
    if streams is not None:
        yield _ratio("whole run", ours.words_per_s, "Kafka Streams", streams.words_per_s, 2.5)
        yield _ratio("second half", ours.half_words_per_s, "Kafka Streams, second half", streams.half_words_per_s, 4.0)
    if structured is not None:
        yield _ratio("whole run", ours.words_per_s, "Structured Streaming", structured.words_per_s, 1.0)
        since = structured.started_words_per_s or structured.words_per_s
        yield _ratio("second half", ours.half_words_per_s, "Structured Streaming since its query began", since, 1.3)
    yield _at_most("a", "CPU per word, second half", ours.half_cpu_us_per_word, 0.9, "us", "{:.2f}")
    yield _at_most("a", "memory of the process tree", ours.peak_pss_mib, _MEMORY_MIB, "MiB", "{:.0f}")
    yield _exact("a", ours.wrong.over, ours.wrong.under)


def _latency(results: Results) -> Iterator[Target]:
    ours = results.latency.get(TIDEMILL.name)
    if ours is None:
        return
    yield _at_most("b", "latency p50", ours.p50_ms, 120, "ms", "{:.0f}")
    yield _at_most("b", "latency p99", ours.p99_ms, 200, "ms", "{:.0f}")
    yield _at_most("b", "cores", ours.cores, 1.0, "", "{:.2f}")
    yield _at_most("b", "memory of the process tree", ours.peak_pss_mib, _MEMORY_MIB, "MiB", "{:.0f}")
    yield _exact("b", ours.wrong.over, ours.wrong.under)
    yield _at_most("c", "start to first output", ours.first_output_s, 8, "s", "{:.1f}")


def _instance_kill(results: Results) -> Iterator[Target]:
    ours = results.instance_kill.get(TIDEMILL.name)
    if ours is None:
        return
    yield _at_most("d", "longest gap, session timeout + 1.5 s", ours.gap_s, ours.session_timeout_s + 1.5, "s", "{:.1f}")
    yield _exact("d", ours.wrong.over, ours.wrong.under)


def _ratio(what: str, ours: float, other: str, theirs: float, factor: float) -> Target:
    return Target(
        part="a",
        what=f"{what} against {other}",
        wanted=f"at least {factor:g} x {theirs:,.0f} words/s",
        reached=f"{ours:,.0f} words/s = {ours / theirs:.2f} x",
        is_met=ours >= factor * theirs,
    )


def _at_most(part: str, what: str, reached: float, most: float, unit: str, form: str) -> Target:
    return Target(
        part=part,
        what=what,
        wanted=f"under {most:g} {unit}".rstrip(),
        reached=f"{form.format(reached)} {unit}".rstrip(),
        is_met=reached < most,
    )


def _exact(part: str, over: int, under: int) -> Target:
    return Target(
        part=part,
        what="every count equals numpy's",
        wanted="0 words over, 0 under",
        reached=f"{over:,} over, {under:,} under",
        is_met=not over and not under,
    )
