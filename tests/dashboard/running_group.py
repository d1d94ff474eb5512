"""The web page of an instance at work: WordCount on an embedded broker, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from tests.dashboard.browser import Browser
from tidemill.cli.demo import APP
from tidemill.cli.demo_instances import Command, Instances
from tidemill.cli.demo_text import english
from tidemill.embedded.broker import EmbeddedBroker

_START_LIMIT_S = 240.0
_LINES = 400


def check_running(page: Browser, out: Path, verified: Callable[[str], None], require: Callable[[object, str], None]) -> None:
    from tidemill.cli.demo_topics import Counts, Feed, create_topics

    print("one instance of WordCount, running")
    text = english(_LINES)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-page-", ignore_cleanup_errors=True))
        broker = stack.enter_context(EmbeddedBroker(environ=os.environ, start_limit_s=120))
        servers = broker.bootstrap_servers
        create_topics(servers)
        settings = (f"bootstrap.servers={servers}", "metrics.recording.level=DEBUG", "spark.ui.enabled=true")
        command = Command(app=APP, settings=settings, folder=Path(folder), log_level="warning", serve=True)
        instances = stack.enter_context(Instances(1, command))
        counts = stack.enter_context(closing(Counts(servers)))
        instances.start_one()
        _run(page, out, instances, Feed(servers, text.lines), counts, text.counts, verified, require)
        instances.stop()


def _run(page, out, instances, feed, counts, expected, verified, require) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + _START_LIMIT_S
    while counts.by_word() != expected:
        require(time.monotonic() < deadline, f"not counted within {_START_LIMIT_S:.0f} s: {instances.last_words()}")
        instances.check()
        feed.send(min(_LINES, feed.sent + 5))
        counts.take(0.1)
    address = f"http://{instances.started[0].address}"
    page.look(width=1280, height=1500)
    page.driver.get("about:blank")
    page.asked_for()
    page.complaints()
    page.driver.get(address + "/")
    _until(lambda: "12 active tasks" in page.text("#summary"), "its tasks", require)
    squares = page.run("return document.querySelectorAll('.matrix td .square.active').length")
    require(squares == 12, f"12 active tasks, found {squares}")
    word, count = Counter(expected).most_common(1)[0]
    page.run("document.getElementById('key').value = arguments[0]", word)
    page.run("document.querySelector('#query button[value=key]').click()")
    _until(lambda: f"{count:,}" in page.text("#answer td"), f"{count} for {word!r}", require)
    verified(f"its 12 tasks, and the count of {word!r}, {count:,}, as counted without Tidemill")
    page.run("document.querySelector('[data-key=\"task-1_0\"]').click()")
    _until(lambda: "1_0 is active on" in page.text("#why"), "the leader's reason", require)
    page.run("document.getElementById('why').close()")
    verified("why task 1_0 is where it is, in the assignor's words")
    page.picture(out / "running.png")
    _until(lambda: page.text("#scale").startswith("Wanted: 1 instance, present: 1."), "the wanted number of instances", require)
    spark_ui = str(page.run("return document.getElementById('spark-ui').href"))
    require("streams-wordcount" in _get(spark_ui, ""), f"Spark's UI at {spark_ui} names the application")
    verified("the wanted number of instances; Spark's UI answers where the page's link leads, with the application's name")
    _check_figures(address, verified, require)
    require(not (said := page.complaints()), f"the console has said: {said}")
    foreign = {url for url in page.asked_for() if not url.startswith((address, "data:", "about:"))}
    require(not foreign, f"the page has asked for {sorted(foreign)}")
    verified("no error in the console, no request to anywhere else")


def _check_figures(address: str, verified, require) -> None:  # type: ignore[no-untyped-def]
    """What the instance tells Prometheus, a probe and a terminal."""
    from prometheus_client.parser import text_string_to_metric_families

    from tidemill.query.http_metrics import all_exported_names

    samples = [
        sample for family in text_string_to_metric_families(_get(address, "/metrics")) for sample in family.samples
    ]  # fmt: skip
    unknown = {sample.name for sample in samples} - all_exported_names()
    require(not unknown, f"metrics that are not described: {unknown}")
    processed = {s.labels["task_id"]: s.value for s in samples if s.name == "kafka_streams_stream_task_metrics_process_total"}
    lines = sum(count for task, count in processed.items() if task.startswith("0_"))
    require(lines == _LINES, f"process-total of sub-topology 0 is {lines}, expected the {_LINES} lines that were fed")
    verified(f"{len(samples)} metrics; process-total of the first sub-topology's tasks is the {_LINES} lines that were fed")
    require(_get(address, "/health/ready") == '{"status":"up"}', "ready")
    words = [sys.executable, "-m", "tidemill", "top", address.removeprefix("http://"), "--once"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    require("1 of 1 instances running" in told and "12 active tasks" in told and "1_5" in told, f"tidemill top --once: {told}")
    verified("ready for a probe; tidemill top --once shows it")


def _get(address: str, path: str) -> str:
    with urllib.request.urlopen(address + path, timeout=10) as answer:
        return str(answer.read().decode())


def _until(is_so: Callable[[], object], what: str, require: Callable[[object, str], None]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        require(time.monotonic() < deadline, f"waited in vain for {what}")
        time.sleep(0.2)
