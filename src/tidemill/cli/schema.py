"""`tidemill schema infer TOPIC`: the schema that a topic's JSON has, for `Serdes.json(...)`.

Decides what is printed: the schema on standard output, what it does not hold on standard error. How a schema is inferred is
`tidemill.dsl.json_inference`'s.
"""

from __future__ import annotations

import re
import sys
from enum import Enum
from typing import Annotated

import typer

from tidemill.cli.settings import LOCAL_BROKERS, GroupBrokers, GroupConfig, Settings, outside_settings

_TIMEOUT_S = 30.0

app = typer.Typer(help="Schemas of what lies in topics.", no_args_is_help=True)
app.callback()(lambda: None)  # with a callback it stays a group, however few commands it has


class Form(str, Enum):
    """The form in which the schema is printed."""

    DDL = "ddl"
    DATACLASS = "dataclass"


@app.command()
def infer(
    topic: Annotated[str, typer.Argument(help="The topic, whose values are JSON objects.")],
    bootstrap_server: GroupBrokers = None,
    records: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many of its newest records to look at.")] = 1_000,
    form: Annotated[Form, typer.Option("--as", help="As what to print it.")] = Form.DDL,
    required: Annotated[
        bool, typer.Option("--required", help="Fields that each of these records has are required (NOT NULL).")
    ] = False,
    settings: Settings = None,
    config: GroupConfig = None,
) -> None:
    """Print the schema of the JSON objects in a topic, as Serdes.json takes it; say what contradicts it."""
    from tidemill.config.slices import ClientsConfig
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.dsl.json_inference import infer_schema
    from tidemill.kafka.admin.client import Admin
    from tidemill.kafka.data.newest_records import newest_records
    from tidemill.kafka.security.clients import ClientRole, data_client_settings
    from tidemill.topology.naming import legal_name

    legal_name(topic, "a topic")
    given = outside_settings(settings, config, bootstrap_server)
    known = StreamsConfig.read_slice(ClientsConfig, {**LOCAL_BROKERS, **given})
    admin = Admin(data_client_settings(known, ClientRole.ADMIN), timeout_s=15)
    consumer = data_client_settings(known, ClientRole.CONSUMER)
    found = newest_records(consumer, admin, topic, records, timeout_s=_TIMEOUT_S)
    schema = infer_schema((value for one in found if (value := one.value()) is not None), is_required=required)
    for note in schema.notes:
        sys.stderr.write(f"{note}\n")
    sys.stderr.write(f"{topic}: {schema.read} objects read\n")
    typer.echo(schema.ddl if form is Form.DDL else schema.as_dataclass(class_name(topic)))


def class_name(topic: str) -> str:
    """``shop.orders-v2`` is ShopOrdersV2."""
    name = "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", topic))
    return name if name[:1].isalpha() else f"Topic{name}"
