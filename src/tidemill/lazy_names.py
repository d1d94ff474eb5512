"""A package's public names, each loaded on first use.

Decides what an import says of a name that only Java or the other package has, or whose module can't be loaded. An AttributeError
in it, as of a file of the program's with the name of a module that is needed here (``json.py`` next to the script), would be
taken for the name's own absence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def load_name(package: str, name: str, modules: Mapping[str, str]) -> Any:
    """What ``package`` exports under ``name``; ``modules``: the module of each name that it exports.

    Raises:
        AttributeError: it exports no such name.
        ImportError: its module can't be loaded, or the name is written otherwise: ``from ... import`` tells nothing of an
            AttributeError's.
    """
    if name not in modules:
        if name[0].isupper() and (instead := _instead(name, modules)):
            raise ImportError(f"{package} has no {name}: write {instead}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    try:
        module: ModuleType = import_module(modules[name])
    except AttributeError as broken:
        raise ImportError(f"{package}.{name} can't be loaded: {broken}{_where(broken.obj)}", name=modules[name]) from broken
    return getattr(module, name)


def _instead(name: str, exported: Collection[str]) -> str | None:
    for other in ("tidemill", "tidemill.testing"):
        if name in import_module(other).__all__:
            return f"from {other} import {name}"
    from tidemill.java_classes import instead_of_class  # needed for a mistake only

    return instead_of_class(name, exported)


def _where(lacking: object) -> str:
    """The file of a module that lacks something, and what to do about it."""
    file = lacking.__file__ if isinstance(lacking, ModuleType) else None
    if file is None:
        return ""
    return f" ({file}). If this file is yours, rename it: Tidemill needs another module of its name"
