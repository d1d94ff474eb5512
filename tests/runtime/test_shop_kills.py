"""Random kills of workers, JVM and driver under an application with windows, joins and versions: outputs and changelogs are those
that the input alone gives, timestamps included.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.runtime.instance_process import InstanceProcess
from tests.runtime.shop import Shop, create_shop_topics, wrong
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.task.commit import ORDER

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(1800)]

APPLICATION = "shop"
SEED = 20_261_122
FAULTS = ("worker", "driver", "worker", "jvm", "source", "tree")
"""One for each turn of tables or sales; at the end everything is lost but Kafka."""


def test_kills_change_nothing_of_what_comes_out(broker: EmbeddedBroker, tmp_path: Path) -> None:
    moments = random.Random(SEED)
    create_shop_topics(broker.bootstrap_servers, APPLICATION)
    shop = Shop(broker.bootstrap_servers, APPLICATION, SEED)
    instance = InstanceProcess(tmp_path / "one", broker.bootstrap_servers, APPLICATION, program="shop")
    instance.start()
    try:
        instance.wait_running()
        for turn, fault in enumerate(FAULTS):
            _turn(instance, shop, fault, moments, tables=turn % 2 == 0)
        assert until(lambda: wrong(shop.latest("named"), shop.named) == {}), wrong(shop.latest("named"), shop.named)
        assert instance.close() == 0
        _everything_is_right(shop)
    finally:
        instance.end()


def _turn(instance: InstanceProcess, shop: Shop, fault: str, moments: random.Random, *, tables: bool) -> None:
    send = shop.change_tables if tables else lambda: shop.sell(60)
    if fault in ("worker", "source"):
        step = "source" if fault == "source" else max(s for s in instance.look()["workers"][0] if s != "source")
        at = moments.choice(("start", "chunk", "end")) if fault == "source" else moments.choice(ORDER).value
        order = instance.order(step, at, signal.SIGKILL, "self")
        send()
        shop.flush()
        assert until(lambda: not order.exists()), instance.log_end()
    else:
        send()
        shop.flush()
        {"driver": instance.kill_driver, "jvm": instance.kill_jvm, "tree": instance.kill_tree}[fault]()
        send()
        shop.flush()
        instance.start()
        instance.wait_running()
    assert until(shop.is_committed), f"not all is committed: {instance.log_end()}"


def _everything_is_right(shop: Shop) -> None:
    windows = {key: (int(value), at) for key, (value, at) in shop.latest("windows").items()}
    assert wrong(windows, shop.windows) == {}
    assert wrong(shop.window_changelog(), shop.windows) == {}
    for name, expected in (("priced", shop.priced), ("asof", shop.asof)):
        found = list(shop.out(name))
        assert len(found) == len(set(found)), f"{name} has records twice"
        assert set(found) == set(expected), name
    assert wrong({row.key: (row.value, row.timestamp) for row in shop.changelog("prices")}, shop.prices) == {}
    assert sorted(map(str, shop.changelog("history"))) == sorted(map(str, shop.versions))
    named = {row.key: row for row in shop.changelog("named")}
    assert wrong({k: (row.value, row.timestamp) for k, row in named.items() if row.value is not None}, shop.named) == {}
