"""``tidemill run APP.py``: one instance of an application, until a stop is asked for or it can't go on.

Decides what is shown while it runs, and how it ends: 0 after SIGTERM, 130 after Ctrl-C, 1 in ERROR. Whatever happens, it ends
within a limit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.application_file import load_application
from tidemill.cli.instance_view import InstanceView, to_line, to_text, view_of
from tidemill.cli.live_text import LiveText, live_text
from tidemill.cli.settings import BootstrapServer, ConfigFile, Settings, outside_settings
from tidemill.cli.start_line import StartLine
from tidemill.cli.stop_request import StopRequest, StopWanted, end_after
from tidemill.config.slices import SparkConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError, StopError
from tidemill.held_interrupts import interrupts_held
from tidemill.log_format import JsonLines, TextLines
from tidemill.runtime.observe.start_phases import StartPhase, StartPhases
from tidemill.start_trace import TraceFile, span, tell_process

if TYPE_CHECKING:
    from tidemill.runtime.instance.application import KafkaStreams, State
    from tidemill.runtime.instance.launching import Launched

_LEVELS = ("debug", "info", "warning", "error")
_TICK_S = 0.25
_LINE_INTERVAL_S = 1.0
_CLOSE_LIMIT_S = 60.0
_END_LIMIT_S = 90.0
"""Closing has a limit of its own, but what it waits for is other people's code too."""


def run(
    app: Annotated[Path, typer.Argument(help="The application file, or its module: Python that defines builder or topology.")],
    settings: Settings = None,
    config: ConfigFile = None,
    bootstrap_server: BootstrapServer = None,
    state_dir: Annotated[
        str | None, typer.Option(metavar="PATH", help="Directory of local state: overrides state.dir.")
    ] = None,
    serve: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Answer reads of state over HTTP: overrides tidemill.http.listen.")
    ] = None,
    log_level: Annotated[str, typer.Option(help=f"Log level: {', '.join(_LEVELS)}.")] = "warning",
    trace_start: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write how the start spends its time, in Chrome's trace format."),
    ] = None,
    end_with_stdin: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run an application until Ctrl-C or SIGTERM; it then commits, closes its stores and leaves the group."""
    require_level(log_level)
    overrides = outside_settings(settings, config, bootstrap_server)
    if state_dir is not None:
        overrides["state.dir"] = state_dir
    if serve is not None:
        if not serve.strip():
            raise ConfigError("--serve is '', expected host:port; leave it out to answer no reads")
        overrides["tidemill.http.listen"] = serve
    trace = _traced(trace_start)
    with span("application file"):
        topology, merged = load_application(app, overrides)
    stop = StopRequest()
    try:
        if end_with_stdin:
            stop.end_with_stdin()
        settings_read = StreamsConfig.of(merged)
        with trace, _launched(settings_read) as launched, live_text() as live:
            phases = StartPhases()
            starting = StartLine(phases)
            phases.begin(StartPhase.IMPORTS)
            live.status_line(starting)
            with span("imports of Spark and Kafka's clients"):
                from tidemill.runtime.instance.application import KafkaStreams

            _log_to(live, log_level, as_json=settings_read.log_format == "json")
            streams = KafkaStreams(topology, settings_read, launched=launched, phases=phases)
            starting.streams = streams
            live.line(f"{app}: {streams.config.application_id} on {streams.config.bootstrap_servers}")
            _run(streams, stop, live, starting)
    except (StopWanted, KeyboardInterrupt):
        stop.interrupted()
    raise typer.Exit(stop.exit_code)


def _traced(path: Path | None) -> contextlib.AbstractContextManager[object]:
    """Listens from now on; what it gives is closed when the instance has ended, with or without an output."""
    if path is None:
        return contextlib.nullcontext()
    trace = TraceFile(path)
    trace.listen()
    tell_process("Python, command line", os.getpid(), "driver", time.time())
    return contextlib.closing(trace)


@contextlib.contextmanager
def _launched(config: StreamsConfig) -> Iterator[Launched]:
    """The JVM, which takes longest to start; ended with the instance at the latest."""
    with span("imports of the launch"):
        from tidemill.runtime.instance.launching import launch

    launched: Launched | None = None
    try:
        with interrupts_held():  # else a stop between the start of a process and knowing it would leave its folder behind
            launched = launch(config.slice(SparkConfig), os.environ)
        yield launched
    finally:
        if launched is not None:
            launched.end()


def _run(streams: KafkaStreams, stop: StopRequest, live: LiveText, starting: StartLine) -> None:
    """Starts, shows and closes. StopError, with what went wrong, if the instance can't go on."""
    changes: deque[tuple[State, State]] = deque()
    streams.set_state_listener(lambda new, old: changes.append((new, old)))
    try:
        streams.start()
        if streams.config.http_listen:
            scheme = "https" if streams.config.http_keystore else "http"
            live.line(f"the group's page, state to read and metrics: {scheme}://{streams.application_server}/")
        stop.wait_for_it()
        _follow(streams, stop, live, changes, starting)
    finally:
        stop.wait_for_it()
        live.status("closing")
        watch = end_after(_END_LIMIT_S, f"closing was not done after {_END_LIMIT_S:.0f} s; ended without it")
        ended = streams.close(_CLOSE_LIMIT_S)
        watch.cancel()
        _tell(changes, live)
    if streams.error is not None:
        raise StopError(str(streams.error)) from streams.error
    if not ended:
        raise StopError(f"the stream threads did not end within {_CLOSE_LIMIT_S:.0f} s; what they did last is not committed")


