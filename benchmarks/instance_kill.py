"""Part (d): kill -9 of one of two instances under a steady load.

The whole process tree of the second instance is killed at once. A gap is the time from one count's arrival to the next in the
same output partition; the longest one that goes on at the kill or begins after it counts. The kill comes when counts have arrived
from every partition, steadily, for some seconds. A system whose instances don't share work is killed
and started again at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench_broker import Feed, fresh_broker
from conditions import Conditions, settled
from confluent_kafka.admin import AdminClient
from output_topic import PARTITIONS, Arrival, Differences, OutputTopic
from process_watch import ProcessWatch
from systems import SESSION_TIMEOUT_MS, Instance, Start, System
from zipf_lines import WORDS_PER_LINE, zipf_lines

_START_LIMIT_S = 240.0
_BEFORE_S, _AFTER_S = 15, 45
_STEADY_S = 2.0
_STEADY_LIMIT_S = 120
_DRAIN_LIMIT_S = 60.0
_APPLICATION = "instance-kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceKill:
    """``over``, ``under``: words counted too often, or not at all, in the end. Gaps in seconds."""

    system: str
    lines_per_s: int
    session_timeout_s: float
    gap_s: float
    gap_before_s: float
    peak_pss_mib: float
    wrong: Differences
    conditions: Conditions


def instance_kill(system: System, rate: int, folder: Path) -> InstanceKill:
    lines = zipf_lines(rate * (_STEADY_LIMIT_S + _AFTER_S), seed=3)
    with fresh_broker() as broker:
        servers = broker.bootstrap_servers
        output = OutputTopic(servers, system.read_count)
        load = settled()
        instances = [Instance(system, _start(servers, folder, number)) for number in range(2 if system.shares_work else 1)]
        try:
            with ProcessWatch([broker.pid]) as others, ProcessWatch([instance.pid for instance in instances]) as watch:
                _until_shared(servers, system, instances)
                feed = Feed(servers, lines)
                gaps = _Gaps()
                while feed.sent < rate * _STEADY_LIMIT_S:
                    _feed(feed, output, gaps, rate, feed.sent + rate)
                    if feed.sent >= rate * _BEFORE_S and gaps.longest_since(time.time() - 5) < _STEADY_S:
                        break
                gap_before_s, killed_s = gaps.longest_since(time.time() - 5), time.time()
                instances[-1].kill()
                if not system.shares_work:
                    instances.append(Instance(system, _start(servers, folder, 0)))
                    watch.add(instances[-1].pid)
                _feed(feed, output, gaps, rate, feed.sent + rate * _AFTER_S)
                ended_s = time.time()
                _drain(output, feed.sent * WORDS_PER_LINE, gaps)
            conditions = load.during(watch, [others])
        finally:
            for instance in instances:
                instance.stop()
        gap_s = gaps.longest_since(killed_s, ended_s)
        wrong = output.differences(lines.counts(feed.sent))
        output.close()
    return InstanceKill(
        system=system.name,
        lines_per_s=rate,
        session_timeout_s=SESSION_TIMEOUT_MS / 1e3,
        gap_s=gap_s,
        gap_before_s=gap_before_s,
        peak_pss_mib=watch.peak_pss_bytes / 2**20,
        wrong=wrong,
        conditions=conditions,
    )


class _Gaps:
    """When counts arrived, per output partition."""

    def __init__(self) -> None:
        self.began_s = time.time()
        self._arrived: dict[int, list[float]] = {number: [self.began_s] for number in range(PARTITIONS)}

    def note(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            times = self._arrived[arrival.partition]
            if times[-1] != arrival.arrived_s:
                times.append(arrival.arrived_s)

    def longest_since(self, since_s: float, until_s: float | None = None) -> float:
        """The longest silence of any partition that ends after ``since_s``, or has not ended, and begins before ``until_s``."""
        now = time.time()
        return max(
            later - earlier
            for times in self._arrived.values()
            for earlier, later in zip(times, [*times[1:], now if until_s is None else max(until_s, times[-1])], strict=True)
            if later > since_s and (until_s is None or earlier < until_s)
        )


def _start(servers: str, folder: Path, number: int) -> Start:
    return Start(servers=servers, application_id=_APPLICATION, folder=folder / f"instance-{number}", threads=1)


def _until_shared(servers: str, system: System, instances: list[Instance]) -> None:
    """Until every member of the group has partitions; for a system without a group, until its query has begun."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.time() + _START_LIMIT_S
    while time.time() < deadline:
        for instance in instances:
            instance.check()
        if system.shares_work:
            found = admin.describe_consumer_groups([_APPLICATION])[_APPLICATION].result()
            held = [len(member.assignment.topic_partitions) for member in found.members]
            if len(held) == len(instances) and all(held) and found.state.name == "STABLE":
                break
        elif "query started" in instances[0].log.read_text(errors="replace"):
            break
        time.sleep(0.2)
    else:
        raise RuntimeError(f"the instances did not share the work within {_START_LIMIT_S:.0f} s; see {instances[0].log}")
    time.sleep(3.0)


def _feed(feed: Feed, output: OutputTopic, gaps: _Gaps, rate: int, up_to: int) -> None:
    began, first = time.time(), feed.sent
    while feed.sent < up_to:
        feed.send(min(up_to, first + int((time.time() - began) * rate)))
        gaps.note(output.take(0.005))


def _drain(output: OutputTopic, words: int, gaps: _Gaps) -> None:
    deadline = time.time() + _DRAIN_LIMIT_S
    while output.total < words and time.time() < deadline:
        gaps.note(output.take(0.05))
    for _ in range(20):  # what would come on top
        gaps.note(output.take(0.05))
