"""The figures of a run as tables for people."""

from __future__ import annotations

from catch_up import CatchUp
from conditions import Conditions
from instance_kill import InstanceKill
from latency import Latency
from output_topic import Differences
from rich.table import Table
from targets import Target

_FEW_PROCESSES = 8


def catch_up_table(results: list[CatchUp], lines: int, threads: int) -> Table:
    table = _table(
        f"(a) catch-up of {lines:,} lines, {threads} threads",
        ["words/s", "us/word", "2nd half", "us/word", "since query", "first out s", "PSS MiB", "broker us/word", "counts"],
    )
    for result in results:
        table.add_row(
            result.system,
            f"{result.words_per_s:,.0f}",
            f"{result.cpu_us_per_word:.2f}",
            f"{result.half_words_per_s:,.0f}",
            f"{result.half_cpu_us_per_word:.2f}",
            "" if result.started_words_per_s is None else f"{result.started_words_per_s:,.0f}",
            f"{result.first_output_s:.1f}",
            f"{result.peak_pss_mib:.0f}",
            f"{result.broker_cpu_s / lines / 8 * 1e6:.2f}",
            _right(result.wrong),
            *_conditions(result.conditions),
        )
    return table


def latency_table(results: list[Latency], threads: int) -> Table:
    rate = f"{results[0].lines_per_s:,} lines/s for {results[0].seconds:.0f} s"
    table = _table(
        f"(b) latency at {rate}, {threads} threads, and (c) start",
        ["p50 ms", "p99 ms", "max ms", "samples", "missing", "cores", "broker cores", "PSS MiB", "(c) start s", "counts"],
    )
    for result in results:
        table.add_row(
            result.system,
            f"{result.p50_ms:.0f}",
            f"{result.p99_ms:.0f}",
            f"{result.max_ms:.0f}",
            str(result.samples),
            str(result.missing),
            f"{result.cores:.2f}",
            f"{result.broker_cores:.2f}",
            f"{result.peak_pss_mib:.0f}",
            f"{result.first_output_s:.1f}",
            _right(result.wrong),
            *_conditions(result.conditions),
        )
    return table


def instance_kill_table(results: list[InstanceKill]) -> Table:
    table = _table(
        f"(d) kill -9 of one of two instances at {results[0].lines_per_s:,} lines/s, "
        f"session timeout {results[0].session_timeout_s:g} s (a system without a group: killed and started again)",
        ["longest gap s", "before the kill s", "words over", "words under", "PSS MiB, all"],
    )
    for result in results:
        table.add_row(
            result.system,
            f"{result.gap_s:.1f}",
            f"{result.gap_before_s:.1f}",
            f"{result.wrong.over:,}",
            f"{result.wrong.under:,}",
            f"{result.peak_pss_mib:.0f}",
            *_conditions(result.conditions),
        )
    return table


def process_table(results: list[CatchUp | Latency]) -> Table:
    table = Table("system", "part", "CPU seconds by process", title="where the CPU time went", title_justify="left")
    for result in results:
        used = [f"{kind} {seconds:.1f}" for kind, seconds in result.cpu_by_process if seconds >= 0.1]
        table.add_row(result.system, "a" if isinstance(result, CatchUp) else "b", ", ".join(used[:_FEW_PROCESSES]))
    return table


def target_table(targets: list[Target]) -> Table:
    table = Table("part", "target", "wanted", "reached", "", title="Tidemill's targets", title_justify="left")
    for target in targets:
        verdict = "-" if target.is_met is None else "met" if target.is_met else "not met"
        table.add_row(target.part, target.what, target.wanted, target.reached, verdict)
    return table


def _table(title: str, columns: list[str]) -> Table:
    table = Table("", title=title, title_justify="left")
    for column in [*columns, "load before", "other cores"]:
        table.add_column(column, justify="right")
    return table


def _conditions(found: Conditions) -> tuple[str, str]:
    return f"{found.load:.1f}", f"{found.other_cores:.2f}"


def _right(wrong: Differences) -> str:
    return f"{wrong.over:,} over, {wrong.under:,} under" if wrong else "right"
