"""An application file by spark-submit, in the session that this has set up, on a standalone master; an executor is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.executors import executors, standalone
from tests.runtime.words import Counts, Feed, create_topics, differences
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [
    pytest.mark.cluster, pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(540),
]  # fmt: skip

APPLICATION = "submitted"
DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAM = """
from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder

builder = StreamsBuilder()
lines = builder.stream("submitted-input", key=Serdes.string(), value=Serdes.string())
words = lines.flat_map_values(lambda line: F.array_remove(F.split(F.lower(line), r"\\\\W+"), ""))
words.group_by(lambda _, word: word).count(store="counts").to_stream().to("submitted-output", value=Serdes.long())
config = {"application.id": "submitted"}
"""


def test_an_application_file_runs_by_spark_submit_and_counts_exactly_though_an_executor_dies(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    create_topics(broker.bootstrap_servers, APPLICATION)
    feed, counts = Feed(broker.bootstrap_servers, APPLICATION, seed=4), Counts(broker.bootstrap_servers, APPLICATION)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("\\\\W", "\\W"))
    with standalone(tmp_path / "cluster") as master, (tmp_path / "log").open("w") as log:
        command = [
            str(Path(sys.executable).with_name("spark-submit")), "--properties-file", str(DEPLOY / "spark-submit.conf"),
            "--master", master.url, "--executor-memory", "512m", "--driver-memory", "512m",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
            str(DEPLOY / "submitted.py"), str(program), f"bootstrap.servers={broker.bootstrap_servers}",
            "num.stream.threads=2", f"state.dir={tmp_path / 'state'}", "tidemill.executor.state.dir=state",
            "session.timeout.ms=6000", "heartbeat.interval.ms=500",
        ]  # fmt: skip
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        submitted = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            feed.send(100)
            assert counts.reach(feed.expected.total(), 240), (tmp_path / "log").read_text()[-3000:]
            feed.start()
            first = executors(master.processes())
            min(first.items())[1].send_signal(signal.SIGKILL)
            assert until(lambda: len(found := executors(master.processes())) == 2 and set(found) != set(first))
            feed.stop()
            assert counts.reach(feed.expected.total(), 240), (tmp_path / "log").read_text()[-3000:]
            submitted.send_signal(signal.SIGTERM)  # the shell script has become the JVM, which ends the driver
            submitted.wait(240)
        finally:
            if submitted.poll() is None:
                os.killpg(submitted.pid, signal.SIGKILL)
                submitted.wait(240)
    counts.settle()
    assert differences(counts.latest, feed.expected) == {}
    assert counts.not_rising == []
    counts.close()
