"""Fixtures of the tests that run applications: a Spark session for those within this process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tidemill.kafka.java import find_java
from tidemill.spark.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all applications of this process; they are handed it."""
    handle = open_session(
        java=find_java(dict(os.environ)).path, application_id="tests", threads=4, settings={}, heap="512m", start_limit_s=240
    )
    yield handle.session
    handle.close()
