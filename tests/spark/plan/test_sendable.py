"""What can't be sent to the workers is refused, with the name of node or setting; what they can't import travels by value."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

from tidemill import Serdes, StreamsBuilder, TimeWindows, per_record
from tidemill.config.streams_config import StreamsConfig
from tidemill.dsl.stream import KStream
from tidemill.errors import ConfigError, TopologyError
from tidemill.runtime.instance.exception_policies import exception_handlers_of
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.spark.plan.sendable import send_by_value

TEXT = Serdes.string()
SAID = r"can't be sent to Spark's workers: TypeError: cannot pickle '_thread\.lock' object\. Workers get copies"


class Locked:
    """A function or a processor with a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, *arguments: object) -> str:
        return str(arguments[0])

    def init(self, context: object) -> None: ...

    def process(self, record: object) -> None: ...


def processed(stream: KStream, locked: Locked) -> None:
    stream.process(lambda: (locked, Locked())[1], name="node")


def in_windows(stream: KStream, locked: Locked) -> None:
    stream.group_by_key().windowed_by(TimeWindows.of_size(10)).reduce(per_record(locked, TEXT), name="node")


PARTS: dict[str, Callable[[KStream, Locked], None]] = {
    "a function": lambda stream, locked: stream.map_values(per_record(locked, TEXT), name="node").to("out"),
    "a function in a window": in_windows,
    "a processor": processed,
    "a topic extractor": lambda stream, locked: stream.to(locked, name="node"),
    "a partitioner": lambda stream, locked: stream.to("out", partitioner=locked, name="node"),
}


@pytest.mark.parametrize("part", PARTS)
def test_what_can_not_be_sent_is_refused_with_the_name_of_its_node(part: str) -> None:
    builder = StreamsBuilder()
    PARTS[part](builder.stream("in", key=TEXT, value=TEXT), Locked())
    with pytest.raises(TopologyError, match=f"^node: a function, processor or serde {SAID}"):
        compile_topology(None, builder.build(), "app")


def test_a_timestamp_extractor_that_can_not_be_sent_is_refused_with_its_source() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT, timestamp_extractor=Locked(), name="source").to("out")
    with pytest.raises(TopologyError, match=f"^source: a function, processor or serde {SAID}"):
        compile_topology(None, builder.build(), "app")


def test_functions_of_a_spawned_main_program_travel_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__mp_main__")
    exec("FACTOR = 3\ndef times(value): return value * FACTOR", main.__dict__)
    monkeypatch.setitem(sys.modules, "__mp_main__", main)
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=Serdes.long()).map_values(per_record(main.times, Serdes.long())).to("out")
    compile_topology(None, builder.build(), "app")
    sent = cloudpickle.dumps(main.times)
    cloudpickle.unregister_pickle_by_value(main)
    monkeypatch.delitem(sys.modules, "__mp_main__")
    assert pickle.loads(sent)(5) == 15


def test_functions_of_a_module_that_was_loaded_from_a_file_travel_by_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As pytest loads tests with ``--import-mode=importlib``. One in a folder of ``sys.path`` travels by its name."""
    for folder in ("aside", "listed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}_program.py").write_text("def twice(value): return value * 2")
    spec = spec_from_file_location("aside_program", tmp_path / "aside" / "aside_program.py")
    assert spec is not None
    assert spec.loader is not None
    aside = module_from_spec(spec)
    spec.loader.exec_module(aside)
    monkeypatch.setitem(sys.modules, "aside_program", aside)
    monkeypatch.syspath_prepend(tmp_path / "listed")
    listed = import_module("listed_program")
    send_by_value()
    sent = [cloudpickle.dumps(module.twice) for module in (aside, listed)]
    cloudpickle.unregister_pickle_by_value(aside)
    for name in ("aside_program", "listed_program"):
        monkeypatch.delitem(sys.modules, name)
    assert pickle.loads(sent[0])(5) == 10
    assert pickle.loads(sent[1])(5) == 10
    assert "listed_program" in sys.modules
    assert "aside_program" not in sys.modules


def test_functions_of_a_module_that_is_still_being_imported_travel_by_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stream thread that looked for such a function by its name would wait for the end of the import."""
    (tmp_path / "starting_program.py").write_text(
        "from threading import Thread\n"
        "from pyspark import cloudpickle\n"
        "from tidemill.spark.plan.sendable import send_by_value\n"
        "SENT = []\n"
        "def twice(value): return value * 2\n"
        "send_by_value()\n"
        "sending = Thread(target=lambda: SENT.append(cloudpickle.dumps(twice)), daemon=True)\n"
        "sending.start()\n"
        "sending.join(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    program = import_module("starting_program")
    cloudpickle.unregister_pickle_by_value(program)
    monkeypatch.delitem(sys.modules, "starting_program")
    assert pickle.loads(program.SENT[0])(5) == 10
    assert "starting_program" not in sys.modules


@pytest.mark.parametrize("setting", ["processing.exception.handler", "production.exception.handler"])
def test_a_handler_that_can_not_be_sent_is_refused_with_its_setting(setting: str) -> None:
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "localhost:9092", setting: Locked()})
    with pytest.raises(ConfigError, match=f"^{setting}: the handler {SAID}"):
        exception_handlers_of(config)
