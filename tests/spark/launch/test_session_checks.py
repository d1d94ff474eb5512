"""Which Spark sessions an instance takes; what is wrong with the others is said in one sentence."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.java_gateway import JavaGateway

from tidemill.errors import ConfigError
from tidemill.runtime.instance.machine_jvm import machine_jvm
from tidemill.spark.launch.jvm_process import gateway_environment
from tidemill.spark.launch.session import start_jvm
from tidemill.spark.launch.session_checks import check_settings, require_classic


def test_a_spark_connect_session_is_refused_with_what_to_hand_in_instead() -> None:
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(ConfigError, match=r"is a Spark Connect session.* hand in a classic one"):
        require_classic(kind())


def test_what_is_no_session_is_named() -> None:
    with pytest.raises(ConfigError, match=r"session is a builtins\.str, expected a SparkSession"):
        require_classic("local[4]")


@pytest.mark.parametrize(("name", "value", "said"), [
    ("SPARK_REMOTE", "sc://somewhere", "SPARK_REMOTE is set"),
    ("SPARK_API_MODE", "Connect", "SPARK_API_MODE=connect is set"),
    ("SPARK_CONNECT_MODE_ENABLED", "1", "SPARK_CONNECT_MODE_ENABLED is set"),
])
def test_a_session_of_our_own_is_refused_where_it_would_be_one_of_spark_connect(name: str, value: str, said: str) -> None:
    """Of an instance as of test drivers and of commands."""
    with pytest.raises(ConfigError, match=f"^{said}.* unset it"):
        machine_jvm({name: value}, application_id="app", threads=1, settings={})


def test_a_session_whose_threads_share_those_of_the_jvm_is_refused() -> None:
    """A job's local properties, which say whose run it is, could be another thread's."""
    shared = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=JavaGateway()))
    with pytest.raises(ConfigError, match=r"started with PYSPARK_PIN_THREAD=false.* Unset it"):
        require_classic(shared)


def test_in_a_session_of_our_own_each_thread_has_one_of_the_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    java, said = tmp_path / "java", tmp_path / "said"
    java.write_text(f"#!/bin/sh\nprintenv PYSPARK_PIN_THREAD > '{said}'\n", encoding="utf-8")
    java.chmod(0o755)
    starting = start_jvm(java=java, application_id="app", threads=1, settings={}, heap="1m")
    starting.process.wait(60)
    starting.end()
    assert said.read_text(encoding="utf-8") == "true\n"
    with gateway_environment(1, "secret"):
        assert os.environ["PYSPARK_PIN_THREAD"] == "true"
    assert os.environ["PYSPARK_PIN_THREAD"] == "false"


def _conf(settings: Mapping[str, str]) -> Mapping[str, str]:
    java = shutil.which("true")
    assert java is not None
    starting = start_jvm(java=Path(java), application_id="app", threads=1, settings=settings, heap="1m")
    starting.end()
    return starting.conf


def test_strangers_are_refused_at_the_ports_of_a_driver_that_has_no_executors_elsewhere() -> None:
    assert _conf({})["spark.authenticate"] == "true"
    assert _conf({"spark.authenticate": "false"})["spark.authenticate"] == "false"
    # Executors elsewhere need a secret that only the user can give to both sides.
    assert "spark.authenticate" not in _conf({"spark.master": "spark://127.0.0.1:7077"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.master", "local[4,3]"),
        ("spark.master", "yarn-of-my-company"),
        ("spark.task.maxFailures", "4"),
        ("spark.redaction.regex", "my-secret["),
    ],
)
def test_a_setting_that_was_looked_up_is_refused_by_its_reference_and_leaves_no_folder(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        start_jvm(
            java=Path("java"), application_id="app", threads=1, settings={name: value}, heap="1m", written={name: "${env:IT}"}
        )
    assert f"{name} is " in str(caught.value)
    assert "${env:IT}" in str(caught.value)
    assert value not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("heap", ["lots", "512", "2 GB", "2gb", "0g", "-1g", "1.5g", ""])
def test_a_heap_that_java_does_not_take_is_refused_with_its_setting(heap: str) -> None:
    with pytest.raises(ConfigError, match=r"^spark\.driver\.memory is .*, expected a whole number with a unit, such as 512m"):
        check_settings({"spark.driver.memory": heap})


@pytest.mark.parametrize("heap", ["512m", "2G", "800000k", "1073741824"])
def test_a_heap_is_as_java_takes_it(heap: str) -> None:
    check_settings({"spark.driver.memory": heap})
