"""What PySpark's converters of arguments take stays as it is, and asking costs no import of pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from pyspark.sql import types

from tidemill.spark.call_arguments import look_at_arguments_only

VALUES = [np.int64(1), np.float32(0.5), np.array([1, 2]), np.zeros((2, 2)), 1, 1.0, "text", None, [1, 2], b"x"]


def test_the_same_values_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    converters = (types.NumpyScalarConverter, types.NumpyArrayConverter)
    before = [[kind().can_convert(value) for value in VALUES] for kind in converters]
    for kind in converters:
        monkeypatch.setattr(kind, "can_convert", kind.can_convert)  # put back after the test
    look_at_arguments_only()
    assert [[kind().can_convert(value) for value in VALUES] for kind in converters] == before
    assert [sum(taken) for taken in before] == [2, 1]


def test_asking_imports_no_pandas() -> None:
    code = (
        "import sys; from pyspark.sql import types; from tidemill.spark.call_arguments import look_at_arguments_only as look\n"
        "look(); types.NumpyScalarConverter().can_convert('a'); types.NumpyArrayConverter().can_convert('a')\n"
        "sys.exit('pandas' in sys.modules or 'pyspark.testing' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
