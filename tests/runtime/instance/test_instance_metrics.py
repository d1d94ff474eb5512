"""Metrics: what was recorded stands under Kafka Streams' names, at its levels and with its tags, and in the documentation."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.runtime.instance.measured_instance import INPUT, Clock, measured, report
from tidemill.config.slices import ClientsConfig, StatusConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.dsl.builder import StreamsBuilder
from tidemill.dsl.serdes import Serdes
from tidemill.ids import ProcessId, TopicPartition
from tidemill.membership.member_state import TimePassed
from tidemill.membership.wire import HostInfo
from tidemill.metrics.names import CATALOGUE, Metric, RecordingLevel, all_names
from tidemill.metrics.sensor import Window
from tidemill.query.document_reader import read_document, to_plain
from tidemill.query.group_documents import InstanceDocument
from tidemill.query.http_answer import to_json
from tidemill.query.http_metrics import all_exported_names, to_prometheus
from tidemill.query.metadata import HostMap
from tidemill.runtime.group.rebalance_history import RebalanceHistory
from tidemill.runtime.instance.draining import Draining
from tidemill.runtime.instance.instance_state import InstanceState
from tidemill.runtime.instance.instance_status import InstanceStatus
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.task.standby import StandbyTask

ROOT = Path(__file__).parents[3]
NOW_MS = int(time.time() * 1e3)


def value(metrics: dict, name: str, group: str, **tags: str) -> float | str:
    """The one metric of this name whose tags are these among others."""
    wanted = {key.replace("_", "-"): text for key, text in tags.items()}
    found = [
        metric for told, metric in metrics.items()
        if (told.name, told.group) == (name, group) and wanted.items() <= dict(told.tags).items()
    ]  # fmt: skip
    assert len(found) == 1, f"{name} of {group}: {found}"
    one: Metric = found[0]
    return one.metric_value


def test_an_instance_that_has_done_everything_has_every_metric_of_the_catalogue() -> None:
    found = {(told.group, told.name) for told in measured(RecordingLevel.TRACE)}
    assert found == {(group, name) for group, name, _ in all_names()}


@pytest.mark.parametrize("level", list(RecordingLevel))
def test_a_level_has_what_is_of_it_and_below(level: RecordingLevel) -> None:
    found = {(told.group, told.name) for told in measured(level)}
    assert found == {(group, name) for group, name, of in all_names() if of <= level}


def test_what_was_recorded_is_what_is_reported() -> None:
    metrics = measured(RecordingLevel.TRACE, NOW_MS)
    thread = {"thread_id": "app-1-StreamThread-1"}
    assert value(metrics, "process-total", "stream-thread-metrics", **thread) == 200
    assert value(metrics, "process-rate", "stream-thread-metrics", **thread) == pytest.approx(200 / 30)
    assert value(metrics, "process-latency-avg", "stream-thread-metrics") == 4.0
    assert value(metrics, "commit-total", "stream-thread-metrics") == 2
    assert value(metrics, "commit-latency-max", "stream-thread-metrics") == 12.0
    assert value(metrics, "poll-total", "stream-thread-metrics") == 2
    assert value(metrics, "poll-records-avg", "stream-thread-metrics") == 140
    assert value(metrics, "task-created-total", "stream-thread-metrics") == 4
    assert value(metrics, "task-closed-total", "stream-thread-metrics") == 1
    assert value(metrics, "process-total", "stream-task-metrics", task_id="1_0") == 200
    assert value(metrics, "active-process-ratio", "stream-task-metrics", task_id="1_0") == 1.0
    assert value(metrics, "dropped-records-total", "stream-task-metrics", task_id="all") == 6
    assert value(metrics, "restore-total", "stream-task-metrics", task_id="1_1") == 60
    assert value(metrics, "restore-remaining-records-total", "stream-task-metrics", task_id="1_1") == 70
    assert value(metrics, "update-total", "stream-task-metrics", task_id="1_2") == 20
    assert value(metrics, "put-rate", "stream-state-metrics", lmdb_state_id="counts") == pytest.approx(100 / 30)
    assert value(metrics, "records-lag", "consumer-fetch-manager-metrics", partition="0") == 20
    assert value(metrics, "rebalance-latency-total", "consumer-coordinator-metrics") == 250
    assert value(metrics, "last-rebalance-seconds-ago", "consumer-coordinator-metrics") == 2.0
    assert value(metrics, "heartbeat-response-time-max", "consumer-coordinator-metrics") == 3.0
    assert value(metrics, "last-heartbeat-seconds-ago", "consumer-coordinator-metrics") == 2.0
    assert value(metrics, "copy-seconds-left", "tidemill-copy-metrics", task_id="1_1") == 10.0
    assert math.isnan(float(value(metrics, "copy-seconds-left", "tidemill-copy-metrics", task_id="1_2")))
    assert value(metrics, "client-state", "stream-metrics", application_id="app") == 2


def test_what_the_functions_of_each_node_took_in_two_micro_batches_is_reported() -> None:
    metrics = measured(RecordingLevel.INFO, NOW_MS)

    def told(node: str) -> dict[str, float]:
        tags = {"thread-id": "app-1-StreamThread-1", "processor-node-id": node}
        return {
            name.name: round(float(metric.metric_value), 4)
            for name, metric in metrics.items()
            if name.group == "tidemill-function-metrics" and dict(name.tags) == tags
        }

    of_batches = {
        "process-rate": round(200 / 30, 4), "process-total": 200, "process-latency-avg": 6.0, "process-latency-max": 6.0,
        "process-ratio": round(12 / 30 / 1e3, 4), "call-rate": round(6 / 30, 4), "call-total": 6, "call-latency-avg": 2.0,
        "call-latency-max": 4.0, "failed-records-rate": round(2 / 30, 4), "failed-records-total": 2,
    }  # fmt: skip
    assert told("score") == of_batches
    assert told("ask") == of_batches | {
        "process-latency-avg": 40.0, "process-latency-max": 40.0, "process-ratio": round(80 / 30 / 1e3, 4),
        "call-rate": round(200 / 30, 4), "call-total": 200, "call-latency-avg": 5.0, "call-latency-max": 50.0,
        "failed-records-rate": round(4 / 30, 4), "failed-records-total": 4, "timeout-rate": round(2 / 30, 4),
        "timeout-total": 2, "in-flight-max": 16,
    }  # fmt: skip


def test_the_age_of_records_is_that_at_their_commit() -> None:
    metrics = measured(RecordingLevel.INFO, NOW_MS)
    ages = [
        float(value(metrics, f"record-e2e-latency-{what}", "stream-processor-node-metrics", processor_node_id="counts-source"))
        for what in ("min", "avg", "max")
    ]
    assert ages == [10.0, 20.0, 30.0]


def test_a_task_that_is_given_up_leaves_no_lag_behind() -> None:
    from tests.runtime.instance.measured_instance import FOLLOWS, INPUT, Clock, measured_thread, tasks

    thread = measured_thread(Clock(), NOW_MS)
    assert INPUT in thread.metrics.ends
    held = tasks(*thread.tasks.values(), standbys=[FOLLOWS])
    thread.metrics.changed(held, tasks(standbys=[FOLLOWS]), TimePassed())
    assert INPUT not in thread.metrics.ends
    assert not thread.metrics.sensors.of("put")


def test_what_a_paused_instance_holds_still_is_told_as_such() -> None:
    metrics = measured(RecordingLevel.INFO, is_paused=True)
    updater = "stream-state-updater-metrics"
    assert [value(metrics, f"active-{what}-tasks", updater) for what in ("restoring", "paused")] == [0, 1]
    assert [value(metrics, f"standby-{what}-tasks", updater) for what in ("updating", "paused")] == [0, 1]


def no_drain() -> Draining:
    clients = StreamsConfig.read_slice(ClientsConfig, {"bootstrap.servers": "localhost:9092"})
    return Draining("app", clients, [], process_id=lambda: ProcessId(1, 1), is_open=lambda: True, close=lambda: None)


def test_who_is_to_have_what_is_told_from_the_assignments_partitions() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=Serdes.string(), value=Serdes.string())
    lines.group_by_key().count(store="counts").to_stream().to("out", key=Serdes.string(), value=Serdes.long())
    config = StreamsConfig.read_slice(StatusConfig, {"application.id": "app"})
    led = RebalanceHistory()
    status = InstanceStatus(
        config, builder.build(), ProcessId(1, 1), InstanceState("app"), [], led, host="one:1", error=lambda: None,
        draining=no_drain(),
    )  # fmt: skip
    one, two = HostInfo("one", 1), HostInfo("two", 2)
    inputs = {one: (TopicPartition("lines", 2), TopicPartition("lines", 0)), two: (TopicPartition("lines", 1),)}
    assert status.assigned(HostMap(active=inputs)) == {"one:1": ["0_0", "0_2"], "two:2": ["0_1"]}
    document = status.status()
    assert (document["state"], document["ready"], document["threads"], document["led"]) == ("CREATED", False, [], [])
    json.dumps(document, allow_nan=False)


def test_what_an_instance_tells_of_its_threads_is_what_others_can_read() -> None:
    from tests.runtime.instance.measured_instance import FOLLOWS, measured_thread

    config = StreamsConfig.read_slice(StatusConfig, {"application.id": "app"})
    builder = StreamsBuilder()
    builder.stream("lines", key=Serdes.string(), value=Serdes.string()).to("out", key=Serdes.string(), value=Serdes.string())
    thread = measured_thread(Clock(), NOW_MS)
    standbys = {FOLLOWS: StandbyTask(task=FOLLOWS, changelogs={}, directory="", epoch="")}
    vars(thread).update(number=1, why_waiting="", is_running=True, standbys=standbys)
    status = InstanceStatus(
        config, builder.build(), ProcessId(1, 1), InstanceState("app"), [thread], RebalanceHistory(),
        host="one:1", error=lambda: None, draining=no_drain(),
    )  # fmt: skip
    told = json.loads(to_json(status.status()))
    read = read_document(InstanceDocument, told)
    assert read.threads[0].active
    assert read.threads[0].standby
    plain = to_plain(read)
    for copy in plain["threads"][0]["standby"]:
        assert copy.pop("role") == "standby"
    assert plain == told


def test_what_a_thread_can_do_is_the_most_that_it_did_while_more_was_waiting() -> None:
    clock = Clock()
    metrics = ThreadMetrics(Window(), now_s=clock)
    metrics.batch(report(NOW_MS, records=10), 0.05)
    rates = [metrics.capacity_per_s]
    for records, waiting in ((1_000, 500), (1_000, 5_000), (100, 100), (0, 5_000)):
        clock.s += 1
        told = replace(report(NOW_MS, records=records), ends={INPUT: 500}, high_watermarks={INPUT: 500 + waiting})
        metrics.batch(told, 0.05)
        rates.append(metrics.capacity_per_s)
    assert rates[0] is not None, "twenty records were waiting"
    assert rates[1] == rates[0], "fewer were waiting than it had just done"
    assert rates[2] is not None
    assert rates[2] > rates[0]
    assert rates[3] >= rates[2]
    assert rates[4] == rates[3]


def test_sensors_of_a_task_are_forgotten_while_another_thread_records_to_a_new_one() -> None:
    """The first heartbeat is answered on a thread of its own."""
    metrics = ThreadMetrics(Window(), now_s=Clock())

    class HeartbeatMeanwhile(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            metrics.heartbeat(1.0)
            return super().__eq__(other)

    metrics.sensors.at("put", "task")
    metrics.sensors.forget(HeartbeatMeanwhile("put"), "task")
    assert not metrics.sensors.of("put")
    assert metrics.sensors.of("heartbeat")


def test_prometheus_reads_all_of_it() -> None:
    exported = {
        sample.name for family in text_string_to_metric_families(to_prometheus(measured(RecordingLevel.TRACE)).decode())
        for sample in family.samples
    }  # fmt: skip
    assert exported == all_exported_names()


# --- what is written about them ------------------------------------------------------------------------------------------


def test_every_query_of_the_dashboard_names_metrics_and_labels_that_there_are() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "tidemill.json").read_text())
    labels = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(to_prometheus(measured(RecordingLevel.INFO)).decode())
        for sample in family.samples
    }
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    assert len(queries) > 15
    for query in queries:
        named = re.findall(r"\b((?:kafka_|tidemill_)\w+)(?:\{([^}]*)\})?", query)
        assert named, query
        for name, selector in named:
            assert name in labels, f"{query}: no metric {name} at the level INFO"
            asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert asked <= labels[name] | {"job", "instance"}, f"{query}: {name} has no label {asked - labels[name]}"


def test_the_documentation_has_every_metric_and_no_other() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    told: set[tuple[str, str]] = set()
    group = ""
    for line in text.splitlines():
        heading = re.match(r"#+ .*`([a-z-]+-metrics)`", line)
        group = heading[1] if heading else group
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 3 and cells[1] in ("have", "differs", "ours"):
            told |= {(group, name) for name in _expanded(cells[0])}
    assert told == {(group, name) for group, names in CATALOGUE.items() for name in names}


def _expanded(cell: str) -> list[str]:
    """`process-rate`, `-total` stands for both."""
    names = re.findall(r"`([^`]+)`", cell)
    stem = names[0].rpartition("-")[0]
    return [name if not name.startswith("-") else stem + name for name in names]
