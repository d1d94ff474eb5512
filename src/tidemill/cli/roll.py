"""``tidemill roll``: every instance of a group is drained, ends and comes back, one after the other.

Decides the order (the leader last), what counts as an instance that has come back, and what is waited for before the next one
goes: every instance of the group is ready. What runs the instances (systemd, Kubernetes) starts them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.drain import Timeout, drain_at
from tidemill.cli.group_instances import GroupInstance
from tidemill.cli.settings import Group, GroupBrokers, GroupConfig, Settings, outside_settings
from tidemill.deadline import Deadline
from tidemill.errors import EnvironmentProblem, RetriableError, StopError
from tidemill.printable import printable

if TYPE_CHECKING:
    from tidemill.query.http_tls import HttpAccess

_ASK_LIMIT_S = 5.0
_PAUSE_S = 1.0
_READY_LIMIT_S = 600.0


def roll(
    group: Group,
    bootstrap_server: GroupBrokers = None,
    config: GroupConfig = None,
    settings: Settings = None,
    timeout_s: Timeout = 1_800,
    return_timeout_s: Annotated[
        float, typer.Option("--return-timeout", min=1, help="Seconds within which an instance that has ended must be back.")
    ] = 600,
) -> None:
    """Drain the instances of a group one after the other, each once the one before has come back."""
    from tidemill.cli.group_instances import group_instances, http_access_of
    from tidemill.cli.progress import status_line

    given = outside_settings(settings, config, bootstrap_server)
    access = http_access_of(given)

    def look() -> list[GroupInstance]:
        return group_instances(group, given)

    instances = require_rollable(look())
    with status_line() as tell:
        for number, one in enumerate(in_order(instances, _leader(instances, access)), 1):
            assert one.host is not None
            which = f"{number} of {len(instances)}: {one.name}"
            wait_ready(look, access, _said_of(which, "waits", tell), _READY_LIMIT_S)
            before = look()
            drain_at(one.host, access, timeout_s, _said_of(which, "drains", tell))
            tell(f"{which} has ended, and is waited for")
            back = wait_back(look, before, one, return_timeout_s)
            typer.echo(f"{which} has drained, ended and come back" + ("" if back.name == one.name else f" as {back.name}"))
        wait_ready(look, access, tell, _READY_LIMIT_S)
    typer.echo(f"all {len(instances)} instances of {group} were restarted")


def _said_of(which: str, does: str, tell: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: tell(f"{which} {does}. {text}")


def require_rollable(instances: Sequence[GroupInstance]) -> Sequence[GroupInstance]:
    """EnvironmentProblem if these can't be restarted so."""
    silent = [one.name for one in instances if one.host is None]
    if silent:
        raise EnvironmentProblem(
            f"the instances {', '.join(silent)} have no address, so they can't be drained: start them with --serve HOST:PORT"
        )
    if len(instances) < 2:
        raise EnvironmentProblem(
            f"the group has {len(instances)} instance, expected 2 or more: no other could take its tasks. Start another one first"
        )
    draining = [one.name for one in instances if one.drains]
    if draining:
        raise EnvironmentProblem(f"{', '.join(draining)} drains already: wait until it has gone")
    return instances


def in_order(instances: Sequence[GroupInstance], leader: str | None) -> list[GroupInstance]:
    """By address, the leader last: so the group has as few other leaders as can be."""
    return sorted(instances, key=lambda one: (one.name == leader, one.name))


def returned(before: Collection[GroupInstance], gone: GroupInstance, now: Collection[GroupInstance]) -> GroupInstance | None:
    """The instance that has come in place of ``gone``, which has ended: under its process id, its address, or as a new one."""
    others = {one.process_id for one in before} - {gone.process_id}
    new = [one for one in now if one.process_id not in others and not one.drains]
    alike = [one for one in new if one.process_id == gone.process_id or one.name == gone.name]
    return next(iter(alike or new), None)


def wait_back(
    look: Callable[[], Sequence[GroupInstance]], before: Collection[GroupInstance], gone: GroupInstance, limit_s: float
) -> GroupInstance:
    """The instance that has come instead. StopError after the limit."""
    deadline = Deadline.after(limit_s)
    problem = ""
    while not deadline.is_over:
        try:
            back = returned(before, gone, look())
            if back is not None and back.host is not None:
                return back
            problem = ""
        except EnvironmentProblem as error:  # no brokers, or no members for the moment
            problem = f" ({printable(error)})"
        time.sleep(_PAUSE_S)
    raise StopError(
        f"{gone.name} has drained and ended, but is not back after {limit_s:g} s{problem}: see its log, start it again "
        "(systemd: Restart=always), then run tidemill roll once more"
    )


def wait_ready(
    look: Callable[[], Sequence[GroupInstance]], access: HttpAccess, tell: Callable[[str], None], limit_s: float
) -> None:
    """Until every instance says that it is ready. StopError after the limit."""
    deadline = Deadline.after(limit_s)
    waits: Mapping[str, str] = {}
    while not deadline.is_over:
        try:
            waits = {one.name: why for one in look() if one.host is not None and (why := _why_not_ready(one, access))}
        except EnvironmentProblem as error:
            waits = {"the group": printable(error)}
        if not waits:
            return
        tell("; ".join(f"{name}: {why}" for name, why in waits.items()))
        time.sleep(_PAUSE_S)
    named = "; ".join(f"{name}: {why}" for name, why in waits.items())
    raise StopError(f"not every instance was ready within {limit_s:g} s: {named}. Nothing more is drained until they are")


def _why_not_ready(one: GroupInstance, access: HttpAccess) -> str:
    from tidemill.query.http_forward import HttpRefusalError, fetch

    assert one.host is not None
    try:
        fetch(one.host, "/health/ready", token=access.token, timeout_s=_ASK_LIMIT_S, tls=access.client)
    except HttpRefusalError as refusal:
        return "not ready" if refusal.status == 503 else str(refusal)
    except RetriableError as problem:
        return str(problem)
    return ""


def _leader(instances: Sequence[GroupInstance], access: HttpAccess) -> str | None:
    from tidemill.cli.top import GroupQuestion

    hosts = [one.host for one in instances if one.host is not None]
    return GroupQuestion(hosts, token=access.token, tls=access.client).ask().leader
