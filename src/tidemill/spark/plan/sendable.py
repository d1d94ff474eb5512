"""Parts of a program that Spark's workers get as copies: whether they can be sent.

Decides what is said, before anything runs, of a part that can't: a function whose closure has a lock, a client or an open file.

Also decides which modules workers can't import. Their functions are sent by value, as cloudpickle sends those of ``__main__``:

- The main program's module, in a process that multiprocessing has spawned.
- Modules that were loaded from a file (pytest's ``importlib`` mode).
- Modules that are still being imported, and whose import starts the program. A worker's import would start it again; and here,
  looking for a function by its name would wait for the end of the import.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Sequence
from types import ModuleType

from pyspark import cloudpickle

from tidemill.errors import TopologyError
from tidemill.printable import said_by
from tidemill.spark.plan.reducers import register_reducers
from tidemill.steps.step_spec import SourceSpec, StepSpec

_MAIN_IF_SPAWNED = "__mp_main__"
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def send_by_value() -> None:
    """Functions of modules that workers can't import. To be called before anything is sent."""
    register_reducers()
    in_path: dict[str, bool] = {}  # by package: finding one takes 0.2 ms, and a program has hundreds of modules of few packages
    for name, module in list(sys.modules.items()):
        if name == _MAIN_IF_SPAWNED or _is_being_imported(module) or _is_loaded_from_file(name, module, in_path):
            cloudpickle.register_pickle_by_value(module)


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _is_loaded_from_file(name: str, module: ModuleType, in_path: dict[str, bool]) -> bool:
    """True if the module is neither installed nor in a folder of ``sys.path``. ``in_path``: what is known of packages."""
    file = getattr(module, "__file__", None)
    if name == "__main__" or getattr(module, "__name__", None) != name or not file or file.startswith(_INSTALLED):
        return False
    first, _, _ = name.partition(".")
    if first not in in_path:
        in_path[first] = any(finder.find_spec(first, None) for finder in sys.meta_path)
    return not in_path[first]


def refuse_unsendable(source: SourceSpec, steps: Sequence[StepSpec]) -> None:
    """
    Raises:
        TopologyError: a function, a processor or a serde can't be sent; the node is named.
    """
    problem = problem_of_sending((source, steps))
    if problem is not None:
        parts = ((name, problem_of_sending(part)) for name, part in _parts(source, steps))
        name, problem = next(((name, found) for name, found in parts if found), ("the topology", problem))
        raise TopologyError(f"{name}: a function, processor or serde {problem}")


def problem_of_sending(value: object) -> str | None:
    """Why ``value`` can't be sent, as the end of a sentence about it; None if it can."""
    register_reducers()
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return (
            f"can't be sent to Spark's workers: {type(error).__name__}: {said_by(error)}. Workers get copies: make locks, "
            "clients and open files there (a processor in init, a function at its first call), or keep them in a module that is "
            "imported"
        )
    return None


def _parts(source: SourceSpec, steps: Sequence[StepSpec]) -> Iterator[tuple[str, object]]:
    for topic in source.topics.values():
        yield topic.node, topic
    for step in steps:
        yield from ((node.name, node) for node in step.nodes.values())
        yield from ((sink.name, sink) for sink in step.sinks.values())
        yield from ((sink.name, sink) for sink in step.batch_sinks)
        for graph in step.graphs:
            yield from graph.topology.nodes.items()
        for name, store in step.stores.items():
            yield f"the store {name}", store
