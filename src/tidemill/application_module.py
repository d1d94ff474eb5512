"""The module that an application file is run as, while a command reads the file.

Decides its name, and that nothing is started meanwhile: `describe` or `reset` would process records, and `run` starts what the
file defines by itself.
"""

from __future__ import annotations

import sys

from tidemill.errors import ConfigError

MODULE_NAME = "tidemill_application"


def refuse_start_while_read() -> None:
    """ConfigError while an application file is being read."""
    if MODULE_NAME in sys.modules:
        raise ConfigError(
            "the application is started while its file is being read: `tidemill run` starts it, and other commands only look at"
            ' what the file defines. Put the start under `if __name__ == "__main__":`, or leave it out'
        )
