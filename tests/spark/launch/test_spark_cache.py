"""A JVM uses the cache of Spark that the installation made, and starts without one that it refuses."""

import logging
import os
import subprocess
from pathlib import Path

import pytest

from tidemill.embedded.jars import cache_folder
from tidemill.embedded.java import find_java
from tidemill.embedded.jvm_cache import FIRST_WITH_AOT
from tidemill.runtime.instance.machine_jvm import spark_cache
from tidemill.spark.launch.jvm_process import JVM_FLAGS, SPARK
from tidemill.spark.launch.session import start_jvm

pytestmark = pytest.mark.spark


def test_a_jvm_uses_the_cache_that_the_installation_made() -> None:
    java = find_java(os.environ)
    cache = spark_cache(java, cache_folder(os.environ))
    assert cache.is_made, f"no {cache.path}: tidemill prepare makes it, make install runs that"
    told = {"AOT cache": ("aot", "Using AOT-linked classes: true"), "class archive": ("cds*", "Mapped dynamic region")}
    tag, used = told[cache.kind]
    options = [*JVM_FLAGS, *cache.options(), f"-Xlog:{tag}=info", "-cp", str(SPARK / "jars" / "*")]
    said = subprocess.run([java.path, *options, "-version"], capture_output=True, text=True, timeout=240, check=True).stdout
    assert used in said
    assert "Unable to" not in said


def test_a_cache_that_the_jvm_refuses_is_told_once_and_it_starts_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    java = find_java(os.environ)
    cache = spark_cache(java, tmp_path)
    if java.major < FIRST_WITH_AOT:
        pytest.skip(f"Java {java.major} has no AOT cache: JEP 514 came with 25")
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"no cache")
    jvm = start_jvm(
        java=java.path, application_id="refused", threads=1, settings={}, heap="256m", jvm_options=cache.options()
    )  # fmt: skip
    try:
        with caplog.at_level(logging.WARNING):
            jvm.wait(240)
        assert [line.split()[0] for line in caplog.messages if "jvm-cache" in line] == ["event=jvm-cache-refused"]
        assert jvm.process.poll() is None
    finally:
        jvm.end()
