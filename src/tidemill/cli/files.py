"""Files that a user names: read whole, with a limit, or refused in one sentence.

Decides what counts as a file that can't be used (missing, a folder, not readable, without end such as a device, not UTF-8).
The caller reads the content; ``sim`` reads scenarios for the commands that simulate.
"""

from __future__ import annotations

import gzip
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tidemill.config.texts import parse_toml
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.sim.history import SimulatedRun
    from tidemill.sim.scenario import Scenario

MOST_BYTES = 256 << 20
_GZIP = b"\x1f\x8b"


def read_text(file: Path, *, expected: str, most_bytes: int = MOST_BYTES) -> str:
    """The file's text, of a gzipped one what is in it, without a byte order mark. ConfigError, with what was ``expected`` there,
    if it can't be had."""
    try:
        if stat.S_ISCHR(file.stat().st_mode):
            raise ConfigError(f"{file}: a device; expected {expected}")
        with open(file, "rb") as opened:
            begin = opened.read(len(_GZIP))
            rest = _unzipped(file, most_bytes) if begin == _GZIP else opened.read(most_bytes + 1)
    except gzip.BadGzipFile as error:
        raise ConfigError(f"{file}: damaged gzip file ({error}); copy it again") from None
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"{file}: damaged gzip file ({error}); copy it again") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{file}: can't be read ({why}); expected {expected}") from None
    content = rest if begin == _GZIP else begin + rest
    if len(content) > most_bytes:
        raise ConfigError(f"{file}: more than {most_bytes >> 20} MiB; expected {expected}")
    try:
        return without_mark(content.decode("utf-8")).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start}); expected {expected}") from None


def without_mark(text: str) -> str:
    """The text without the byte order mark that files saved on Windows begin with: it is no part of the first line."""
    return text.removeprefix("\ufeff")


def _unzipped(file: Path, most_bytes: int) -> bytes:
    with gzip.open(file) as opened:
        return cast(BinaryIO, opened).read(most_bytes + 1)


_MOST_BYTES = 4 << 20


def read_scenario(file: Path) -> Scenario:
    """ConfigError if the file can't be read or is no scenario."""
    from tidemill.sim.scenario_file import scenario_of

    try:
        table = parse_toml(read_text(file, expected="a scenario in TOML", most_bytes=_MOST_BYTES))
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(str(file)) else f"{file}: {error}") from None
    return scenario_of(table, file.stem)


def run_scenario(scenario: Scenario) -> SimulatedRun:
    """With the scenario's seed, so that a run can be repeated."""
    from random import Random

    from tidemill.sim.cluster import simulate

    return simulate(scenario, Random(scenario.seed))
