"""Parts (b) and (c): how long a count takes at a steady rate, and how long a start takes.

Some lines wait when the process is started; the first count that arrives ends (c). Then lines are sent at the rate; the
first seconds are not counted, so that each system has compiled its code. A line's timestamp is the moment of its sending,
every tenth line holds a word of its own, and its latency ends when that word's count is here, read read_committed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_broker import Feed, fresh_broker
from conditions import Conditions, settled
from output_topic import Arrival, Differences, OutputTopic
from process_watch import ProcessWatch
from systems import Instance, Start, System
from zipf_lines import PROBE_EVERY, probe, zipf_lines

FIRST_LINES = 200
_WARM_UP_S = 20
_START_LIMIT_S = 300.0
_DRAIN_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    system: str
    first_output_s: float
    lines_per_s: int
    seconds: float
    samples: int
    missing: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    cores: float
    broker_cores: float
    peak_pss_mib: float
    cpu_by_process: list[tuple[str, float]]
    wrong: Differences
    conditions: Conditions


def latency(
    system: System, rate: int, seconds: int, threads: int, folder: Path, settings: Mapping[str, str] | None = None
) -> Latency:
    lines = zipf_lines(FIRST_LINES + rate * (_WARM_UP_S + seconds), seed=2, probes=True)
    with fresh_broker() as broker:
        output = OutputTopic(broker.bootstrap_servers, system.read_count)
        feed = Feed(broker.bootstrap_servers, lines)
        feed.send(FIRST_LINES)
        feed.flush()
        load = settled()
        began = time.time()
        start = Start(
            servers=broker.bootstrap_servers, application_id="latency", folder=folder, threads=threads, settings=settings or {}
        )
        instance = Instance(system, start)
        try:
            with ProcessWatch([broker.pid]) as broker_watch, ProcessWatch([instance.pid]) as watch:
                arrivals = first_output(output, instance)
                first_output_s = time.time() - began
                measured_from, measured_to = _feed_at_rate(feed, output, rate, len(lines), arrivals)
                _drain(output, lines.words, arrivals)
            conditions = load.during(watch, [broker_watch])
        finally:
            instance.stop()
        wrong = output.differences(lines.counts())
        output.close()
    took_ms, missing = _latencies(arrivals, feed.sent_at_ms, measured_from)
    span = measured_to - measured_from
    p50, p99, most = (float(np.percentile(took_ms, q)) for q in (50, 99, 100)) if len(took_ms) else (float("nan"),) * 3
    return Latency(
        system=system.name,
        first_output_s=first_output_s,
        lines_per_s=rate,
        seconds=span,
        samples=len(took_ms),
        missing=missing,
        p50_ms=p50,
        p99_ms=p99,
        max_ms=most,
        cores=(watch.cpu_s_at(measured_to) - watch.cpu_s_at(measured_from)) / span,
        broker_cores=(broker_watch.cpu_s_at(measured_to) - broker_watch.cpu_s_at(measured_from)) / span,
        peak_pss_mib=watch.peak_pss_bytes / 2**20,
        cpu_by_process=watch.by_process(),
        wrong=wrong,
        conditions=conditions,
    )


def first_output(output: OutputTopic, instance: Instance) -> list[Arrival]:
    """The first counts; RuntimeError if none come."""
    deadline = time.time() + _START_LIMIT_S
    while time.time() < deadline:
        instance.check()
        arrivals = output.take(0.02)
        if arrivals:
            return arrivals
    raise RuntimeError(f"no output within {_START_LIMIT_S:.0f} s; see {instance.log}")


def _feed_at_rate(feed: Feed, output: OutputTopic, rate: int, lines: int, arrivals: list[Arrival]) -> tuple[float, float]:
    """Sends the lines; from when to when they were counted."""
    began = time.time()
    while feed.sent < lines:
        due = FIRST_LINES + int((time.time() - began) * rate)
        feed.send(min(lines, due))
        arrivals += output.take(0.002)
    return began + _WARM_UP_S, time.time()


def _drain(output: OutputTopic, words: int, arrivals: list[Arrival]) -> None:
    deadline = time.time() + _DRAIN_LIMIT_S
    while output.total < words and time.time() < deadline:
        arrivals += output.take(0.05)


def _latencies(arrivals: list[Arrival], sent_at_ms: list[int], since_s: float) -> tuple[np.ndarray, int]:
    """Of the lines sent since then: milliseconds to the count's arrival, and how many counts never came."""
    arrived = {arrival.word: arrival.arrived_s for arrival in reversed(arrivals) if arrival.word.startswith(b"probe")}
    sent = [
        (sent_at_ms[number], arrived.get(probe(number).encode()))
        for number in range(0, len(sent_at_ms), PROBE_EVERY)
        if sent_at_ms[number] >= since_s * 1e3
    ]
    took = [at * 1e3 - sent_ms for sent_ms, at in sent if at is not None]
    return np.array(took), len(sent) - len(took)
