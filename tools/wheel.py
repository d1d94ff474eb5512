"""The wheel: built from a copy of the sources, and tried where nothing of the checkout can be seen.

    python tools/wheel.py build                       dist/tidemill-VERSION-py3-none-any.whl
    python tools/wheel.py check [--python PYTHON]     what is in it, and whether it works in a fresh environment
                                [--no-demo]           without the demo, which needs Java and the jars

Decides what a wheel must hold. A copy is built, since setuptools leaves its own build folder in the sources, from which
files that are gone would get into the next wheel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidemill"
_BESIDE_SOURCE = ("pyproject.toml", "README.md", "LICENSE")
_NOT_SHIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_DEMO = ("demo", "--lines", "600")


class WheelError(Exception):
    """Something is wrong with the wheel; the message says what."""


def build(folder: Path) -> Path:
    """Builds the wheel into ``folder``; the packages that build it are those of this interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidemill-wheel-") as temporary:
        copy = Path(temporary)
        shutil.copytree(ROOT / "src", copy / "src", ignore=_NOT_SHIPPED)  # what a symbolic link points to, not the link
        for name in _BESIDE_SOURCE:
            shutil.copy(ROOT / name, copy / name)
        made = copy / "dist"
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "-w", str(made), str(copy)], check=True)
        (wheel,) = made.glob("*.whl")
        return Path(shutil.move(wheel, folder / wheel.name))


def look_into(wheel: Path) -> list[str]:
    """What was verified of its contents, a line each."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())
        licence = archive.read(about.replace("METADATA", "licenses/LICENSE")).decode()
    shipped = {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if _is_shipped(path)}
    if missing := sorted(shipped - names):
        raise WheelError(f"the wheel lacks {len(missing)} files: {', '.join(missing[:5])}: see package-data in pyproject.toml")
    if foreign := sorted(name for name in names if not name.startswith(("tidemill/", "tidemill-"))):
        raise WheelError(f"the wheel holds what is not Tidemill's: {', '.join(foreign[:5])}")
    classifiers = metadata.get_all("Classifier", [])
    for version in PYTHONS:
        if f"Programming Language :: Python :: {version}" not in classifiers:
            raise WheelError(f"the metadata do not name Python {version}")
    if metadata["Requires-Python"] != ">=3.10" or metadata["License-Expression"] != "Apache-2.0":
        raise WheelError(f"wrong metadata: {metadata['Requires-Python']}, {metadata['License-Expression']}")
    if "Apache License" not in licence:
        raise WheelError("LICENSE is not the Apache License")
    data = sorted(name for name in shipped if not name.endswith(".py"))
    size = wheel.stat().st_size / 1024
    return [
        f"{wheel.name}: {len(shipped)} files of the package, {size:.0f} KiB, none of the tests",
        f"data files: {', '.join(name.removeprefix('tidemill/') for name in data)}",
        f"licence {metadata['License-Expression']}, Python {metadata['Requires-Python']}, classifiers for {', '.join(PYTHONS)}",
    ]


def _is_shipped(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts


def try_out(wheel: Path, python: str, *, demo: bool) -> list[str]:
    """Installs it into a fresh environment and runs it there; what was verified, a line each."""
    with tempfile.TemporaryDirectory(prefix="tidemill-installed-") as temporary:
        folder = Path(temporary)
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        bin_ = folder / "venv" / "bin"
        install = [str(bin_ / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", str(ROOT / "requirements.lock"), str(wheel)], check=True)
        shutil.copy(ROOT / "examples" / "wordcount.py", folder / "application.py")
        where = _say(bin_, folder, "python", "-c", "import tidemill; print(tidemill.__file__)")
        if not Path(where).is_relative_to(folder):
            raise WheelError(f"tidemill was imported from {where}, not from the fresh environment")
        version = _say(bin_, folder, "tidemill", "--version")
        described = _say(bin_, folder, "tidemill", "describe", "application.py")
        if "(topics: [streams-plaintext-input])" not in described:
            raise WheelError(f"describe said {described!r}")
        _say(bin_, folder, "python", "-W", "error", "-m", "compileall", "-q", "-f", str(Path(where).parent))
        verified = [f"{version}: installed, imported from there, compiled without a warning; describe"]
        if demo:
            said = _say(bin_, folder, "tidemill", *_DEMO).splitlines()[-1]
            if not said.endswith("all counts equal"):
                raise WheelError(f"the demo ended with {said!r}")
            verified.append(said)
        return verified


def _say(bin_: Path, folder: Path, command: str, *arguments: str) -> str:
    """What a command of the fresh environment prints, run where the checkout can't be seen."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(bin_ / command), *arguments], cwd=folder, env=kept, capture_output=True, text=True, timeout=400, check=False
    )
    if done.returncode != 0:
        raise WheelError(f"{command} {' '.join(arguments)} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build or check the wheel.")
    parser.add_argument("what", choices=["build", "check"])
    parser.add_argument("--python", default=sys.executable, help="The interpreter of the fresh environment.")
    parser.add_argument("--no-demo", action="store_true", help="Do not run the demo.")
    given = parser.parse_args(arguments)
    if given.what == "build":
        print(build(ROOT / "dist"))
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="tidemill-dist-") as temporary:
            wheel = build(Path(temporary))
            for line in [*look_into(wheel), *try_out(wheel, given.python, demo=not given.no_demo)]:
                print(f"  ok     {line}", flush=True)
    except WheelError as problem:
        print(f"  FAILED {problem}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
