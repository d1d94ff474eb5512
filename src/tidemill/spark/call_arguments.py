"""Arguments of calls of the JVM, tested for numpy's types without importing what PySpark imports for that.

PySpark's converters look at every argument, and learn from ``pyspark.testing`` whether there is numpy: that imports pandas,
unittest and more, half a second of processor time and 30 MiB in every driver. Decides nothing: they convert what they did.
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import types


def look_at_arguments_only() -> None:
    """From now on, in this process."""
    types.NumpyScalarConverter.can_convert = lambda _, value: isinstance(value, np.generic)  # type: ignore[method-assign, assignment]
    types.NumpyArrayConverter.can_convert = _is_flat_array  # type: ignore[method-assign, assignment]


def _is_flat_array(_: types.NumpyArrayConverter, value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1
