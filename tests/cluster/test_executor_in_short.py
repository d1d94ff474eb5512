"""One executor of a ``local-cluster``, in short: that workers elsewhere count exactly has to hold before a change goes in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.executors import running
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(540)]


def test_a_worker_on_an_executor_counts_exactly(broker: EmbeddedBroker, tmp_path: Path) -> None:
    settings = {"spark.master": "local-cluster[1,1,1024]", "num.stream.threads": 1}
    with running(broker.bootstrap_servers, "one-executor", tmp_path / "one", settings, seed=1) as run:
        run.some_words_are_counted_exactly()
        assert set().union(*run.places()) == {"0"}
