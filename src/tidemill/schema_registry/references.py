"""The schemas that a writer's schema refers to.

Decides how many are looked up: whoever may register schemas can make them grow with the power of their number, or refer in a
circle where the registry is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemill.errors import SerdeError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema

MOST, DEEPEST = 1_000, 64


def referenced(
    kind: str, schema: Schema, look_up: Callable[[str, int], RegisteredSchema], *, once: bool = False
) -> list[Schema]:
    """The schemas that one refers to, those that they refer to first; each as often as there are ways to it, or ``once``, as the
    deserializer looks them up. ``look_up``: that of a subject and a version.

    Raises:
        SerdeError: these are too many.
    """
    found: list[Schema] = []
    seen: set[str | None] = set()

    def add(referring: Schema, depth: int) -> None:
        for reference in referring.references or ():
            if once and reference.name in seen:
                continue
            seen.add(reference.name)
            if reference.subject is None or reference.version is None:
                raise ValueError(f"the schema refers to {reference.name} without a subject and a version")
            if depth == DEEPEST or len(found) >= MOST:
                what = f"more than {MOST} others" if once else f"others on more than {MOST} ways"
                raise SerdeError(
                    f"{kind}: the writer's schema refers to {what}, or more than {DEEPEST} deep: "
                    "the writer has to use another schema"
                )
            other = look_up(reference.subject, reference.version).schema
            add(other, depth + 1)
            found.append(other)

    add(schema, 0)
    return found
