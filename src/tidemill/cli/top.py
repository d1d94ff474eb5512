"""``tidemill top``: the group, live: instances, tasks, restores, standbys and warm-ups, rates, rebalances.

Decides whom to ask: the instance that is named, else one that the group's members name as their address (``application.server``).
If the one that was asked goes away, another one of the group is asked from then on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.group_screen import group_screen
from tidemill.cli.settings import GroupBrokers, GroupConfig, GroupIfAny, Settings, outside_settings
from tidemill.errors import ConfigError, EnvironmentProblem, RetriableError
from tidemill.printable import printable

if TYPE_CHECKING:
    from ssl import SSLContext

    from tidemill.membership.wire import HostInfo
    from tidemill.query.group_documents import GroupDocument

_ASK_LIMIT_S = 5.0
_ALL_AWAY_LIMIT_S = 30.0
_LONGEST_TEXT = 2_000


def top(
    address: Annotated[str | None, typer.Argument(metavar="[HOST:PORT]", help="HTTP address of any instance, host:port.")] = None,
    group: GroupIfAny = None,
    bootstrap_server: GroupBrokers = None,
    config: GroupConfig = None,
    settings: Settings = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end; so does a pipe or file as output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print the instances' data as JSON.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two updates.")] = 1.0,
) -> None:
    """Show instances, tasks, copies that catch up, rates and rebalances of a group; Ctrl-C ends it."""
    from tidemill.cli.group_instances import http_access_of

    given = outside_settings(settings, config, bootstrap_server)
    if address is not None and (bootstrap_server or group):
        raise ConfigError("give HOST:PORT of an instance, or --group of the instances, not both")
    hosts = _hosts(address, group, given)
    access = http_access_of(given)
    asked = GroupQuestion(hosts, token=access.token, tls=access.client)
    if once or as_json or not _is_followed():
        found = asked.ask()
        if as_json:
            typer.echo(json.dumps(found.to_json(), ensure_ascii=False))
        else:
            _print(found)
        return
    _follow(asked, interval_s)


class GroupQuestion:
    """Asks one instance for the whole group, and another one if that is away."""

    def __init__(self, hosts: Iterable[HostInfo], *, token: str = "", tls: SSLContext | None = None) -> None:
        self._hosts, self._token, self._tls = list(hosts), token, tls

    def ask(self, timeout_s: float = _ASK_LIMIT_S) -> GroupDocument:
        """Without what would act on a terminal. EnvironmentProblem, with what each host said, if none answers."""
        from tidemill.membership.wire import host_of
        from tidemill.query.document_reader import UnreadableDocumentError
        from tidemill.query.group_documents import read_group
        from tidemill.query.http_forward import document, fetch

        problems = []
        for host in list(self._hosts):
            try:
                answer = document(fetch(host, "/group", token=self._token, timeout_s=timeout_s, tls=self._tls))
                found = read_group(_for_terminal(answer))
            except RetriableError as problem:
                problems.append(f"{host} {problem}")
                continue
            except UnreadableDocumentError as problem:
                problems.append(f"{host} answers, but shows no group: something else listens there ({problem})")
                continue
            hosts = [host_of(one.host) for one in found.instances if one.host and one.away is None]
            self._hosts = list(dict.fromkeys([host, *(one for one in hosts if one), *self._hosts]))
            return found
        raise EnvironmentProblem(
            f"no instance can be asked: {'; '.join(problems)}. Start them with --serve HOST:PORT; where a token is set give it "
            "in a file with --config"
        )


def _for_terminal(value: object) -> object:
    """Other instances' names and sentences without escape sequences."""
    if isinstance(value, str):
        return printable(value, longest=_LONGEST_TEXT)
    if isinstance(value, Mapping):
        return {name: _for_terminal(each) for name, each in value.items()}
    return [_for_terminal(each) for each in value] if isinstance(value, list) else value


def _hosts(address: str | None, group: str | None, settings: Mapping[str, object]) -> list[HostInfo]:
    from tidemill.cli.group_instances import address_of, group_instances

    if address is not None:
        return [address_of(address)]
    if group is None:
        raise ConfigError("expected HOST:PORT of an instance, or --group APPLICATION (and --bootstrap-server HOST:PORT)")
    found = dict.fromkeys(one.host for one in group_instances(group, settings) if one.host is not None)
    if not found:
        raise EnvironmentProblem(f"no member of {group} has an address: start the instances with --serve HOST:PORT")
    return list(found)


def _is_followed() -> bool:
    """Elsewhere than on a screen that can be written over nothing would be seen before the end."""
    from rich.console import Console

    from tidemill.cli.live_text import can_write_over

    return can_write_over(Console())


def _print(group: GroupDocument) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=160)
    console.print(group_screen(group, most_copies=None))


def _follow(asked: GroupQuestion, interval_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    group = asked.ask()
    answered_at = time.monotonic()
    with Live(console=Console(highlight=False, markup=False), screen=True, auto_refresh=False) as live:
        problem = ""
        while True:
            began = time.monotonic()
            try:
                group, answered_at, problem = asked.ask(timeout_s=2.0), began, ""
            except EnvironmentProblem as error:
                if began - answered_at > _ALL_AWAY_LIMIT_S:
                    raise
                problem = str(error)
            screen = group_screen(group)
            live.update(Group(Text(problem, style="bold red"), screen) if problem else screen, refresh=True)
            time.sleep(max(0.05, interval_s - (time.monotonic() - began)))
