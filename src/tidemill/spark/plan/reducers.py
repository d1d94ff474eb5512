"""How cloudpickle sends what Python's own library makes of the program's functions and classes.

cloudpickle sends functions and classes that a worker can't import by value. What ``functools`` and ``typing`` make of them can't
be sent so: it pickles itself by its name (``cache``, ``NewType``, ``ParamSpec``), or has a lock or weak references
(``cached_property``, ``singledispatch``). Decides that the worker makes each of them again from the same parts, a cache empty.
"""

from __future__ import annotations

import functools
import sys
import typing
import weakref
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle
from pyspark.cloudpickle.cloudpickle import list_registry_pickle_by_value

Reduced = str | tuple[Any, ...]
"""A name, or a function with its arguments and the attributes of what it returns, as ``__reduce__`` has them."""


def register_reducers() -> None:
    """Those of this module, with cloudpickle, in this process. More than once does no harm."""
    table = cloudpickle.CloudPickler.dispatch_table
    table.update(
        {
            functools._lru_cache_wrapper: _by_name_or(_cached_function),
            functools.cached_property: _cached_property,
            weakref.WeakKeyDictionary: lambda entries: (weakref.WeakKeyDictionary, (dict(entries),)),
            typing.NewType: _by_name_or(_new_type),
            typing.ParamSpec: _by_name_or(_param_spec),
        }
    )


def _by_name_or(by_value: Callable[[Any], Reduced]) -> Callable[[Any], Reduced]:
    """Reduces what a worker can import to its name, so that it is the module's own there, and all else by value."""
    return lambda value: _path(value) if _is_importable(value) else by_value(value)


def _path(value: Any) -> str:
    return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or ""


def _is_importable(value: Any) -> bool:
    module, path = getattr(value, "__module__", None), _path(value)
    if not module or not path or module == "__main__" or module not in sys.modules:
        return False
    if any(f"{module}.".startswith(f"{name}.") for name in list_registry_pickle_by_value()):
        return False
    found: Any = sys.modules[module]
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is value


def _cached_function(cached: Any) -> Reduced:
    kept = {name: value for name, value in vars(cached).items() if name not in ("__wrapped__", "cache_parameters")}
    return _cached, (cached.__wrapped__, cached.cache_parameters()), kept


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(cached: Any) -> Reduced:
    """Until Python 3.11 it has a lock."""
    return functools.cached_property, (cached.func,), {name: value for name, value in vars(cached).items() if name != "lock"}


def _new_type(made: Any) -> Reduced:
    return typing.NewType, (made.__qualname__, made.__supertype__), {"__module__": made.__module__}


def _param_spec(made: Any) -> Reduced:
    return _specified, (made.__name__, made.__bound__)


def _specified(name: str, bound: Any) -> Any:
    return typing.ParamSpec(name, bound=bound)
