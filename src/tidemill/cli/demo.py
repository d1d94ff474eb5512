"""``tidemill demo``: WordCount on a broker of its own, every count compared with one made without Tidemill.

Decides the pace of the lines (some before the first instance, the last ones only when all instances are at work, so that
each has its share), when it is over, and what failure is. Invariant: when it ends, by whatever, nothing that it started is
left, data apart that was asked to be kept.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.demo_instances import Command, Instances
from tidemill.cli.demo_screen import Screen, in_words
from tidemill.cli.demo_text import Text, differences, english
from tidemill.cli.live_text import live_text
from tidemill.cli.progress import status_line
from tidemill.cli.run import require_level
from tidemill.errors import ConfigError, EnvironmentProblem, StopError

if TYPE_CHECKING:
    from tidemill.cli.demo_topics import Counts, Feed, Reading
    from tidemill.embedded.broker import EmbeddedBroker

APP = Path(__file__).with_name("demo_wordcount.py")
"""examples/wordcount.py, under a name by which it travels with the package."""
_COMMONEST = 10
_FIRST_SHARE, _LAST_SHARE = 0.3, 0.2
_SLOW_LINES_PER_S, _FAST_LINES_PER_S = 200, 4_000
_TICK_S = 0.1
_ASK_AFTER_S = 10.0
"""Seconds without news, when everything is fed, until the broker is asked whether everything was read: on a busy machine an
instance may be slow, and not done."""


def demo(
    instances: Annotated[int, typer.Option(min=1, max=6, help="Number of instances.")] = 1,
    keep_data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the broker's data, state and logs in this new folder.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="Log level of the instances; see --keep-data.")] = "warning",
    lines: Annotated[int | None, typer.Option(hidden=True, min=10)] = None,
    limit_s: Annotated[float, typer.Option(hidden=True)] = 180.0,
) -> None:
    """Count the words of a text through Kafka and Spark, and check every count."""
    require_level(log_level)
    _check(keep_data)
    signal.signal(signal.SIGTERM, as_ctrl_c)
    text = english(lines)
    with ExitStack() as stack:
        if keep_data is not None:
            folder = keep_data.absolute()
        else:
            temporary = tempfile.TemporaryDirectory(prefix="tidemill-demo-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
        broker = start_broker(stack, None if keep_data is None else folder / "broker")
        command = Command(app=APP, settings=_settings(broker), folder=folder, log_level=log_level)
        commonest, problem = _count(broker, text, Instances(instances, command), limit_s)
    if keep_data is not None:
        typer.echo(f"kept in {folder}; the broker again: tidemill broker start --data {folder / 'broker'}")
    if problem:
        raise StopError(f"demo: {text.summary}: {problem}")
    typer.echo(f"the ten commonest words: {commonest}")
    typer.echo(f"demo: {text.summary}: all counts equal")


def _check(keep_data: Path | None) -> None:
    if not APP.is_file():
        raise EnvironmentProblem(f"there is no {APP}, which comes with Tidemill: install Tidemill again")
    try:
        is_usable = keep_data is None or not keep_data.exists() or (keep_data.is_dir() and not any(keep_data.iterdir()))
    except OSError as error:
        raise ConfigError(f"--keep-data {keep_data}: {error.strerror}; give a new folder") from None
    if not is_usable:
        raise ConfigError(f"--keep-data {keep_data}: it is there and not empty; give a new folder, each demo starts over")


def as_ctrl_c(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def start_broker(stack: ExitStack, data: Path | None) -> EmbeddedBroker:
    from tidemill.embedded.broker import EmbeddedBroker

    with status_line() as say:
        say("starting a Kafka broker")
        return stack.enter_context(EmbeddedBroker(environ=os.environ, data=data, progress=say))


def _settings(broker: EmbeddedBroker) -> tuple[str, ...]:
    # A rebalance is noticed with a heartbeat: often, so that the second instance need not wait for its tasks.
    return f"bootstrap.servers={broker.bootstrap_servers}", "session.timeout.ms=10000", "heartbeat.interval.ms=500"


def _count(broker: EmbeddedBroker, text: Text, instances: Instances, limit_s: float) -> tuple[str, str]:
    """Runs the application on the text; the commonest words, and what is wrong or nothing."""
    from tidemill.cli.demo_topics import Counts, Feed, Reading, create_topics

    servers = broker.bootstrap_servers
    create_topics(servers)
    with closing(Counts(servers)) as counts, instances, live_text() as live:
        screen = Screen(live, len(text.lines), text.words)
        screen.say(f"a Kafka broker on {servers}, data in {broker.data}")
        overdue = _work(text, Feed(servers, text.lines), counts, Reading(servers), instances, screen, limit_s)
        screen.say("all fed; the instances end, the output is read to its end and compared")
        instances.stop()
        counts.take_to_end()
    return in_words(counts.commonest(_COMMONEST)), overdue or differences(text.counts, counts.by_word())


def _work(
    text: Text, feed: Feed, counts: Counts, reading: Reading, instances: Instances, screen: Screen, limit_s: float
) -> str:
    """Feeds and watches until all is counted, or read and counted otherwise, or nothing moves any more, which is said."""
    goal = len(text.lines) * _FIRST_SHARE
    moved_at, before = time.monotonic(), None
    while True:
        began = time.monotonic()
        instances.check()
        feed.send(int(goal))
        counts.take(_TICK_S)
        if instances.is_one_missing and instances.are_started_at_work and (counts.total or not instances.started):
            screen.say(f"instance {instances.start_one().number} starts")
        views = instances.views
        screen.show(feed.sent, counts.total, counts.commonest(_COMMONEST), views)
        if feed.is_done and counts.total == text.words and counts.by_word() == text.counts:
            return ""
        now = (feed.sent, counts.total, [replace(view, behind=0, lost=0) for view in views])
        if now != before:
            moved_at, before = began, now
        idle_s = time.monotonic() - moved_at
        if idle_s > _ASK_AFTER_S and feed.is_done and reading.is_over():
            return ""
        if idle_s > limit_s:
            sentence = f"nothing moved for {limit_s:.0f} s, {feed.sent} lines fed, {counts.total} words counted"
            return f"{sentence}; {instances.last_words()}"
        goal = next_goal(goal, len(text.lines), time.monotonic() - began, are_all_at_work=instances.are_all_at_work)


def next_goal(goal: float, total: int, seconds: float, *, are_all_at_work: bool) -> float:
    """Number of lines that may have been sent ``seconds`` after ``goal`` lines might."""
    if are_all_at_work:
        return min(total, goal + _FAST_LINES_PER_S * seconds)
    return max(goal, min(total * (1 - _LAST_SHARE), goal + _SLOW_LINES_PER_S * seconds))
