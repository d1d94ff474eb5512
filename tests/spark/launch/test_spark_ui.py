"""Spark's own UI, on with one setting: it listens on this machine only, names each job's thread, and is linked from the page."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.cli.cli_process import LIMIT_S, CliProcess, cli
from tests.waiting import until
from tidemill.kafka.admin.client import Admin, TopicSpec


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return json.load(answer)


def listeners_of(run: CliProcess, port: int) -> set[str]:
    """Addresses at which a process of the command listens on this port."""
    found = []
    for process in run.family():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found += process.net_connections("inet")
    return {one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN and one.laddr.port == port}


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_jobs_say_whose_they_are_on_this_machine_only(
    tmp_path: Path, bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    application, topic = unique_name("ui"), unique_name("lines")
    Admin({"bootstrap.servers": bootstrap_servers}).create_topics([TopicSpec(name=topic, partitions=1)])
    app = tmp_path / "app.py"
    app.write_text(
        "from tidemill import Serdes, StreamsBuilder\nbuilder = StreamsBuilder()\n"
        f"config = {{'application.id': {application!r}, 'bootstrap.servers': {bootstrap_servers!r}}}\n"
        f"builder.stream({topic!r}, key=Serdes.string(), value=Serdes.string()).group_by_key().count(store='counts')\n"
    )
    settings = ("--set", "spark.ui.enabled=true", "--set", "spark.ui.port=0", "--set", "client.id=billing")
    with cli("run", app, "--state-dir", tmp_path, "--serve", "127.0.0.1:0", *settings) as run:
        page = run.wait_for_line("the group's page").rpartition(" ")[2]
        address = read(f"{page}instance")["spark_ui"]
        [spark] = read(f"{address}/api/v1/applications")
        assert spark["name"] == application

        def described() -> set[str]:
            return {job.get("description", "") for job in read(f"{address}/api/v1/applications/{spark['id']}/jobs")}

        wanted = {
            f"{application}: starts the workers of billing-StreamThread-1",
            f"{application}: micro-batches of billing-StreamThread-1",
        }
        assert until(lambda: wanted <= described()), described()
        port = urlsplit(address).port
        assert port is not None
        assert {ip.removeprefix("::ffff:") for ip in listeners_of(run, port)} == {"127.0.0.1"}
        run.interrupt()
        assert run.end() == 130
