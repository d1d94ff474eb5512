"""``tidemill demo-ha``: three instances with standbys; a third joins and warms up, one is killed, its standbys take over.

Decides the order of what happens, and what failure is: a take-over that does not come in time, or a count that is not exact at
the end. The group is shown by its instances' documents (``group_screen``), the same as on the page whose address is
printed. Invariant: when it ends, by whatever, nothing that it started is left.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import webbrowser
from contextlib import ExitStack, closing
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.demo import APP, as_ctrl_c, start_broker
from tidemill.cli.demo_ha_reads import Reads
from tidemill.cli.demo_ha_watch import Watch
from tidemill.cli.demo_instances import Command, DemoInstance, Instances
from tidemill.cli.demo_text import Text, differences, english
from tidemill.cli.live_text import LiveText, live_text
from tidemill.errors import StopError

if TYPE_CHECKING:
    from tidemill.cli.demo_topics import Counts, Feed
    from tidemill.ids import TaskId

_SESSION_TIMEOUT_S = 6.0
_SETTINGS = (
    f"session.timeout.ms={_SESSION_TIMEOUT_S * 1e3:.0f}",
    "heartbeat.interval.ms=500",
    "num.standby.replicas=1",
    "acceptable.recovery.lag=20",  # so little that a newcomer to this small state has to be warmed up
    "probing.rebalance.interval.ms=4000",
    "tidemill.test.short.intervals=true",
)
_TASKS = 12
_STORE = "counts-store"
_READ_WORDS = 40
_FIRST_SHARE = 0.85
"""The most of the text that is fed before the last act, which feeds the rest."""
_LINES_PER_S = 40
_LAST_LINES_PER_S = 3_000
_TICK_S = 0.1
_LOOK_S = 0.7


class Act(Enum):
    """Acts of the demo, in order: what it waits for."""

    TWO_START = "two instances are at work, and something was counted"
    THIRD_JOINS = "the third one has active tasks with state, and all have"
    STANDBYS_FOLLOW = "every task with state has a standby at its changelog's end"
    TAKE_OVER = "all tasks of the one that was killed run again"
    COUNTED = "every word is counted"


_LIMITS_S = {
    Act.TWO_START: 150.0, Act.THIRD_JOINS: 150.0, Act.STANDBYS_FOLLOW: 60.0, Act.TAKE_OVER: 60.0, Act.COUNTED: 150.0,
}  # fmt: skip


def demo_ha(
    browser: Annotated[bool, typer.Option(help="Open the page, if there is a display.")] = True,
    stay: Annotated[bool, typer.Option("--stay", help="Keep the instances running at the end, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option(hidden=True, min=1_000)] = 9_000,
) -> None:
    """Kill one of three instances and watch its standbys take over, in the terminal and on the web page."""
    signal.signal(signal.SIGTERM, as_ctrl_c)
    text = english(lines)
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="tidemill-demo-ha-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(temporary))
        broker = start_broker(stack, None)
        settings = (f"bootstrap.servers={broker.bootstrap_servers}", *_SETTINGS)
        command = Command(app=APP, settings=settings, folder=folder, log_level="warning", serve=True)
        live = stack.enter_context(live_text())
        instances = stack.enter_context(Instances(3, command))
        play = Play(broker.bootstrap_servers, text, instances, live, opens_page=browser and _has_display())
        problem = play.run(stay)
    if problem:
        raise StopError(f"demo-ha: {text.summary}: {problem}")
    typer.echo(f"demo-ha: {text.summary}: all counts equal; {play.result}")


def _has_display() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class Play:
    """One run; ``result``: what the take-over took, in words."""

    def __init__(self, servers: str, text: Text, instances: Instances, live: LiveText, *, opens_page: bool) -> None:
        from tidemill.cli.demo_topics import Counts, Feed, create_topics

        create_topics(servers)
        self._text, self._instances, self._live, self._opens_page = text, instances, live, opens_page
        self._feed: Feed = Feed(servers, text.lines)
        self._counts: Counts = Counts(servers)
        self._began = time.monotonic()
        self._watch = Watch(self._say)
        self._act, self._act_since = Act.TWO_START, self._began
        self._goal, self._ticked_at = 0.0, self._began
        self._victim: DemoInstance | None = None
        self._killed_at = 0.0
        self._lost: frozenset[TaskId] = frozenset()
        self._reads: Reads | None = None
        self.result = ""

    def run(self, stay: bool) -> str:
        """The problem, or nothing."""
        with closing(self._counts):
            for _ in range(2):
                self._say(f"instance {self._instances.start_one().number} starts")
            while self._act is not Act.COUNTED or not self._is_counted():
                self._tick()
                late_s = time.monotonic() - self._act_since - _LIMITS_S[self._act]
                if late_s > 0:
                    waited = f"not within {_LIMITS_S[self._act]:.0f} s: {self._act.value}"
                    return f"{waited}; {self._counts.total} words counted; {self._instances.last_words()}"
            self._say("every word is counted")
            while stay:
                self._tick()
            self._say("the instances end; the output is read to its end and compared")
            self._instances.stop()
            self._counts.take_to_end()
        return differences(self._text.counts, self._counts.by_word())

    def _say(self, what: str) -> None:
        self._live.line(f"{time.monotonic() - self._began:6.1f} s  {what}")

    def _tick(self) -> None:
        is_last = self._act is Act.COUNTED
        now, per_s = time.monotonic(), _LAST_LINES_PER_S if is_last else _LINES_PER_S
        most = len(self._text.lines) * (1.0 if is_last else _FIRST_SHARE)
        self._goal = min(most, self._goal + per_s * (now - self._ticked_at))
        self._ticked_at = now
        self._instances.check()
        self._feed.send(int(self._goal))
        self._counts.take(_TICK_S)
        addresses = [instance.address for instance in self._instances.started if instance.address]
        self._watch.look(addresses, every_s=_LOOK_S)
        screen = self._watch.screen(
            f"{self._feed.sent:,} of {len(self._text.lines):,} lines fed, "
            f"{self._counts.total:,} of {self._text.words:,} words counted"
        )
        if screen is not None:
            self._live.status(screen)
        self._next_act()

    def _next_act(self) -> None:
        """Does what is due now."""
        watch, instances = self._watch, self._instances
        if self._act is Act.TWO_START and instances.are_started_at_work and self._counts.total and watch.active >= _TASKS:
            self._show_page()
            self._say(f"instance {instances.start_one().number} starts, and joins the two that are at work")
            self._enter(Act.THIRD_JOINS)
        elif self._act is Act.THIRD_JOINS and instances.are_all_at_work and watch.stateful_owners >= len(instances.started):
            self._say("the third has taken tasks over, warmed up; now every task gets its standby")
            self._enter(Act.STANDBYS_FOLLOW)
        elif self._act is Act.STANDBYS_FOLLOW and watch.caught_up_copies >= _TASKS // 2 and not watch.warming_up:
            self._kill()
            self._enter(Act.TAKE_OVER)
        elif self._act is Act.TAKE_OVER and watch.looked_at > self._killed_at and self._has_taken_over():
            self._tell_take_over()
            self._enter(Act.COUNTED)

    def _enter(self, act: Act) -> None:
        self._act, self._act_since = act, time.monotonic()

    def _show_page(self) -> None:
        address = f"http://{self._instances.started[0].address}/"
        self._say(f"the group's page: {address}")
        if self._opens_page:
            webbrowser.open(address)

    def _kill(self) -> None:
        """The one with the most to lose, but not the first: its page is being looked at."""
        victim = max(self._instances.started[1:], key=lambda one: len(self._watch.stateful_at(one.address)))
        self._victim, self._lost = victim, self._watch.active_at(victim.address)
        commonest = sorted(self._text.counts, key=lambda word: -self._text.counts[word])[:_READ_WORDS]
        self._reads = Reads(self._instances.started[0].address, _STORE, commonest)
        self._killed_at = time.monotonic()
        self._instances.kill(victim)
        self._reads.start()
        self._say(f"kill -9: instance {victim.number} ({victim.address}) is gone, with {' '.join(map(str, sorted(self._lost)))}")
        self._say(f"no one hears of it; the broker notices within session.timeout.ms, {_SESSION_TIMEOUT_S:.0f} s")

    def _has_taken_over(self) -> bool:
        return self._lost <= self._watch.running_at([one.address for one in self._instances.started])

    def _tell_take_over(self) -> None:
        assert self._victim is not None
        assert self._reads is not None
        reads = self._reads.end()
        took_s = self._watch.looked_at - self._killed_at
        promoted, others = self._watch.promoted(self._lost)
        kept = f"{promoted} of its tasks with state were taken over by their standbys" + (
            f", {others} restored" if others else ", none restored"
        )
        self.result = f"{took_s:.1f} s after the kill all its tasks ran again; {kept}"
        self._say(self.result)
        self._say(reads)

    def _is_counted(self) -> bool:
        return self._feed.is_done and self._counts.total == self._text.words and self._counts.by_word() == self._text.counts
