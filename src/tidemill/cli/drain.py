"""``tidemill drain INSTANCE``: an instance's tasks warm up elsewhere and are handed over, then it ends.

Decides what is shown meanwhile and when the command is done: the instance has ended, or it has called the drain off. The drain is
the instance's own; a command that is interrupted leaves it going on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.group_view import duration
from tidemill.cli.settings import GroupBrokers, GroupConfig, GroupIfAny, Settings, outside_settings
from tidemill.deadline import Deadline
from tidemill.errors import ConfigError, EnvironmentProblem, RetriableError, StopError
from tidemill.printable import printable

if TYPE_CHECKING:
    from tidemill.membership.wire import HostInfo
    from tidemill.query.group_documents import DrainDocument, GroupDocument
    from tidemill.query.http_tls import HttpAccess

_ASK_LIMIT_S = 10.0
_BEGIN_LIMIT_S = 60.0
"""Time for which a group that rebalances is asked again."""
_PAUSE_S = 0.5
_SILENCE_LIMIT_S = 15.0
_END_LIMIT_S = 120.0
"""Time that an instance without tasks may take to end."""
MOST_NAMED = 3

Timeout = Annotated[
    float, typer.Option("--timeout", min=1, max=604_800, help="Seconds that a drain may take; it is called off then.")
]


def drain(
    instance: Annotated[
        str, typer.Argument(help="Its address HOST:PORT; with --group also its process id (or how that begins) or client.id.")
    ],
    group: GroupIfAny = None,
    bootstrap_server: GroupBrokers = None,
    config: GroupConfig = None,
    settings: Settings = None,
    timeout_s: Timeout = 1_800,
) -> None:
    """Have other instances take over the tasks of one, without a pause for these tasks, and end it."""
    from tidemill.cli.group_instances import address_of, group_instances, http_access_of, instance_called
    from tidemill.cli.progress import status_line

    given = outside_settings(settings, config, bootstrap_server)
    if group is None:
        if bootstrap_server is not None:
            raise ConfigError("--bootstrap-server is given without --group APPLICATION; give both, or HOST:PORT of the instance")
        host = address_of(instance)
    else:
        named = instance_called(instance, group_instances(group, given))
        if named.host is None:
            raise EnvironmentProblem(f"{named.name} has no address: an instance that can be drained runs with --serve HOST:PORT")
        host = named.host
    with status_line() as tell:
        last = drain_at(host, http_access_of(given), timeout_s, tell)
    typer.echo(f"{host} has ended: {printable(last.message)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    """A drain as the group shows it: the instance's own word, and sentences on the copies that it waits for.

    ``knows_none``: the instance answers for itself, and knows of no drain.
    """

    drain: DrainDocument | None
    waits_for: tuple[str, ...] = ()
    knows_none: bool = False

    def text(self) -> str:
        if self.drain is None:
            return "the drain has not begun"
        if self.drain.is_closing:
            return "the instance ends"
        waits = f"; {', '.join(self.waits_for)}" if self.waits_for else ""
        return f"{self.drain.active} active tasks and {self.drain.standby} copies are still there{waits}"


def drain_view(group: GroupDocument) -> DrainView:
    """The drain of the instance that was asked for the group's document."""
    own = next((one.reported for one in group.instances if one.host == group.asked and one.reported is not None), None)
    if own is None:
        return DrainView(drain=None)
    mine = {task.task for thread in own.threads for task in thread.active}
    behind = sorted(
        (copy.lag, copy.task, one.host or one.reported.process[:8], copy.seconds_left)
        for one in group.instances
        if one.reported is not None and one.reported is not own
        for thread in one.reported.threads
        for copy in thread.standby
        if copy.task in mine and copy.lag is not None
    )
    waits = [
        f"{task} warms up on {printable(host)} ({lag:,} offsets behind, {_left(seconds)})" for lag, task, host, seconds in behind
    ]
    more = (f"and {len(waits) - MOST_NAMED} more",) if len(waits) > MOST_NAMED else ()
    return DrainView(drain=own.drain, waits_for=(*waits[:MOST_NAMED], *more), knows_none=own.drain is None)


def _left(seconds: float | None) -> str:
    return "time left unknown" if seconds is None else f"{duration(max(1.0, seconds))} left"


def drain_at(host: HostInfo, access: HttpAccess, timeout_s: float, tell: Callable[[str], None]) -> DrainDocument:
    """Begins the drain and waits until the instance has ended; its last word.

    Raises:
        EnvironmentProblem: it refuses, or has gone or was started again in the middle. StopError: it has called the drain off.
    """
    _begin(host, access, timeout_s, tell)
    last, heard = None, Deadline.after(_SILENCE_LIMIT_S)
    end = Deadline.after(timeout_s + _END_LIMIT_S)
    while not end.is_over:
        try:
            view = drain_view(_group(host, access))
            heard = Deadline.after(_SILENCE_LIMIT_S)
        except RetriableError as problem:
            if last is not None and last.is_closing:
                return last
            if heard.is_over:
                left = "" if last is None else f" while it still had {last.active} active tasks"
                raise EnvironmentProblem(f"{host} {problem}{left}: it was stopped or has failed; see its log") from None
            time.sleep(_PAUSE_S)
            continue
        if view.knows_none:  # a drain that has begun is never forgotten: this is another process at the same address
            if last is not None and last.is_closing:
                return last
            raise EnvironmentProblem(f"{host} was started again before its drain was over: it had stopped or failed; see its log")
        last = view.drain or last
        if last is not None and last.was_called_off:
            raise StopError(f"the drain of {host} was called off: {printable(last.message)}")
        tell(f"{host}: {view.text()}")
        time.sleep(_PAUSE_S)
    raise StopError(f"{host} has not ended {_END_LIMIT_S:.0f} s after its drain had to be over: see its log")


def _begin(host: HostInfo, access: HttpAccess, timeout_s: float, tell: Callable[[str], None]) -> None:
    from tidemill.query.http_forward import HttpRefusalError, fetch

    target = f"/drain?timeout_ms={max(1, round(timeout_s * 1e3))}"
    deadline = Deadline.after(_BEGIN_LIMIT_S)
    while True:
        try:
            fetch(host, target, token=access.token, timeout_s=_ASK_LIMIT_S, tls=access.client, method="POST")
            return
        except HttpRefusalError as refusal:
            if refusal.status == 503 and not deadline.is_over:
                tell(f"{host}: {printable(refusal.sentence)}")
                time.sleep(_PAUSE_S)
                continue
            old = "it runs a version of Tidemill that knows no drains: stop it as usual"
            why = old if refusal.status in (404, 405) else printable(refusal.sentence or str(refusal))
            raise EnvironmentProblem(f"{host} does not drain: {why}") from None
        except RetriableError as problem:
            raise EnvironmentProblem(f"{host} {problem}: is it an instance, started with --serve HOST:PORT?") from None


def _group(host: HostInfo, access: HttpAccess) -> GroupDocument:
    """The group's document. RetriableError if it can't be had."""
    from tidemill.query.document_reader import UnreadableDocumentError
    from tidemill.query.group_documents import read_group
    from tidemill.query.http_forward import document, fetch

    try:
        return read_group(document(fetch(host, "/group", token=access.token, timeout_s=_ASK_LIMIT_S, tls=access.client)))
    except UnreadableDocumentError as problem:
        raise RetriableError(f"answers, but reports no group: {problem}") from None
