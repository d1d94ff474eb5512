"""Application files: ordinary Python files that define ``builder`` or ``topology``, and ``config`` if they like.

Decides how a file is run, also one of a package, and what its names mean; every failure says which file and which line. Leaves
the meaning of settings to `config`. The file runs under a module name of its own, not as ``__main__``, so that a file can
also be a script; the module is not kept in ``sys.modules``, so that its functions travel to Spark's workers by value.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from tidemill.application_module import MODULE_NAME
from tidemill.cli.files import read_text
from tidemill.config.secrets import has_credentials, is_secret, without_credentials
from tidemill.dsl.builder import StreamsBuilder
from tidemill.dsl.processor_topology import TopologyBuilder
from tidemill.errors import ColumnMistakeError, ConfigError, TopologyError
from tidemill.operators.function_failures import has_no_session
from tidemill.topology.nodes import Topology

Defined = TypeVar("Defined")

_MOST_BYTES = 16 << 20
_MODULE_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
OPTIMIZATION_SETTING = "topology.optimization"


def load_application(path: str | Path, overrides: Mapping[str, object]) -> tuple[Topology, dict[str, object]]:
    """The topology and the settings of an application file; ``overrides`` win over the file's ``config``.
    ``path`` may also be the name of a module, as for ``python -m``.

    A builder is built as ``topology.optimization`` says; a topology is taken as it is. ConfigError or TopologyError
    if the file is missing, fails, or does not define what it should.
    """
    file, package = _located(Path(path))
    names = _run(file, package)
    config = {**_config(file, names), **overrides}
    if "topology" in names:
        if OPTIMIZATION_SETTING in overrides:
            raise ConfigError(
                f"{file} defines its topology ready-made, so {OPTIMIZATION_SETTING} can't be set from outside: define"
                " the builder alone, or build the topology with the optimization that you want"
            )
        return _ready_made(file, names, "topology"), config
    if "builder" not in names:
        raise ConfigError(f"{file} defines neither builder nor topology at its top level: {_hint(names)}")
    if isinstance(names["builder"], TopologyBuilder):  # which nothing optimizes, as in Kafka Streams
        return _ready_made(file, names, "builder"), config
    builder = _of_type(file, names, "builder", StreamsBuilder)
    optimization = config.get(OPTIMIZATION_SETTING, "none")
    if not isinstance(optimization, (str, list, tuple)):
        raise ConfigError(f"{file}: {OPTIMIZATION_SETTING} is {optimization!r}, expected none, all or a list of names")
    try:
        return builder.build(optimization=optimization), config
    except ColumnMistakeError:  # says its file and line itself
        raise
    except TopologyError as error:
        raise TopologyError(f"{file}: {error}") from error


def _ready_made(file: Path, names: Mapping[str, object], name: str) -> Topology:
    builder = names[name]
    if not isinstance(builder, TopologyBuilder):
        return _of_type(file, names, name, Topology)
    try:
        return builder.build()
    except TopologyError as error:
        raise TopologyError(f"{file}: {error}") from error


def _located(path: Path) -> tuple[Path, str | None]:
    """The file, and the package that its relative imports begin at. What they need comes first on the import path: of a file its
    folder, as for a script, and that of its package; of a module the working directory, as for ``python -m``."""
    if os.path.exists(path) or path.suffix == ".py" or not _MODULE_PATH.fullmatch(str(path)):  # not exists(), which raises
        folder = path.resolve().parent
        parts: list[str] = []
        top = folder
        while (top / "__init__.py").is_file() and top.name.isidentifier():
            parts.insert(0, top.name)
            top = top.parent
        _import_first(top)
        _import_first(folder)
        return path, ".".join(parts) or None
    _import_first(Path.cwd())
    try:
        spec = find_spec(str(path))
    except (Exception, SystemExit) as error:  # of the packages above it, which this imports
        if not (isinstance(error, ModuleNotFoundError) and error.name and f"{path}.".startswith(f"{error.name}.")):
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise _failed(Path(place.filename), error, in_package=True) from error
        spec = None
    if spec is None:
        looked = f"looked in {Path.cwd()} and sys.path"
        raise ConfigError(f"there is no application file {path}, and no module of that name ({looked}); check the path")
    if spec.submodule_search_locations is not None:
        raise ConfigError(f"{path} is a package; name the module in it that defines builder or topology, such as {path}.app")
    return Path(spec.origin or str(path)), spec.parent or None


def _import_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _run(file: Path, package: str | None) -> dict[str, object]:
    """Names that the file defines."""
    try:
        file.stat()
        source = read_text(file, expected="an application file in Python", most_bytes=_MOST_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"there is no application file {file} (looked in {Path.cwd()}); check the path") from None
    except OSError as error:
        raise ConfigError(f"can't read the application file {file}: {error}") from None
    module = ModuleType(MODULE_NAME)
    module.__file__ = str(file)
    module.__package__ = package
    sys.modules[MODULE_NAME] = module  # dataclasses look their own module up while they are defined
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)
    except SyntaxError as error:
        raise ConfigError(f"{error.filename or file}, line {error.lineno}: {error.msg}") from error
    except (RecursionError, MemoryError) as error:  # of the compiler
        raise ConfigError(f"{file}: nested too deeply to be run ({type(error).__name__})") from error
    except (Exception, SystemExit) as error:
        raise _failed(file, error, in_package=package is not None) from error
    finally:
        del sys.modules[MODULE_NAME]
    return module.__dict__


_NO_SESSION = (
    "PySpark makes Columns only where a Spark session runs, and none does while the file is read: make them in the functions "
    "that operators get (lambda value: ...), and give a udf the type of its results as an object, such as LongType()"
)
"""Instead of PySpark's own sentence: an assertion without any, or the advice to create a session."""


