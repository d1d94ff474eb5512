"""The columns of a layer's rows, under names of their own within it: ``:node``, ``:value``.

A function of Columns gets its Columns as arguments. One that names them instead, as in ``F.upper("value")``, would otherwise get
what the row travels as, before all changes of the projection in the making.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemill.steps.rows import schema as rows

_MARK = ":"


def row(name: str) -> Column:
    """A column of ``schema``, or of the layer's own, within a layer."""
    return F.col(f"`{own(name)}`")


def own(name: str) -> str:
    """The name that such a column has."""
    return _MARK + name


def is_own(name: str) -> bool:
    """True if a column is one of those, not a typed one of a layer."""
    return name.startswith(_MARK)


def in_layer(frame: DataFrame) -> DataFrame:
    """Rows that a Python step has made, as a layer has them."""
    return frame.toDF(*map(own, frame.columns))


def out_of_layer(frame: DataFrame) -> DataFrame:
    """Rows of a layer, as a Python step gets them."""
    return frame.select(*[row(name).alias(name) for name in rows.DDL])
