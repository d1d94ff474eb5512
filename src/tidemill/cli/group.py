"""`tidemill group`: what a consumer group owns and how far behind it is.

Decides how the group's offsets, the ends of its logs and its members are joined into the table that Kafka's own
kafka-consumer-groups prints; what the brokers say is asked in `tidemill.kafka.admin.client`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.settings import LOCAL_BROKERS, Group, GroupBrokers, GroupConfig, Settings, outside_settings
from tidemill.errors import EnvironmentProblem
from tidemill.ids import TopicPartition
from tidemill.printable import printable
from tidemill.text_table import table_lines

if TYPE_CHECKING:
    from tidemill.kafka.admin.groups import GroupMemberState, GroupState

COLUMNS = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET"),
    *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
)
_UNKNOWN = "-"
_LIMIT_S = 15.0

app = typer.Typer(help="Look at consumer groups.", no_args_is_help=True)
app.callback()(lambda: None)  # with a callback it stays a group, however few commands it has


@app.command()
def describe(
    group: Group, bootstrap_server: GroupBrokers = None, settings: Settings = None, config: GroupConfig = None
) -> None:
    """Show each partition's committed offset, end, lag and owner."""
    from tidemill.config.slices import ClientsConfig
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.kafka.admin.client import Admin
    from tidemill.kafka.admin.groups import describe_group
    from tidemill.kafka.security.clients import ClientRole, data_client_settings, group_client_settings

    given = outside_settings(settings, config, bootstrap_server)
    clients = StreamsConfig.read_slice(ClientsConfig, {**LOCAL_BROKERS, **given})
    admin = Admin(data_client_settings(clients, ClientRole.ADMIN), timeout_s=_LIMIT_S)
    state = describe_group(group_client_settings(clients), group, limit_s=_LIMIT_S)
    committed = admin.committed_offsets(group)
    if state is None and not committed:
        raise EnvironmentProblem(f"consumer group {group!r} does not exist at {clients.bootstrap_servers}")
    owned = {tp for member in (state.members if state else ()) for tp in member.assignment}
    wanted = sorted(owned | committed.keys())
    partitions = admin.partitions({tp.topic for tp in wanted})
    there = [tp for tp in wanted if tp.partition < (partitions[tp.topic] or 0)]
    rows = group_rows(group, state, committed, admin.end_offsets(there))
    if state is None or not state.members:
        sys.stderr.write(f"consumer group {group!r} has no active members\n")
    elif state.state != "Stable":
        sys.stderr.write(f"consumer group {group!r} is in state {state.state}\n")
    typer.echo("\n".join(aligned([COLUMNS, *rows])))


@app.command()
def members(
    group: Group,
    bootstrap_server: GroupBrokers = None,
    app_file: Annotated[Path | None, typer.Option("--app", help="The application file, for its exact topology.")] = None,
    settings: Settings = None,
    config: GroupConfig = None,
) -> None:
    """Show each member's tasks: active, standby or warm-up, and how far behind a copy is."""
    from tidemill.cli.assign_live_group import Question
    from tidemill.cli.group_tasks import COLUMNS as TASK_COLUMNS
    from tidemill.cli.group_tasks import member_rows

    given = outside_settings(settings, config, bootstrap_server)
    rows, remarks = member_rows(Question(application_id=group, app=app_file, settings=given))
    typer.echo("\n".join(aligned([TASK_COLUMNS, *rows])))
    for remark in remarks:
        sys.stderr.write(f"{remark}\n")


@app.command()
def history(
    group: Group,
    bootstrap_server: GroupBrokers = None,
    last: Annotated[int, typer.Option("--last", min=1, max=1_000, help="Number of the newest rebalances to show.")] = 100,
    why: Annotated[bool, typer.Option("--why", help="Show the assignor's reason for each move.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the instances' data as one JSON array.")] = False,
    settings: Settings = None,
    config: GroupConfig = None,
) -> None:
    """Show the last rebalances, what moved and why, from the instances that led them."""
    from tidemill.cli.group_history import fetched_history, history_lines
    from tidemill.query.document_reader import to_plain

    found, remarks = fetched_history(group, outside_settings(settings, config, bootstrap_server))
    shown = found[-last:]
    typer.echo(json.dumps(to_plain(shown), ensure_ascii=False) if as_json else "\n".join(history_lines(shown, why=why)))
    for remark in remarks:
        sys.stderr.write(f"{remark}\n")


def group_rows(
    group: str,
    state: GroupState | None,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[tuple[str, ...]]:
    """A row per partition that has an offset or an owner, by topic and partition; then the members that own nothing."""
    members = state.members if state is not None else ()
    owners = {partition: member for member in members for partition in member.assignment}
    rows = []
    for partition in sorted(owners.keys() | committed.keys()):
        current, end = committed.get(partition), ends.get(partition)
        lag = None if current is None or end is None else max(0, end - current)
        facts = (partition.topic, partition.partition, current, end, lag)
        rows.append((group, *map(_shown, facts), *_who(owners.get(partition))))
    rows += [(group, *(_UNKNOWN,) * 5, *_who(member)) for member in members if not member.assignment]
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as kafka-consumer-groups lays them out; names that members chose are in printable characters."""
    return table_lines([[printable(cell) for cell in row] for row in rows], gap=" ")


def _who(member: GroupMemberState | None) -> tuple[str, str, str]:
    return (_UNKNOWN,) * 3 if member is None else (member.member_id, member.host, member.client_id)


def _shown(fact: object) -> str:
    return _UNKNOWN if fact is None else str(fact)