_NO_PACKAGE = (
    "the file is in no package, since its folder has no __init__.py: add one, import without the leading dot, or name the "
    "module, as in `tidemill run package.module`, in the folder above the package"
)
"""After Python's own sentence about a relative import."""


def _failed(file: Path, error: BaseException, *, in_package: bool) -> Exception:
    """The error for an application file that raised one: where in the file, what, and the line's text, unless a secret may be
    in it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = lines[-1] if lines else None
    if isinstance(error, ColumnMistakeError):
        return error
    if isinstance(error, (ConfigError, TopologyError)):
        return type(error)(f"{file}, line {line}: {error}")
    try:
        said = str(error)
    except Exception:  # a sentence of the program's own that can't be made
        said = ""
    if isinstance(error, Exception) and has_no_session(error):
        said = _NO_SESSION
    if isinstance(error, ImportError) and not in_package and "no known parent package" in said:
        said = f"{said}: {_NO_PACKAGE}"
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    text = linecache.getline(str(file), line or 0).strip()
    is_shown = text and not is_secret(text) and not has_credentials(text)
    return ConfigError(f"{file}, line {line}: {without_credentials(what)}" + (f" (in: {text})" if is_shown else ""))


def _config(file: Path, names: Mapping[str, object]) -> dict[str, object]:
    config = names.get("config", {})
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise ConfigError(
            f'{file}: config must be a mapping of settings, such as {{"application.id": "my-app"}}; found'
            f" {type(config).__name__}"
        )
    return dict(config)


def _of_type(file: Path, names: Mapping[str, object], name: str, kind: type[Defined]) -> Defined:
    found = names[name]
    if not isinstance(found, kind):
        raise ConfigError(f"{file}: {name} must be a {kind.__name__}, found a {type(found).__name__}")
    return found


def _hint(names: Mapping[str, object]) -> str:
    for name, value in names.items():
        for kind, expected in ((StreamsBuilder, "builder"), (TopologyBuilder, "builder"), (Topology, "topology")):
            if isinstance(value, kind):
                return f"it calls its {kind.__name__} {name!r}; name it {expected}"
    return "add `builder = StreamsBuilder()` and build on it"
