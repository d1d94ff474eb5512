"""The session that the drivers of a process share, without a JVM: how it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.testing import shared_session


def test_its_jvm_is_started_as_the_machine_starts_one_soonest_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    ended: list[str] = []
    handle = SimpleNamespace(
        session="the session", process=os.getpid(), close=lambda: ended.append("session"), is_alive=lambda: True
    )

    def launch_jvm(environ: Any, **options: Any) -> Any:
        started.append(options)
        return SimpleNamespace(jvm=SimpleNamespace(session=lambda limit_s: handle), end=lambda: ended.append("processes"))

    monkeypatch.setattr(shared_session, "SparkSession", SimpleNamespace(getActiveSession=lambda: None))
    monkeypatch.setattr(shared_session, "STARTED", shared_session._SharedSession())
    monkeypatch.setattr(shared_session, "launch_jvm", launch_jvm)
    assert [shared_session.shared_session() for _ in range(2)] == ["the session"] * 2
    assert [options["threads"] for options in started] == [1]
    handle.process = os.getpid() + 1  # in a process that was forked from the one that has started it
    shared_session.close_shared_session()
    assert ended == []
    handle.process = os.getpid()
    shared_session.close_shared_session()
    assert ended == ["session", "processes"]


UNFINISHED = """
from pyspark.sql import SparkSession
from tidemill import Serdes, StreamsBuilder
from tidemill.testing import TopologyTestDriver
settings = {"spark.ui.enabled": "false", "spark.driver.host": "localhost"}
SparkSession.builder.master("local[3]").config(map=settings).getOrCreate()
text, builder = Serdes.string(), StreamsBuilder()
builder.stream("in", key=text, value=text).map_values(lambda value: value).to("out", key=text, value=text)
driver = TopologyTestDriver(builder.build())
driver.create_input_topic("in", key=text, value=text).pipe_input("k", "v")
print(driver.create_output_topic("out", key=text, value=text).read_values())
"""


@pytest.mark.spark
def test_a_driver_that_is_not_closed_ends_with_its_process_without_an_error_of_sparks() -> None:
    """In the program's own session: its workers ended in the middle of a job, which Spark logs as a crash."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    program = [sys.executable, "-c", UNFINISHED]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert (ended.returncode, ended.stdout.strip()) == (0, "['v']")
    assert [line for line in ended.stderr.splitlines() if "ERROR" in line or "Traceback" in line] == []


PRINTING = """
import logging, warnings
from tidemill import Serdes, StreamsBuilder
from tidemill.testing import TopologyTestDriver

def show(key, value):
    print(key, value)
    logging.getLogger("orders").warning("logged %s", value)
    warnings.warn("warned of " + value)

text, builder = Serdes.string(), StreamsBuilder()
stream = builder.stream("in", key=text, value=text)
stream.print("label")
stream.foreach(show)
with TopologyTestDriver(builder.build()) as driver:
    topic = driver.create_input_topic("in", key=text, value=text)
    for value in ("é", "two"):
        topic.pipe_input("k", value)
        print("piped", value)
print("closed")
"""


@pytest.mark.spark
def test_what_functions_print_log_and_warn_of_is_shown_before_the_next_line_of_the_test() -> None:
    """Spark gives it to the JVM's log, which nobody reads."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    ended = subprocess.run([sys.executable, "-c", PRINTING], capture_output=True, timeout=240, check=False, env=environment)
    said, errors = ended.stdout.decode().splitlines(), ended.stderr.decode()
    assert (ended.returncode, said[2::3], said[-1]) == (0, ["piped é", "piped two"], "closed")
    assert {*said[0:2]} == {"[label]: k, é", "k é"}
    assert {*said[3:5]} == {"[label]: k, two", "k two"}
    assert errors.count("logged") == 2
    assert "UserWarning: warned of é" in errors
    assert "Traceback" not in errors
