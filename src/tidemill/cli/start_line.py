"""One line that says what an instance does until its tasks run: the phase by name, how long it has taken, and those before it.

Decides the words, and how far a restore is: by the most offsets that were left since it began. ``tidemill run`` shows the line
on a terminal; which phase an instance is in is ``start_phases``'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidemill.runtime.observe.start_phases import PhaseTimes, StartPhase, StartPhases

if TYPE_CHECKING:
    from tidemill.runtime.instance.application import KafkaStreams
    from tidemill.task.progress import RestoreProgress

_DOES: Mapping[StartPhase, str] = {
    StartPhase.IMPORTS: "importing Spark and Kafka's clients",
    StartPhase.STATE_DIRECTORY: "claiming the state directory",
    StartPhase.TOPICS: "checking topics",
    StartPhase.SPARK: "starting Spark",
    StartPhase.PLAN: "building the plan",
    StartPhase.JOIN: "joining the group",
    StartPhase.RESTORE: "opening tasks",
}
_HELD_UP_S = 1.0
"""A rebalance that takes longer than that waits for other members."""
_BAR = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class StartView:
    """``group_wait_s``: time since the join that the group has not answered yet; None if no thread waits. ``most_left``: the most
    offsets that were missing since RESTORE began."""

    times: PhaseTimes = field(default_factory=PhaseTimes)
    now_s: float = 0.0
    group_wait_s: float | None = None
    restoring: RestoreProgress | None = None
    most_left: int = 0


def followed(before: StartView, now: StartView) -> StartView:
    """``now``, with what is remembered of the views before it."""
    left = 0 if now.restoring is None else now.restoring.offsets_left or 0
    is_same = before.times.now is now.times.now is StartPhase.RESTORE and before.times.since_s == now.times.since_s
    return replace(now, most_left=max(left, before.most_left if is_same else 0))


def start_line(view: StartView) -> str:
    """What is being done and for how long, then what is over: ``joining the group, 2 s (topics 0.3 s, Spark 4.1 s)``."""
    phase = view.times.now
    if phase is None:
        return "starting"
    return _now(view, phase) + (f" ({_took(view.times)})" if view.times.over else "")


def summary_line(times: PhaseTimes) -> str:
    """What a start that is over took: ``running after 8.4 s (topics 0.3 s, Spark 4.1 s, plan 2.2 s, group 1.8 s)``."""
    return f"running after {_short(sum(seconds for _, seconds in times.over))} ({_took(times)})"


def _took(times: PhaseTimes) -> str:
    return ", ".join(f"{phase.value} {_short(seconds)}" for phase, seconds in times.over)


def _now(view: StartView, phase: StartPhase) -> str:
    if phase is StartPhase.JOIN and view.group_wait_s is not None and view.group_wait_s >= _HELD_UP_S:
        return f"waiting for the group's rebalance, {_long(view.group_wait_s)}"
    if phase is StartPhase.RESTORE and view.restoring is not None:
        return _restore(view.restoring, view.most_left)
    return f"{_DOES[phase]}, {_long(view.now_s - view.times.since_s)}"


def _restore(restoring: RestoreProgress, most_left: int) -> str:
    tasks = len(restoring.tasks)
    said = [f"restoring {tasks} {'task' if tasks == 1 else 'tasks'}"]
    left = restoring.offsets_left
    if left is not None and most_left:
        done = 1 - left / most_left
        filled = int(done * _BAR)
        said[0] += f" {'█' * filled}{'░' * (_BAR - filled)} {int(done * 100)} %"
        said.append(f"{left:,} offsets left")
    seconds = restoring.seconds_left
    said.append("time left unknown" if seconds is None else f"{_long(seconds)} left")
    return ", ".join(said)


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else _long(seconds)


def _long(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"


class StartLine:
    """The line of an instance at the moment at which it is called; before ``streams`` is set, of what comes before it."""

    def __init__(self, phases: StartPhases, now_s: Callable[[], float] = time.monotonic) -> None:
        self._phases, self._now_s = phases, now_s
        self._view = StartView()
        self.streams: KafkaStreams | None = None

    def __call__(self) -> str:
        self._view = followed(self._view, self._seen())
        return start_line(self._view)

    def summary(self) -> str:
        """The line about a start that is over."""
        return summary_line(self._phases.times)

    def _seen(self) -> StartView:
        from tidemill.task.progress import restoring

        times, now_s, streams = self._phases.times, self._now_s(), self.streams
        if streams is None:
            return StartView(times=times, now_s=now_s)
        threads = streams.threads
        waits = [since_s for thread in threads if (since_s := thread.joining_since_s) is not None]
        return StartView(
            times=times,
            now_s=now_s,
            group_wait_s=now_s - min(waits) if waits else None,
            restoring=restoring(
                [task for thread in threads for task in thread.tasks.values()],
                [copy for thread in threads for copy in thread.copies],
            ),
        )
