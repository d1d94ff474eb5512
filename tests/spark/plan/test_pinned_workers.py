"""The Python that a session of the application starts for its workers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkContext

from tidemill.errors import ConfigError
from tidemill.spark.plan.pinned_workers import require_own_version


def context(master: str, executable: str) -> SparkContext:
    return cast(SparkContext, SimpleNamespace(master=master, pythonExec=executable))


@pytest.fixture
def of_python_2(tmp_path: Path) -> str:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 2.7\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("master", ["local", "local[2]"])
def test_workers_of_another_python_version_are_refused_with_what_to_set(master: str, of_python_2: str) -> None:
    expected = rf"starts {of_python_2} .* Python 2\.7; this process is Python 3\.\d+: .* PYSPARK_PYTHON={sys.executable}"
    with pytest.raises(ConfigError, match=expected):
        require_own_version(context(master, of_python_2))


def test_workers_of_this_version_or_elsewhere_or_that_cannot_be_asked_are_left_to_spark(
    of_python_2: str, tmp_path: Path
) -> None:
    executables = [("local[2]", sys.executable), ("spark://host:7077", of_python_2), ("local[2]", str(tmp_path / "none"))]
    copied = tmp_path / "same"
    copied.symlink_to(sys.executable)
    for master, executable in [*executables, ("local[2]", str(copied))]:
        require_own_version(context(master, executable))
