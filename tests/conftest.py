"""Fixtures that all tests share: a Kafka broker and a Spark session for the whole run, private brokers for tests that kill."""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:  # the process that hands tests out to others needs no engine
    from pyspark.sql import SparkSession

    from tidemill.embedded.broker import EmbeddedBroker

_numbers = count(1)
_has_collected = False
"""Since the last test that was not drawn by Hypothesis."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Jobs that a shell has put into the background ignore Ctrl-C, and so would the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get("TIDEMILL_ALL_VECTORS") != "1":
    # Tests start dozens of JVMs for seconds each, a third of whose time goes to a compiler that pays off after minutes.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

_IN_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > 8 << 30:
    # No test cuts the power, so none needs a disk: stores and brokers that sync wait for nothing. Processes that tests kill leave
    # files behind, which must not stay in memory: the run's folder goes with the run.
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="t-", dir=_IN_MEMORY)
    atexit.register(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True)

# Drawn examples: a sample, or as many as Hypothesis likes (`make vectors`). On a busy machine no example has a deadline.
settings.register_profile("sample", max_examples=30, deadline=None)
settings.register_profile("all", deadline=None)
settings.load_profile("all" if os.environ.get("TIDEMILL_ALL_VECTORS") == "1" else "sample")


# By their time of 29 November 2026 (`--durations=0`), setups included. A file that takes minutes and is not here may come last.
_LONGEST = (
    "tests/runtime/test_restarts.py",
    "tests/spark/test_operator_vectors.py",
    "tests/kafka/data/test_producer.py",
    "tests/runtime/test_workers_of_a_thread.py",
    "tests/runtime/test_standbys.py",
    "tests/runtime/test_idle_workers.py",
    "tests/runtime/test_two_instances.py",
    "tests/spark/test_drawn_programs.py",
    "tests/runtime/test_lifecycle_running.py",
    "tests/runtime/test_restore_over_rebalances.py",
    "tests/runtime/test_worker_kills.py",
    "tests/columns/test_column_mistakes.py",
    "tests/spark/test_program_vectors.py",
    "tests/runtime/test_drain_running.py",
    "tests/cli/test_demo.py",
    "tests/kafka/group/test_member.py",
    "tests/experiments/test_mixed_group.py",
    "tests/runtime/test_shop_kills.py",
    "tests/cli/test_broker.py",
    "tests/runtime/test_broker_outage.py",
    "tests/experiments/test_hot_partition.py",
    "tests/embedded/test_broker.py",
    "tests/spark/test_table_filters.py",
    "tests/runtime/test_reads_while_running.py",
    "tests/kafka/group/test_faults.py",
    "tests/kafka/admin/test_client.py",
    "tests/experiments/test_weights_with_java.py",
    "tests/runtime/test_at_least_once.py",
    "tests/runtime/test_start_problems.py",
    "tests/cli/test_run.py",
    "tests/testing/test_topology_test_driver.py",
    "tests/runtime/test_lost_state.py",
    "tests/spark/test_standing_run.py",
    "tests/steps/vector/test_column_join.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order-seed", type=int, help="Run the tests in the order of this seed; each run says its own.")


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("order_seed", config.option.order_seed)
    config.option.order_seed = random.SystemRandom().randrange(1 << 32) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All processes of a run have one seed: xdist hands tests out by their number."""
    node.workerinput["order_seed"] = node.config.option.order_seed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A random order, so that no test rests on another: of files, and within each, whose tests share its fixtures.

    Tests with a broker or Spark stay in their file's order: many of them share one running application, and tell its life.
    What takes longest comes first all the same, or the last of several processes would be alone with it in the end.
    """
    of_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        of_file.setdefault(item.path, []).append(item)
    order = random.Random(config.option.order_seed)
    files = list(of_file.values())
    order.shuffle(files)
    for tests in files:
        if not any(test.get_closest_marker(name) for test in tests for name in ("broker", "spark")):
            order.shuffle(tests)
    items[:] = [item for tests in files for item in tests]
    rank = {name: number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"order of the tests: --order-seed={config.option.order_seed}")


def pytest_collection_finish() -> None:
    """Thousands of collected tests are no garbage: the collector does not look through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hypothesis makes errors of all warnings while it looks at a type (``from_type``), also of those about sockets that tests
    before left to the collector, were it to run just then: it runs now, unless it has run and only such tests since."""
    global _has_collected
    draws = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
    if draws and not _has_collected:
        gc.collect()
    _has_collected = draws


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """The session's broker: never stop, kill or reconfigure it; take names from `unique_name` to be undisturbed."""
    from tidemill.embedded.broker import EmbeddedBroker

    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as running:
        yield running


@pytest.fixture
def bootstrap_servers(broker: EmbeddedBroker) -> str:
    """Where the session's broker listens."""
    return broker.bootstrap_servers


@pytest.fixture
def private_broker() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Makes brokers that only this test uses, to be killed at will: ``private_broker(settings={...})`` is running."""
    from tidemill.embedded.broker import EmbeddedBroker

    with ExitStack() as running:
        yield lambda **options: running.enter_context(
            EmbeddedBroker(**{"environ": os.environ, "start_limit_s": 240, **options})
        )


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Names for topics, groups and applications that no other test on the session's broker uses."""
    return lambda stem: f"{stem}-{next(_numbers)}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The run's session, with room for three stream threads. A process can have one at a time: take no other."""
    from tidemill.runtime.instance.launching import launch_jvm

    launched = launch_jvm(os.environ, application_id="tests", threads=3, heap="768m")
    try:
        handle = launched.jvm.session(start_limit_s=240)
        yield handle.session
        handle.close()
    finally:
        launched.end()


@pytest.fixture(autouse=True)
def _no_run_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Frees the task slot of a test driver that is not closed: the next test may count the session's slots."""
    yield
    if "spark" in request.fixturenames:
        from tidemill.testing.driver_service import shared_driver_service

        shared_driver_service()[0].end_run()