def _follow(
    streams: KafkaStreams, stop: StopRequest, live: LiveText, changes: deque[tuple[State, State]], starting: StartLine
) -> None:
    """Until a stop is wanted or the instance has ended by itself."""
    from tidemill.runtime.instance.application import State

    shown = InstanceView(state=State.REBALANCING.value)  # whatever it is by now is news
    has_run = False
    shown_at = 0.0
    failing_since: float | None = None
    while not stop.is_wanted and streams.state not in (State.ERROR, State.NOT_RUNNING):
        time.sleep(_TICK_S)
        _tell(changes, live)
        now = time.monotonic()
        view = view_of(streams)
        if streams.state is State.REBALANCING:
            live.status_line(starting)
        else:
            live.status(to_text(view))
        if streams.state is State.RUNNING and not has_run:
            has_run = True
            live.terminal_line(starting.summary())
        is_news = (view.state, view.tasks, view.restoring) != (shown.state, shown.tasks, shown.restoring)
        if is_news or (view != shown and now - shown_at >= _LINE_INTERVAL_S):
            live.plain_line(to_line(view))
            shown, shown_at = view, now
        if streams.error is not None:
            failing_since = failing_since or now
            if now - failing_since > _END_LIMIT_S:
                return


def _tell(changes: deque[tuple[State, State]], live: LiveText) -> None:
    while changes:
        new, old = changes.popleft()
        live.line(f"{old.value} -> {new.value}")


def require_level(level: str) -> None:
    if level.lower() not in _LEVELS:
        raise ConfigError(f"--log-level is {level!r}, expected one of {', '.join(_LEVELS)}")


def _log_to(live: LiveText, level: str, *, as_json: bool) -> None:
    """Tidemill's log at ``level``, that of libraries at warning or above. As JSON it is standard error's, terminal or not.

    kafka-python, which holds the membership, writes a line for each attempt to reach a broker. It is shown at ``debug`` only: the
    events of Tidemill and the lines of librdkafka report the same brokers.
    """
    require_level(level)
    chosen = logging.getLevelName(level.upper())
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if as_json:
        handler.setFormatter(JsonLines())
    elif live.console is not None:
        from rich.logging import RichHandler

        handler = RichHandler(console=live.console, show_path=False)
        handler.setFormatter(TextLines("%(message)s"))
    else:
        handler.setFormatter(TextLines("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=max(chosen, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("tidemill").setLevel(chosen)
    logging.getLogger("kafka").setLevel(logging.WARNING if chosen <= logging.DEBUG else logging.CRITICAL)
