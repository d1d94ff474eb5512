"""The process that Python workers are forked from, and what Spark starts in place of a daemon."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.waiting import LIMIT_S, until
from tidemill.errors import EnvironmentProblem
from tidemill.spark.launch.fork_server import ForkServer, _heard, start_fork_server
from tidemill.spark.launch.worker_daemon import ADDRESS_KEY, LENGTH_BYTES, OWN_SAFE_PATH, SAFE_PATH, STREAMS

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: sockets lie in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = start_fork_server(["json"])
    yield server
    server.close()
    assert not Path(server.address).parent.exists()


@contextmanager
def daemon(address: str, folder: Path, extra: Mapping[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A daemon as Spark starts it, and where it listens."""
    environment = {
        **os.environ, "PYTHONPATH": str(SOURCE), "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder), ADDRESS_KEY: address, **(extra or {}),
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill.spark.launch.worker_daemon", "pyspark.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        (length,) = struct.unpack(">i", process.stdout.read(4))
        yield process, process.stdout.read(length).decode()
    finally:
        process.stdin.close()
        process.wait(LIMIT_S)
        process.stdout.close()


def worker_of(listening: str) -> tuple[psutil.Process, socket.socket]:
    """A worker that the daemon forks for a connection; it lives as long as that, or until the daemon hangs up on all of them."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LIMIT_S)
    connection.connect(listening)
    (pid,) = struct.unpack(">i", connection.recv(4))
    until(lambda: not _ignores_hanging_up(pid))  # as its daemon does, which it is a copy of at first
    return psutil.Process(pid), connection


def _ignores_hanging_up(pid: int) -> bool:
    ignored = re.search(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) & 1 << signal.SIGHUP - 1)


def test_workers_are_forked_from_the_server(server: ForkServer, folder: Path) -> None:
    with daemon(server.address, folder) as (_, listening):
        worker, connection = worker_of(listening)
        with connection:
            above = worker.parent()
            assert above is not None
            assert above.ppid() == server.process.pid


def test_a_daemon_ends_when_spark_closes_its_input_and_what_spark_started_ends_with_it(
    server: ForkServer, folder: Path
) -> None:
    with daemon(server.address, folder) as (started, listening):
        worker, connection = worker_of(listening)
        above = worker.parent()
        assert above is not None
        assert started.stdin is not None
        started.stdin.close()
        assert psutil.wait_procs([above, worker], timeout=LIMIT_S)[1] == []
        started.wait(LIMIT_S)
        connection.close()


def test_a_daemon_whose_stand_in_is_killed_still_ends_with_its_input(server: ForkServer, folder: Path) -> None:
    with daemon(server.address, folder) as (started, listening):
        worker, connection = worker_of(listening)
        above = worker.parent()
        assert above is not None
        started.kill()
        started.wait(LIMIT_S)
        assert started.stdin is not None
        started.stdin.close()
        assert psutil.wait_procs([above], timeout=LIMIT_S)[1] == []
        connection.close()


def test_the_streams_of_a_daemon_that_dies_while_it_asks_end_with_it() -> None:
    """Spark reads from its output, and would wait for as long as the server lived."""
    asking, server = socket.socketpair()
    output, stream = os.pipe()
    socket.send_fds(asking, [(100).to_bytes(LENGTH_BYTES, "big")], [stream] * STREAMS)
    os.close(stream)
    asking.close()
    with server, pytest.raises(ValueError, match="before all was said"):
        _heard(server)
    os.set_blocking(output, False)
    assert os.read(output, 1) == b"", "nobody has it open"
    os.close(output)


def test_text_hashes_alike_in_the_workers_of_every_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that place records by hash() would place them elsewhere after a restart."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "hashes.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "(Path(__file__).parent / f'{os.getpid()}.hash').write_text(str(hash('a key')))\n"
    )
    for _ in range(2):
        server = start_fork_server(["hashes"])
        said = folder / f"{server.process.pid}.hash"
        try:
            assert until(lambda said=said: said.is_file() and said.read_text() != "")  # type: ignore[misc]
        finally:
            server.close()
    assert len({file.read_text() for file in folder.glob("*.hash")}) == 1
    assert len(list(folder.glob("*.hash"))) == 2


needs_safe_path = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows no safe path")


@needs_safe_path
def test_files_of_the_current_folder_are_no_modules_of_the_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver, a script elsewhere, does not import from there."""
    (folder / "json.py").write_text("raise AssertionError('not the json that is meant')\n")
    monkeypatch.chdir(folder)
    server = start_fork_server(["json"])
    try:
        with daemon(server.address, folder, {SAFE_PATH: OWN_SAFE_PATH}) as (_, listening):
            worker, connection = worker_of(listening)
            with connection:
                above = worker.parent()
                assert above is not None
                assert above.ppid() == server.process.pid
    finally:
        server.close()


def test_a_driver_that_imports_from_the_current_folder_has_workers_that_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of ``python -`` and of a notebook, whose first entry of ``sys.path`` is empty."""
    (folder / "beside.py").write_text(
        "from pathlib import Path\n"
        "(Path(__file__).parent / 'seen').touch()\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("")
    server = start_fork_server(["beside"])
    try:
        assert until((folder / "seen").is_file)
    finally:
        server.close()


@needs_safe_path
@pytest.mark.parametrize(("theirs", "found"), [(OWN_SAFE_PATH, "none"), ("1", "1")])
def test_programs_that_a_function_starts_have_the_path_that_the_driver_has(theirs: str, found: str) -> None:
    program = (
        "import os, sys; sys.modules['pyspark.daemon'] = daemon = type(sys)('daemon')\n"
        f"daemon.manager = lambda: print(os.environ.get({SAFE_PATH!r}, 'none'))\n"
        "from tidemill.spark.launch import worker_daemon; worker_daemon.main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), ADDRESS_KEY: "", SAFE_PATH: theirs}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


def test_without_a_server_an_error_of_a_function_has_no_other_error_as_its_context() -> None:
    program = (
        "import sys; sys.modules['pyspark.daemon'] = daemon = type(sys)('daemon')\n"
        "daemon.manager = lambda: print(sys.exc_info()[1])\n"
        "from tidemill.spark.launch import worker_daemon; worker_daemon.main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), ADDRESS_KEY: ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


def test_without_a_server_the_daemon_is_pysparks_own(folder: Path) -> None:
    with daemon(str(folder / "nobody"), folder) as (started, listening):
        worker, connection = worker_of(listening)
        with connection:
            assert worker.ppid() == started.pid


def test_a_server_that_ends_while_it_imports_is_done_without(folder: Path) -> None:
    server = start_fork_server(["no_such_module_anywhere"])
    try:
        with daemon(server.address, folder) as (started, listening):
            worker, connection = worker_of(listening)
            with connection:
                assert worker.ppid() == started.pid
    finally:
        server.close()


def test_a_temporary_folder_with_too_long_a_name_is_refused_and_nothing_is_left_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = folder / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(EnvironmentProblem, match=r"socket of the process that workers are forked from, .*; set TMPDIR to"):
        start_fork_server([])
    assert list(long.iterdir()) == []


def test_a_python_that_cannot_be_started_is_named_and_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unstartable = folder / "python"
    unstartable.touch(0o644)
    monkeypatch.setattr(sys, "executable", str(unstartable))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(EnvironmentProblem, match=r"Python can't be started .*Permission denied.*allowed to execute .*/python"):
        start_fork_server([])
    assert list(folder.iterdir()) == [unstartable]


def test_the_server_ends_with_its_driver() -> None:
    code = (
        "import sys, time; from tidemill.spark.launch.fork_server import start_fork_server\n"
        "print(start_fork_server([]).process.pid, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as driver:
        assert driver.stdout is not None
        server = psutil.Process(int(driver.stdout.readline()))
        driver.kill()
        assert psutil.wait_procs([server], timeout=LIMIT_S)[1] == []


ARRAYS = """
import sys
from tidemill.spark.launch.fork_server import settle_pandas
settle_pandas()
import pyarrow
assert pyarrow.array([1, None]).null_count == 1
assert "pandas" not in sys.modules
import pandas
assert pyarrow.array(pandas.Series([1.0, float("nan")])).null_count == 1
assert pandas.__spec__.loader.name == "pandas"
"""


def test_pyarrow_imports_no_pandas_by_itself_and_knows_it_when_a_function_does() -> None:
    """Of a Series it makes nulls of NaN, of a list that it knows for nothing else it does not."""
    subprocess.run([sys.executable, "-c", ARRAYS], env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=True, timeout=LIMIT_S)


def test_where_there_is_no_pandas_an_import_says_so_as_ever() -> None:
    hidden = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]"
    program = (
        "from tidemill.spark.launch.fork_server import settle_pandas; import pyarrow; settle_pandas(); "
        f"{hidden}\ntry:\n    import pandas\nexcept ImportError:\n    print('none')"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    said = subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=LIMIT_S, capture_output=True)
    assert said.stdout == b"none\n"


def test_neither_driver_nor_workers_import_pandas_with_their_modules() -> None:
    program = (
        "import sys; from tidemill.spark.launch.fork_server import settle_pandas; {}; "
        "from tidemill.runtime.instance.application import KafkaStreams; import tidemill.runtime.worker.worker; "
        "assert 'pandas' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    for settled in ("pass", "settle_pandas()"):
        subprocess.run([sys.executable, "-c", program.format(settled)], env=environment, check=True, timeout=LIMIT_S)


def test_a_forked_worker_imports_nothing_more_at_its_first_arrays() -> None:
    program = (
        "import importlib, sys; from tidemill.spark.launch.fork_server import settle_pandas; settle_pandas()\n"
        "from tidemill.runtime.instance.launching import WORKER_MODULES\n"
        "for name in WORKER_MODULES: importlib.import_module(name)\n"
        "before = set(sys.modules)\n"
        "import numpy, pyarrow\n"
        "table = pyarrow.table({'seq': pyarrow.array(numpy.arange(3)), 'key': [b'a', None, b'b']})\n"
        "table.sort_by('key').column('seq').to_numpy()\n"
        "assert set(sys.modules) == before, set(sys.modules) - before"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=LIMIT_S)
