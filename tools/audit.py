"""``make audit``: are the jars what the lock file says, and is anything known against the packages that are installed?

Ends with 0 (nothing known), 1 (a jar is another one, or vulnerabilities are known: each on a line) or 3 (the vulnerability
service, osv.dev, could not be asked, so nothing is known of the packages). pip-audit has an environment of its own, so that
what it brings is no part of what is looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tidemill.embedded.jars import LOCK_FILE, cache_folder, fetch_bundle, locked_jars
from tidemill.errors import EnvironmentProblem

_PIP_AUDIT = "pip-audit==2.10.1"
_LIMIT_S = 600
_NOT_ASKED = 3


def main() -> int:
    jars, packages = _jars(), _packages()
    return jars or packages


def _jars() -> int:
    """Each bundle that is on this machine, jar by jar."""
    text = LOCK_FILE.read_text()
    names = sorted({line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")})
    there = [name for name in names if any((cache_folder(os.environ) / "jars").glob(f"{name}-*"))]
    for name in there:
        try:
            fetch_bundle(name, environ=os.environ)
        except EnvironmentProblem as problem:
            print(f"jars of {name}: {problem}")
            return 1
        print(f"jars of {name}: {len(locked_jars(name, text))}, all with the checksums of {LOCK_FILE.name}")
    if not there:
        print(f"no jars are on this machine yet; each is compared with its checksum in {LOCK_FILE.name} when it is fetched")
    return 0


def _packages() -> int:
    site = sysconfig.get_paths()["purelib"]
    try:
        asked = subprocess.run(
            [_pip_audit(), "--path", site, "--vulnerability-service", "osv", "--format", "json", "--progress-spinner", "off"],
            capture_output=True, text=True, timeout=_LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        found = json.loads(asked.stdout)["dependencies"]
    except (OSError, subprocess.SubprocessError) as problem:
        return _not_asked(f"pip-audit could not be run: {problem}")
    except (ValueError, KeyError, TypeError):
        lines = [line for line in asked.stderr.splitlines() if line.strip()]
        return _not_asked(lines[-1].strip()[:200] if lines else f"pip-audit ended with {asked.returncode}")
    bad = [
        f"{package['name']} {package['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'no version yet'}"
        for package in found
        for known in package.get("vulns", ())
    ]
    print("\n".join(bad) or f"packages: {len(found)}, none with a known vulnerability (osv.dev)")
    return 1 if bad else 0


def _pip_audit() -> str:
    place = Path(sys.prefix) / ".audit"
    command = place / "bin" / "pip-audit"
    if not command.exists():
        for step in ([sys.executable, "-m", "venv", str(place)], [str(place / "bin" / "pip"), "install", "-q", _PIP_AUDIT]):
            subprocess.run(step, check=True, timeout=_LIMIT_S, capture_output=True)
    return str(command)


def _not_asked(why: str) -> int:
    print(f"nothing is known of the packages: the vulnerability service could not be asked ({why}); ask it from where it can be")
    return _NOT_ASKED


if __name__ == "__main__":
    sys.exit(main())
