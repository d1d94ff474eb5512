"""Metrics as Prometheus reads them (GET /metrics).

Decides the names: those that Prometheus' JMX exporter gives to Kafka Streams' metrics, so that dashboards made for these fit:
``kafka_streams_stream_thread_metrics_process_rate{thread_id="..."}``. A text (the state) is a gauge of 1 with the text as the
label ``value``; the topology's description is left to GET /topology. Totals are counters, all else are gauges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from tidemill.metrics.names import Metric, MetricName, all_names

TEXT = "text/plain; version=0.0.4"
_LEFT_OUT = frozenset({"topology-description"})
_GAUGES_IN_SPITE_OF_THEIR_NAME = frozenset({"restore-remaining-records-total"})
_UNFIT = re.compile(r"[^a-zA-Z0-9_]")


def exported_name(group: str, name: str) -> str:
    """The name under which the metric is exported."""
    if group.startswith("tidemill-"):
        return _fit(f"{group.removesuffix('-metrics')}-{name}")
    domain = "kafka_consumer" if group.startswith("consumer-") else "kafka_streams"
    return f"{domain}_{_fit(group)}_{_fit(name)}"


def all_exported_names() -> frozenset[str]:
    """Prometheus names of all metrics of the level TRACE."""
    return frozenset(exported_name(group, name) for group, name, _ in all_names() if name not in _LEFT_OUT)


def to_prometheus(metrics: Mapping[MetricName, Metric]) -> bytes:
    """The text format, a family for each name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(metrics.values()))
    return generate_latest(registry)


class _Metrics(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        families: dict[tuple[str, str], list[Metric]] = {}
        for metric in self._metrics:
            described = metric.metric_name
            if described.name not in _LEFT_OUT:
                families.setdefault((described.group, described.name), []).append(metric)
        for (group, name), of_name in families.items():
            yield _family(exported_name(group, name), name, of_name)


def _family(exported: str, name: str, metrics: list[Metric]) -> Family:
    first = metrics[0]
    is_text = isinstance(first.metric_value, str)
    labels = [_fit(key) for key, _ in first.metric_name.tags] + (["value"] if is_text else [])
    is_counter = name.endswith("-total") and name not in _GAUGES_IN_SPITE_OF_THEIR_NAME
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    family = kind(exported, first.metric_name.description, labels=labels)
    for metric in metrics:
        tags, value = [value for _, value in metric.metric_name.tags], metric.metric_value
        if isinstance(value, str):
            family.add_metric([*tags, value], 1)
        else:
            family.add_metric(tags, value)
    return family


def _fit(text: str) -> str:
    return _UNFIT.sub("_", text)
