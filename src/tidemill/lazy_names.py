"""A package's public names, each loaded on first use.

Decides what an import says whose module can't be loaded. An AttributeError in it, as of a file of the program's with the name of
a module that is needed here (``json.py`` next to the script), would be taken for the name's own absence.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def load_name(package: str, name: str, modules: Mapping[str, str]) -> Any:
    """What ``package`` exports under ``name``; ``modules``: the module of each name that it exports.

    Raises:
        AttributeError: it exports no such name.
        ImportError: its module can't be loaded.
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    try:
        module: ModuleType = import_module(modules[name])
    except AttributeError as broken:
        raise ImportError(f"{package}.{name} can't be loaded: {broken}{_where(broken.obj)}", name=modules[name]) from broken
    return getattr(module, name)


def _where(lacking: object) -> str:
    """The file of a module that lacks something, and what to do about it."""
    file = lacking.__file__ if isinstance(lacking, ModuleType) else None
    if file is None:
        return ""
    return f" ({file}). If this file is yours, rename it: Tidemill needs another module of its name"
