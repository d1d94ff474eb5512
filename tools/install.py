"""Installs locked packages into .venv: with uv where PyPI has it for this platform, else with pip.

    python3 tools/install.py requirements.lock --package   the packages, Tidemill, the JVM's cache of Spark, the broker's jars
    python3 tools/install.py requirements-dev.lock         what tests and checks need besides

Runs on the Python that `make` was given, before anything is installed: standard library only. The lock files name every
package, so no dependency is resolved.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = "uv==0.13.9"
# uv does not read pip's settings: a mirror or a certificate that pip was given must hold for it too.
PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}
# PySpark is a source archive of 450 MB, of which a wheel is built that is unpacked at once: compressing its jars takes longest.
STORED_WHEELS = "[bdist_wheel]\ncompression = stored\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Installs locked packages into .venv.")
    parser.add_argument("lock", type=Path)
    parser.add_argument("--package", action="store_true", help="Tidemill too, and what its starts and its broker need")
    asked = parser.parse_args()
    try:
        if not PYTHON.exists():
            subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
            config.write(STORED_WHEELS)
            config.flush()
            _install(asked.lock, package=asked.package, environ={**os.environ, "DIST_EXTRA_CONFIG": config.name})
        if asked.package:
            subprocess.run([str(VENV / "bin" / "tidemill"), "prepare", "--broker"], check=True)
    except subprocess.CalledProcessError as failed:
        return failed.returncode or 1
    return 0


def _install(lock: Path, *, package: bool, environ: dict[str, str]) -> None:
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps"]
    if subprocess.run([*pip, UV], check=False, capture_output=True).returncode == 0:
        uv = [str(VENV / "bin" / "uv"), "pip", "install", "-q", "--python", str(PYTHON), "--system-certs", "--no-deps"]
        by_uv = {**environ, **_pip_settings()}
        installed = subprocess.run([*uv, "-r", str(lock)], check=False, env=by_uv)
        if installed.returncode == 0:
            if package:
                subprocess.run([*uv, "--no-build-isolation", "-e", str(ROOT)], check=True, env=by_uv)
            return
        print("uv could not install the locked packages (above); trying pip", file=sys.stderr)
    subprocess.run([*pip, "-r", str(lock)], check=True, env=environ)
    if package:
        subprocess.run([*pip, "--no-build-isolation", "-e", str(ROOT)], check=True, env=environ)


def _pip_settings() -> dict[str, str]:
    """What pip is set to, as uv's variables; those that are set already win."""
    listed = subprocess.run([str(PYTHON), "-m", "pip", "config", "list"], check=False, capture_output=True, text=True)
    found = {}
    for line in listed.stdout.splitlines():  # such as global.index-url='https://...'
        name, _, value = line.partition("=")
        variable = PIP_TO_UV.get(name.rpartition(".")[2])
        if variable is not None and variable not in os.environ:
            found[variable] = str(ast.literal_eval(value)).replace("\n", " ").strip()
    return found


if __name__ == "__main__":
    sys.exit(main())
