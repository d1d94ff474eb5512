"""`make docs-tutorial`: README and tutorials done as they are written, each in a temporary folder, on a broker of its own.

Programs with a title are saved under it, commands are run, and what the page says they print must be in what they print. Comments
in the page say what a reader does by hand: what runs in another terminal, what is tried until it fits, what is stopped or killed,
and which command ends with another exit code than 0. Ports of the page are replaced by free ones, and default folders (the
broker's, state.dir) by some below the temporary folder. Invariant: nothing that was started is left, however this ends.

    python tools/run_tutorial.py [PAGE ...]     pages below docs/; without one, all tutorials
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from doc_blocks import DOCS, Block, fenced

PAGES = ("../README.md", "first-hour.md", "tutorial.md")
LIMIT_S = 240.0
_PORT = re.compile(r"localhost:(\d{4,5})")
_MARK = "TIDEMILL_TUTORIAL"


class TutorialError(Exception):
    """The page does not hold; the message says which block, and what was seen."""


class Walk:
    """A reader who does what the page says, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cwd = folder
        self._ports: dict[str, str] = {}
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
        bin_ = Path(sys.executable).parent
        self._environment = {
            **os.environ, _MARK: str(os.getpid()), "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / "known"), "COLUMNS": "200",
        }  # fmt: skip
        self.commands = 0

    def save(self, block: Block) -> None:
        assert block.title is not None
        (self._cwd / block.title).write_text(self._here(block.text), encoding="utf-8")

    def run(self, block: Block, expected: str | None) -> None:
        wanted = [line.strip() for line in (expected or "").splitlines() if line.strip()]
        is_tried = any(directive.startswith("until") for directive in block.directives)
        background = next((told for told in block.directives if told.startswith("in the background as ")), None)
        if background is not None:
            self._start(background.removeprefix("in the background as "), block.text.strip())
            return
        endings = [directive.removeprefix("ends with ") for directive in block.directives if directive.startswith("ends with ")]
        expected_status = int(endings[0]) if endings else 0
        deadline = time.monotonic() + LIMIT_S
        while True:
            status, said = self._run_lines(block.text)
            missing = [line for line in wanted if line not in said]
            if status == expected_status and not missing:
                return
            if not is_tried or time.monotonic() > deadline:
                raise TutorialError(
                    f"{block.where}: ended with {status}, {missing} not in what it said:\n{said[-3000:]}\n{self._logs()}"
                )
            self._require_alive(block)
            time.sleep(1.0)

    def obey(self, block: Block) -> None:
        for directive in block.directives:
            what, _, name = directive.partition(" ")
            if what == "stop":
                process = self._terminals.pop(name)
                process.send_signal(signal.SIGINT)
                if (status := process.wait(90)) != 130:
                    raise TutorialError(f"{block.where}: {name} ended with {status} after Ctrl-C, expected 130\n{self._logs()}")
            elif what == "kill":
                for one in _family(self._terminals.pop(name)):
                    one.kill()

    def close(self) -> None:
        for process in self._terminals.values():
            process.terminate()
        for process in self._terminals.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        subprocess.run(["tidemill", "broker", "stop"], cwd=self._folder, env=self._environment, capture_output=True, check=False)
        for one in _marked():
            one.kill()

    def _start(self, name: str, command: str) -> None:
        self.commands += 1
        with (self._folder / f"{name}.log").open("wb") as log:
            self._terminals[name] = subprocess.Popen(
                shlex.split(self._placed(self._here(command))), cwd=self._cwd, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _run_lines(self, text: str) -> tuple[int, str]:
        said, status = "", 0
        for line in text.strip().splitlines():
            self.commands += 1
            command = self._placed(self._here(line))
            if command.startswith("cd "):
                self._cwd /= command.removeprefix("cd ")
                continue
            done = subprocess.run(
                command, shell=True, cwd=self._cwd, env=self._environment, capture_output=True, text=True, timeout=LIMIT_S,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            said, status = said + done.stdout + done.stderr, status or done.returncode
        return status, said

    def _require_alive(self, block: Block) -> None:
        for name, process in self._terminals.items():
            if process.poll() is not None:
                raise TutorialError(f"{block.where}: {name} has ended with {process.returncode}\n{self._logs()}")

    def _here(self, text: str) -> str:
        return _PORT.sub(lambda found: f"localhost:{self._port(found[1])}", text)

    def _placed(self, command: str) -> str:
        """With what the page leaves to defaults."""
        if command.startswith("tidemill broker start"):
            command += f" --port {self._port('9092')}"
            return command if "--data" in command else f"{command} --data {self._folder / 'broker'}"
        if command.startswith("tidemill run ") and "--state-dir" not in command:
            return f"{command} --state-dir {self._folder / 'kafka-streams'}"
        return command

    def _port(self, written: str) -> str:
        if written not in self._ports:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._ports[written] = str(free.getsockname()[1])
        return self._ports[written]

    def _logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in self._folder.glob("*.log"))


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        top = psutil.Process(process.pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _marked() -> list[psutil.Process]:
    """What this walk has started, whoever its parent is now."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(_MARK) == str(os.getpid()) and one.pid != os.getpid():
                found.append(one)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def main(pages: Sequence[str]) -> int:
    began, commands = time.monotonic(), 0
    for page in pages:
        print(f"docs/{page}", flush=True)
        blocks = fenced(page, (DOCS / page).read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory(prefix="tidemill-tutorial-", ignore_cleanup_errors=True) as temporary:
            walk = Walk(Path(temporary))
            try:
                _follow(walk, blocks)
            except TutorialError as error:
                print(f"  FAILED {error}")
                return 1
            finally:
                walk.close()
        commands += walk.commands
    print(f"tutorials: {commands} commands, all as the pages say, {time.monotonic() - began:.0f} s")
    return 0


def _follow(walk: Walk, blocks: Sequence[Block]) -> None:
    began = time.monotonic()
    for number, block in enumerate(blocks):
        walk.obey(block)
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        if "skip" in block.directives:
            continue
        if block.title is not None:
            walk.save(block)
        elif block.language == "console":
            walk.run(block, following.text if following is not None and following.language == "text" else None)
            print(f"  ok     {time.monotonic() - began:5.1f} s  {block.text.strip().splitlines()[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PAGES))
