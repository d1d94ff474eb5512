"""``tidemill top``: the group, live: instances, tasks, copies on their way, rates, rebalances.

Decides whom to ask: the instance that is named, else one that the group's members name as their address (``application.server``).
If the one that was asked goes away, another one of the group is asked from then on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.group_screen import group_screen
from tidemill.cli.group_view import Document
from tidemill.errors import ConfigError, EnvironmentProblem, RetriableError
from tidemill.printable import printable

if TYPE_CHECKING:
    from ssl import SSLContext

    from tidemill.membership.wire import HostInfo
    from tidemill.query.http_tls import HttpAccess

_ASK_LIMIT_S = 5.0
_ALL_AWAY_LIMIT_S = 30.0
_LONGEST_TEXT = 2_000


def top(
    address: Annotated[str | None, typer.Argument(metavar="[HOST:PORT]", help="Any instance, as tidemill.http.listen.")] = None,
    bootstrap_server: Annotated[str | None, typer.Option(help="Instead of an instance: brokers, and --group.")] = None,
    group: Annotated[str | None, typer.Option(help="The group whose instances are asked: the application.id.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings, such as tidemill.http.token and kafka.* of the group.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Wins over the file.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: what the instances tell, as JSON.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Show instances, tasks, copies on their way, rates and rebalances of a group; Ctrl-C ends it."""
    from tidemill.cli.run import outside_settings

    given = outside_settings(settings or [], config)
    hosts = _hosts(address, bootstrap_server, group, given)
    access = _access(given)
    asked = GroupQuestion(hosts, token=access.token, tls=access.client)
    if once or as_json:
        document = asked.ask()
        if as_json:
            typer.echo(json.dumps(document, ensure_ascii=False))
        else:
            _print(document)
        return
    _follow(asked, interval_s)


class GroupQuestion:
    """Asks one instance for the whole group, and another one if that is away."""

    def __init__(self, hosts: Iterable[HostInfo], *, token: str = "", tls: SSLContext | None = None) -> None:
        self._hosts, self._token, self._tls = list(hosts), token, tls

    def ask(self, timeout_s: float = _ASK_LIMIT_S) -> Document:
        """EnvironmentProblem, with what each host said, if none answers."""
        from tidemill.membership.wire import host_of
        from tidemill.query.document_reader import UnreadableDocumentError
        from tidemill.query.group_documents import read_group
        from tidemill.query.http_forward import document, fetch

        problems = []
        for host in list(self._hosts):
            try:
                answer = document(fetch(host, "/group", token=self._token, timeout_s=timeout_s, tls=self._tls))
                found = read_group(answer)
            except RetriableError as problem:
                problems.append(f"{host} {problem}")
                continue
            except UnreadableDocumentError as problem:
                problems.append(f"{host} answers, but tells of no group: something else listens there ({problem})")
                continue
            told = [host_of(one.host) for one in found.instances if one.host and one.away is None]
            self._hosts = list(dict.fromkeys([host, *(one for one in told if one), *self._hosts]))
            return {name: _for_terminal(value) for name, value in found.to_json().items()}
        raise EnvironmentProblem(
            f"no instance can be asked: {'; '.join(problems)}. Start them with --serve HOST:PORT; where a token is set give it "
            "in a file with --config"
        )


def _for_terminal(value: Any) -> Any:
    """Other instances' names and sentences without escape sequences."""
    if isinstance(value, str):
        return printable(value, longest=_LONGEST_TEXT)
    if isinstance(value, Mapping):
        return {name: _for_terminal(each) for name, each in value.items()}
    return [_for_terminal(each) for each in value] if isinstance(value, list) else value


def _access(settings: Mapping[str, Any]) -> HttpAccess:
    """By the settings of the instances that are asked, as far as they are about HTTP."""
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.query.http_tls import http_access

    about_http = {name: value for name, value in settings.items() if name.startswith("tidemill.http.")}
    about_http.pop("tidemill.http.listen", None)
    return http_access(StreamsConfig.of({"application.id": "top", "bootstrap.servers": "none:1", **about_http}))


def _hosts(
    address: str | None, bootstrap_server: str | None, group: str | None, settings: Mapping[str, Any]
) -> list[HostInfo]:
    from tidemill.membership.wire import host_of

    if address is not None and (bootstrap_server or group):
        raise ConfigError("give HOST:PORT of an instance, or --bootstrap-server and --group, not both")
    if address is not None:
        named = host_of(address)
        if named is None:
            raise ConfigError(f"{address!r} is no address of an instance, expected host:port such as localhost:8080")
        return [named]
    if not (bootstrap_server and group):
        raise ConfigError("expected HOST:PORT of an instance, or --bootstrap-server HOST:PORT and --group APPLICATION")
    return _hosts_of_members(bootstrap_server, group, settings)


def _hosts_of_members(bootstrap_server: str, group: str, settings: Mapping[str, Any]) -> list[HostInfo]:
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.kafka.admin.group_members import live_group
    from tidemill.kafka.security.clients import group_client_settings
    from tidemill.membership.wire import host_of, known_subscription

    config = StreamsConfig.of({**settings, "application.id": group, "bootstrap.servers": bootstrap_server})
    found: dict[HostInfo, None] = {}
    for _, member in sorted(live_group(group_client_settings(config), group).members.items()):
        said = known_subscription(member.subscription.user_data)
        host = host_of(said.user_endpoint) if said is not None and said.user_endpoint else None
        if host is not None:
            found[host] = None
    if not found:
        raise EnvironmentProblem(
            f"no member of {group} at {bootstrap_server} has an address: start the instances with --serve HOST:PORT"
        )
    return list(found)


def _print(document: Document) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=160)
    console.print(group_screen(document, most_copies=None))


def _follow(asked: GroupQuestion, interval_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    document = asked.ask()
    answered_at = time.monotonic()
    with Live(console=Console(highlight=False, markup=False), screen=True, auto_refresh=False) as live:
        problem = ""
        while True:
            began = time.monotonic()
            try:
                document, answered_at, problem = asked.ask(timeout_s=2.0), began, ""
            except EnvironmentProblem as error:
                if began - answered_at > _ALL_AWAY_LIMIT_S:
                    raise
                problem = str(error)
            screen = group_screen(document)
            live.update(Group(Text(problem, style="bold red"), screen) if problem else screen, refresh=True)
            time.sleep(max(0.05, interval_s - (time.monotonic() - began)))
