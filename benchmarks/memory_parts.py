"""What an instance's memory is made of: PSS by process, and what the JVM's and the workers' is used for.

Decides how a mapping or a category of the JVM's native memory tracking is named in the table. The JVM tells its categories only
where it was started with -XX:NativeMemoryTracking=summary (``TRACKED``) and a jcmd is next to it; they are what is committed, and
the heap what of it is resident. What is left of the JVM's PSS has no category: direct buffers of Arrow and Netty, the allocator.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

TRACKED = {"JAVA_TOOL_OPTIONS": "-XX:NativeMemoryTracking=summary"}
_MIB = 2**20
_ASK_LIMIT_S = 30.0
_CATEGORY = re.compile(r"^-\s+(.+?) \(reserved=\d+KB, committed=(\d+)KB\)", re.MULTILINE)
_HEAP = re.compile(r"\[0x([0-9a-f]+), 0x[0-9a-f]+, 0x([0-9a-f]+)\)")
_RANGE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)$")
_NAMES = {
    "Class": "classes: metaspace", "Metaspace": "classes: metaspace", "Shared class space": "classes: shared archive",
    "Code": "compiled code", "Thread": "threads' stacks", "GC": "collector, compiler, symbols",
    "Compiler": "collector, compiler, symbols", "Symbol": "collector, compiler, symbols",
}  # fmt: skip


def memory_parts(root: int) -> dict[str, float]:
    """MiB by part, of the process tree below ``root``; the same names over all processes of a kind are summed."""
    parts: dict[str, float] = {}
    for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
        try:
            kind = kind_of(process, root)
            for name, mib in _of_process(process, kind):
                parts[name] = parts.get(name, 0.0) + mib
        except (psutil.NoSuchProcess, OSError):
            continue
    return parts


def kind_of(process: psutil.Process, root: int) -> str:
    """``pyspark.daemon`` is what a forked daemon and its worker call themselves; the worker is the daemon's child."""
    if process.pid == root:
        return "driver"
    words = process.cmdline()
    if words and Path(words[0]).name == "java":
        return "JVM"
    if "tidemill.spark.launch.fork_server" not in words:
        return "others"
    above, depth = process.parent(), 0
    while above is not None and above.pid != root:
        above, depth = above.parent(), depth + 1
    return ("fork server", "daemon", "worker")[min(depth, 2)]


def _of_process(process: psutil.Process, kind: str) -> Iterator[tuple[str, float]]:
    mappings = list(_mappings(process.pid))
    pss = sum(mib for _, _, _, mib in mappings)
    if kind != "JVM":
        files = sum(mib for _, _, path, mib in mappings if path.startswith("/"))
        yield f"{kind}: libraries", files
        yield f"{kind}: its own", pss - files
        return
    known = 0.0
    for name, mib in _jvm_parts(process.pid, mappings).items():
        known += mib
        yield f"JVM: {name}", mib
    yield "JVM: all else (direct buffers, libraries, allocator)", max(0.0, pss - known)


def _jvm_parts(pid: int, mappings: list[tuple[int, int, str, float]]) -> dict[str, float]:
    """Empty without jcmd or tracking."""
    told, heap = _jcmd(pid, "VM.native_memory", "summary"), _jcmd(pid, "GC.heap_info")
    if "committed=" not in told:
        return {}
    ranges = [(int(low, 16), int(high, 16)) for low, high in _HEAP.findall(heap)]
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    parts = {"heap": sum(mib for begin, _, _, mib in mappings if low <= begin < high)}
    for category, committed in _CATEGORY.findall(told):
        if category.strip() in _NAMES:
            name = _NAMES[category.strip()]
            parts[name] = parts.get(name, 0.0) + int(committed) / 1024
    return parts


def _jcmd(pid: int, *words: str) -> str:
    jcmd = Path(psutil.Process(pid).exe()).with_name("jcmd")
    if not jcmd.is_file():
        return ""
    done = subprocess.run([str(jcmd), str(pid), *words], capture_output=True, text=True, check=False, timeout=_ASK_LIMIT_S)
    return done.stdout


def _mappings(pid: int) -> Iterator[tuple[int, int, str, float]]:
    """Begin, end, file and PSS in MiB of each."""
    at: tuple[int, int, str] | None = None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        found = _RANGE.match(line)
        if found:
            at = (int(found[1], 16), int(found[2], 16), found[3])
        elif line.startswith("Pss:") and at is not None:
            yield (*at, int(line.split()[1]) * 1024 / _MIB)
