"""`tidemill reset`: sets a stopped application back, as kafka-streams-application-reset does; without --execute it only says what
it would do.

Decides the options and how the plan is shown; what belongs to the application and in which order things are done is
`tidemill.runtime.reset`'s.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.settings import BootstrapServer, ConfigFile, Settings, outside_settings
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.runtime.reset import ResetPlan

_LARGEST = (1 << 63) - 1
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def reset(
    app: Annotated[Path, typer.Argument(help="The application file, or its module: Python that defines builder or topology.")],
    settings: Settings = None,
    config: ConfigFile = None,
    bootstrap_server: BootstrapServer = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; otherwise only print what would be done.")] = False,
    input_topics: Annotated[
        str | None, typer.Option(metavar="A,B", help="Reset only these inputs (all internal topics are deleted in any case).")
    ] = None,
    intermediate_topics: Annotated[
        str | None, typer.Option(metavar="A,B", help="These inputs, which the program itself writes, begin at their end.")
    ] = None,
    local_state: Annotated[bool, typer.Option("--local-state", help="Also remove the state below state.dir.")] = False,
    given_state_dir: Annotated[
        str | None,
        typer.Option("--state-dir", metavar="PATH", help="Also remove the state below this directory, which run was given."),
    ] = None,
    earlier_topics: Annotated[
        bool, typer.Option("--earlier-topics", help="Also delete topics of earlier versions of the program, by their names.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Inputs begin at their beginning (default).")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Inputs begin at their end.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="Inputs begin at this offset.")] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DDTHH:MM:SS[.sss][+HH:MM]", help="Inputs begin at this time (UTC by default).")
    ] = None,
    by_duration: Annotated[str | None, typer.Option(metavar="PnDTnHnMnS", help="Inputs begin this long ago: PT1H30M.")] = None,
    shift_by: Annotated[int | None, typer.Option(help="Shift the committed offsets by this number; negative: back.")] = None,
) -> None:
    """Reset a stopped application: input offsets, internal topics and, on request, local state.

    Other instances' local state is removed on their machines: there, with --local-state or `tidemill state clean`.
    """
    chosen = {
        "--to-earliest": to_earliest or None, "--to-latest": to_latest or None, "--to-offset": to_offset,
        "--to-datetime": to_datetime, "--by-duration": by_duration, "--shift-by": shift_by,
    }  # fmt: skip
    given = [name for name, value in chosen.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} contradict each other: give one of them")
    for name, number in (("--to-offset", to_offset), ("--shift-by", shift_by)):
        if number is not None and abs(number) > _LARGEST:
            raise ConfigError(f"{name} is {number}, expected a number of at most 64 bits, as offsets are")
    to_timestamp_ms = _timestamp_ms(to_datetime, by_duration)
    from tidemill.cli.application_file import load_application
    from tidemill.config.slices import ClientsConfig, TopicsConfig
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.kafka.admin.client import Admin
    from tidemill.kafka.security.clients import ClientRole, data_client_settings, group_client_settings
    from tidemill.runtime.reset import Target, carry_out, plan_reset

    topology, merged = load_application(app, outside_settings(settings, config, bootstrap_server))
    known = StreamsConfig.of(merged)
    clients = known.slice(ClientsConfig)
    admin = Admin(data_client_settings(clients, ClientRole.ADMIN))
    groups = group_client_settings(clients)
    target = Target(
        to_latest=to_latest,
        to_offset=to_offset,
        to_timestamp_ms=to_timestamp_ms,
        shift_by=shift_by,
    )
    state_dir = given_state_dir or (known.state_dir if local_state else None)
    plan = plan_reset(
        topology, known.slice(TopicsConfig), admin, groups, target, inputs=_names(input_topics),
        intermediate=_names(intermediate_topics), state_dir=None if state_dir is None else Path(state_dir),
        with_earlier=earlier_topics,
    )  # fmt: skip
    for line in plan_lines(plan):
        typer.echo(line)
    if not execute:
        typer.echo("nothing was done: add --execute to do it")
        return
    carry_out(plan, admin, groups)
    typer.echo("done")


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def plan_lines(plan: ResetPlan) -> list[str]:
    """The plan in words."""
    lines = [f"application {plan.application_id}:"]
    for seek in plan.seeks:
        before = "nothing committed" if seek.before is None else f"offset {seek.before}"
        bounded = " (the nearest that is there)" if seek.is_bounded else ""
        lines.append(f"  {seek.partition}: {before} -> {seek.to}{bounded}")
    lines += [f"  delete topic {topic}" for topic in plan.topics] or ["  no internal topics are there"]
    if plan.state is not None:
        tasks = ", ".join(map(str, plan.tasks))
        lines.append(f"  remove local state in {plan.state}: tasks {tasks}" if tasks else f"  no local state in {plan.state}")
    if plan.unknown:
        lines.append(
            f"  left alone, since this topology has no such topics: {', '.join(plan.unknown)} (of an earlier version, or of "
            "another application: --earlier-topics deletes them, if nothing needs them)"
        )
    return lines


def _timestamp_ms(to_datetime: str | None, by_duration: str | None) -> int | None:
    if to_datetime is not None:
        return datetime_ms(to_datetime)
    if by_duration is None:
        return None
    at_ms = int(time.time() * 1000) - duration_ms(by_duration)
    if at_ms < 0:
        raise ConfigError(f"--by-duration is {by_duration!r}, which begins before 1970: give --to-earliest for all there is")
    return at_ms


def datetime_ms(text: str) -> int:
    """ConfigError unless it is ISO 8601, from 1970 on; UTC if no offset is given."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        at_ms = int((found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(f"--to-datetime is {text!r}, expected such as 2024-05-31T14:00:00 (+02:00)") from None
    if at_ms < 0:
        raise ConfigError(f"--to-datetime is {text!r}, which is before 1970: give --to-earliest for all there is")
    return at_ms


def duration_ms(text: str) -> int:
    """ConfigError unless it is ISO 8601's, in days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.endswith("T"):
        raise ConfigError(f"--by-duration is {text!r}, expected such as PT30M, PT1H or P7D")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    if max(days, hours, minutes, seconds) > _LARGEST // 1000:
        raise ConfigError(f"--by-duration is {text!r}, which is longer than any topic has been there")
    return int(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000)
