"""The broker's JVMs use the cache that the installation made."""

import os
import subprocess

import pytest

from tidemill.embedded.broker_cache import broker_cache
from tidemill.embedded.broker_plan import JVM_FLAGS
from tidemill.embedded.jars import cache_folder, fetch_bundle
from tidemill.embedded.java import find_java

pytestmark = pytest.mark.broker


def test_a_brokers_jvm_uses_the_cache_that_the_installation_made() -> None:
    java, bundle = find_java(os.environ), fetch_bundle("broker", environ=os.environ)
    cache = broker_cache(java, bundle, cache_folder(os.environ))
    if not cache.can_be_made:
        pytest.skip(f"{java.path} comes without a class archive to add to")
    assert cache.is_made, f"no {cache.path}: tidemill prepare --broker makes it, make install runs that"
    told = {"AOT cache": ("aot", "Using AOT-linked classes: true"), "class archive": ("cds*", "Mapped dynamic region")}
    tag, used = told[cache.kind]
    options = [*JVM_FLAGS, *cache.options(), f"-Xlog:{tag}=info", "-cp", bundle.classpath]
    said = subprocess.run([java.path, *options, "-version"], capture_output=True, text=True, timeout=240, check=True).stdout
    assert used in said
    assert "Unable to" not in said
