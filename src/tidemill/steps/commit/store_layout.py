"""The layout of a store's bytes, in a line that is kept with them: kind, serdes, and other options that change it.

Decides whether a store that was one thing can be read as another. Its local rows can't if there is any difference: they are
restored. Its changelog can't if the family of kinds or a serde is another: nothing can be restored from it. Nor can it if the
windows are others, since the counts of the earlier windows would be restored.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.operators.segments import interval_of
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.nodes import StoreKind
from tidemill.topology.values import Serde

_FAMILIES = {
    StoreKind.KEY_VALUE: "keys",
    StoreKind.TIMESTAMPED_KEY_VALUE: "keys",
    StoreKind.VERSIONED: "keys",
    StoreKind.WINDOW: "windows",
    StoreKind.TIMESTAMPED_WINDOW: "windows",
}
"""Kinds whose changelogs look alike; any other kind is like itself only."""


_SEGMENTED = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION})
"""Kinds whose rows lie in segments: the length of one, which comes from the retention, decides each row's key."""

_WINDOWS = "windows_ms="


def form_of(spec: StoreSpec) -> str:
    """Such as ``timestamped_key_value key=string value=long``, of windows ``... segment_ms=43200000 windows_ms=60000/60000``."""
    kept = spec.kept
    kind = StoreKind.TIMESTAMPED_KEY_VALUE if spec.timestamped else StoreKind.KEY_VALUE
    flags = ""
    if kept is not None:
        kind = kept.kind
        flags = "".join(f" {name}" for name in ("retain_duplicates", "with_headers", "time_ordered") if getattr(kept, name))
        if kind in _SEGMENTED:
            flags += f" segment_ms={interval_of(kept.keeps_ms)}"
        if kept.windows is not None:
            flags += f" {_WINDOWS}{kept.windows}"
    return f"{kind.value} key={_name(spec.key_serde)} value={_name(spec.value_serde)}{flags}"


def _name(serde: Serde | None) -> str:
    return "none" if serde is None else str(getattr(serde, "name", type(serde).__qualname__)).replace(" ", "_")


def is_other_changelog(was: str, becomes: str) -> bool:
    """True if a changelog written by a store of the one layout can't be read by one of the other, or counts other windows."""
    (kind_was, *rest_was), (kind_becomes, *rest_becomes) = was.split(), becomes.split()
    windows_were, windows_become = _windows(rest_was), _windows(rest_becomes)
    has_others = windows_were is not None and windows_become is not None and windows_were != windows_become
    return _family(kind_was) != _family(kind_becomes) or rest_was[:2] != rest_becomes[:2] or has_others


def _windows(flags: Sequence[str]) -> str | None:
    return next((flag for flag in flags if flag.startswith(_WINDOWS)), None)


def _family(kind: str) -> str:
    known = {each.value: family for each, family in _FAMILIES.items()}
    return known.get(kind, kind)
