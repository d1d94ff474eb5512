"""What a setting names as ``module:attribute``: a function or a class of the user's.

Decides that whatever the user's module raises while it is imported is the setting's error. What the found thing must be is the
caller's.
"""

from __future__ import annotations

import importlib

from tidemill.errors import ConfigError
from tidemill.printable import said_by


def imported(setting: str, name: str, expected: str) -> object:
    """What ``name`` names. ConfigError if that can't be had; ``expected``: the form of the name."""
    module, _, attribute = name.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise ConfigError(f"{setting}={name} can't be imported: {problem}; expected {expected}") from problem
    except (Exception, SystemExit) as problem:  # a module may raise anything, and a relative name is none
        raise ConfigError(f"{setting}={name} can't be imported: {type(problem).__name__}: {said_by(problem)}") from problem
    return found
