"""What an instance does on a cluster master, and that a master which is only referred to is the one that is found."""

from __future__ import annotations

import pytest

from tidemill.config.slices import SparkConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError
from tidemill.runtime.instance.executors import control_listener, master_of, require_one_machine


def config_of(master: str) -> SparkConfig:
    return StreamsConfig.read_slice(SparkConfig, {"application.id": "app", "spark.master": master})


def test_a_master_that_is_referred_to_is_the_one_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("${env:MASTER}")
    monkeypatch.setenv("MASTER", "local[2]")
    assert master_of(config, None) == "local[2]"
    assert control_listener(config, None) is None
    require_one_machine(config, None, {"KSTREAM-FOREACH-0000000001": print})


def test_errors_show_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("${env:MASTER}")
    monkeypatch.setenv("MASTER", "yarn-of-my-company")
    for refused in (
        lambda: control_listener(config, None),
        lambda: require_one_machine(config, None, {"KSTREAM-FOREACH-0000000001": print}),
    ):
        with pytest.raises(ConfigError) as caught:
            refused()
        assert "${env:MASTER}" in str(caught.value)
        assert "my-company" not in str(caught.value)
