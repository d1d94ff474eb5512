"""Application files, and the command that describes them."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from tidemill.application_module import MODULE_NAME
from tidemill.cli.application_file import load_application
from tidemill.cli.describe import describe
from tidemill.errors import ConfigError, TidemillError, TopologyError
from tidemill.topology.nodes import SourceNode

ROOT = Path(__file__).parents[2]
BUILDER = "from tidemill import StreamsBuilder\nbuilder = StreamsBuilder()\n"
REKEYED = BUILDER + """
stream = builder.stream("in").select_key(lambda k, v: v)
stream.group_by_key().count(store="one")
stream.group_by_key().count(store="two")
"""

PROCESSORS = """from tidemill import TopologyBuilder
builder = TopologyBuilder()
builder.add_source("source", "in")
"""

STARTED = BUILDER + """
builder.stream("in").to("out")
config = {"application.id": "a", "bootstrap.servers": "nowhere:1"}
from tidemill import KafkaStreams
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes an application file; the import path is as before afterwards."""

    def write(text: str) -> Path:
        file = tmp_path / "app.py"
        file.write_text(text, encoding="utf-8")
        return file

    path_before = list(sys.path)
    yield write
    sys.path[:] = path_before


# --- loading ---------------------------------------------------------------------------------------------------------


def test_a_builder_is_built_and_overrides_win_over_the_config(write: Write) -> None:
    file = write(BUILDER + 'builder.stream("in").to("out")\nconfig = {"application.id": "a", "num.stream.threads": 2}')
    topology, config = load_application(file, {"application.id": "b"})
    assert list(topology.nodes) == ["KSTREAM-SOURCE-0000000000", "KSTREAM-SINK-0000000001"]
    assert config == {"application.id": "b", "num.stream.threads": 2}


def test_a_file_may_begin_with_a_byte_order_mark(write: Write) -> None:
    """Python takes such a script, too."""
    assert load_application(write("\ufeff" + BUILDER + 'builder.stream("in").to("out")'), {})[0].nodes


@pytest.mark.parametrize("name", ["builder", "topology"])
def test_a_builder_of_processors_is_built_under_either_name(write: Write, name: str) -> None:
    topology, _ = load_application(write(PROCESSORS.replace("builder", name)), {})
    assert list(topology.nodes) == ["source"]


def test_a_topology_is_taken_as_it_is_even_beside_its_builder(write: Write) -> None:
    topology, config = load_application(write(REKEYED + 'topology = builder.build(optimization="all")'), {})
    assert set(topology.repartition_topics) == {"one-repartition"}
    assert config == {}


@pytest.mark.parametrize(("config", "overrides", "count"), [
    ("", {}, 2),
    ('config = {"topology.optimization": "all"}', {}, 1),
    ('config = {"topology.optimization": "all"}', {"topology.optimization": "none"}, 2),
])
def test_a_builder_is_optimised_as_the_config_says(
    write: Write, config: str, overrides: dict[str, str], count: int
) -> None:
    assert len(load_application(write(REKEYED + config), overrides)[0].repartition_topics) == count


def test_an_optimization_of_another_type_is_refused_with_what_was_expected(write: Write) -> None:
    file = write(REKEYED + 'config = {"topology.optimization": 1}')
    with pytest.raises(ConfigError, match=r"topology\.optimization is 1, expected none, all or a list of names"):
        load_application(file, {})


def test_a_file_runs_under_its_own_name_with_its_folder_on_the_import_path(write: Write, tmp_path: Path) -> None:
    (tmp_path / "beside_app.py").write_text("TOPIC = 'from-beside'")
    file = write(BUILDER + """
from dataclasses import dataclass
from beside_app import TOPIC

@dataclass
class Settings:
    name: str = __name__

config = {"name": Settings().name, "file": __file__}
builder.stream(TOPIC)
if __name__ == "__main__":
    raise SystemExit("run as a script")
""")
    topology, config = load_application(file, {})
    assert config == {"name": MODULE_NAME, "file": str(file)}
    assert topology.nodes["KSTREAM-SOURCE-0000000000"].topics == ("from-beside",)  # type: ignore[union-attr]


IN_PACKAGE = "from .rules.limits import TOPIC\nbuilder.stream(TOPIC)\nconfig = {'file': __file__, 'package': __package__}\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An application in a package of the working directory, with a module that it imports relatively."""
    folder = tmp_path / "shop_of_tests"
    (folder / "rules").mkdir(parents=True)
    for at in (folder, folder / "rules"):
        (at / "__init__.py").touch()
    (folder / "rules" / "limits.py").write_text("TOPIC = 'of-the-rules'")
    (folder / "app.py").write_text(BUILDER + IN_PACKAGE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield folder / "app.py"
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]



def test_a_file_in_a_package_has_the_package_s_imports(package: Path) -> None:
    topology, config = load_application(package, {})
    assert config == {"file": str(package), "package": "shop_of_tests"}
    assert topology.nodes["KSTREAM-SOURCE-0000000000"].topics == ("of-the-rules",)  # type: ignore[union-attr]


def test_a_module_may_be_named_as_for_python_m(package: Path) -> None:
    topology, config = load_application("shop_of_tests.app", {})
    assert config == {"file": str(package), "package": "shop_of_tests"}
    assert topology.nodes["KSTREAM-SOURCE-0000000000"].topics == ("of-the-rules",)  # type: ignore[union-attr]
    assert str(package.parent) not in sys.path


@pytest.mark.parametrize(("name", "init", "message"), [
    ("shop_of_tests.nothing", "", r"there is no application file shop_of_tests\.nothing, and no module of that name \(looked"),
    ("nothing_of_tests.app", "", r"there is no application file nothing_of_tests\.app, and no module of that name"),
    ("shop_of_tests.rules", "", r"^shop_of_tests\.rules is a package; name the module in it"),
    ("shop_of_tests.app", "\n1 / 0", r"__init__\.py, line 2: ZeroDivisionError: division by zero \(in: 1 / 0\)"),
    ("shop_of_tests.app", "import nothing_of_tests", r"__init__\.py, line 1: ModuleNotFoundError: No module named 'nothing_of_t"),
])
def test_a_module_that_is_not_there_is_reported(package: Path, name: str, init: str, message: str) -> None:
    (package.parent / "__init__.py").write_text(init)
    with pytest.raises(ConfigError, match=message):
        load_application(name, {})


def test_a_relative_import_of_a_file_in_no_package_is_reported_with_what_to_do(package: Path) -> None:
    (package.parent / "__init__.py").unlink()
    with (
        pytest.warns(ImportWarning),  # Python's own, which the command line does not show
        pytest.raises(ConfigError, match=r"app\.py, line 3: ImportError: .+ its folder has no __init__\.py: add one, import"),
    ):
        load_application(package, {})
    assert load_application("shop_of_tests.app", {})[1]["package"] == "shop_of_tests"


def test_functions_of_a_file_travel_by_value(write: Write) -> None:
    from pyspark import cloudpickle

    program = "FACTOR = 3\ndef times(value): return value * FACTOR\n" + 'builder.stream("in").map_values(times, name="m")'
    file = write(BUILDER + program)
    topology, _ = load_application(file, {})
    node = topology.nodes["m"]
    data = cloudpickle.dumps(node.operation.function)  # type: ignore[union-attr]
    assert MODULE_NAME not in sys.modules
    assert pickle.loads(data)(5) == 15


@pytest.mark.parametrize(("text", "error", "message"), [
    ("x = 1", ConfigError, "defines neither builder nor topology at its top level: add `builder = StreamsBuilder"),
    (BUILDER.replace("builder =", "b ="), ConfigError, "it calls its StreamsBuilder 'b'; name it builder"),
    (BUILDER + "made = builder.build(); del builder", ConfigError, "it calls its Topology 'made'; name it topology"),
    (PROCESSORS.replace("builder", "b"), ConfigError, "it calls its TopologyBuilder 'b'; name it builder"),
    (PROCESSORS + "builder.add_sink('sink', 'out', 'none')", TopologyError, r"app\.py.*none"),
    ("builder = 5", ConfigError, "builder must be a StreamsBuilder, found a int"),
    ("topology = 'x'", ConfigError, "topology must be a Topology, found a str"),
    (BUILDER + "config = [1]", ConfigError, "config must be a mapping of settings.*found list"),
    (BUILDER + "config = {1: 2}", ConfigError, "config must be a mapping of settings"),
    ("import re\n\nbuilder = re.nothing", ConfigError, r"app\.py, line 3: AttributeError: .*nothing.*in: builder = re\.nothing"),
    ("def f():\n    return 1 / 0\nf()", ConfigError, r"app\.py, line 2: ZeroDivisionError"),
    ("from pyspark.sql.functions import col\nlarge = col('n') > 100", ConfigError,
     r"app\.py, line 2: AssertionError: PySpark makes Columns only where .* in the functions that operators get .*in: large"),
    ("from pyspark.sql.functions import udf\n@udf('bigint')\ndef f(v): return v", ConfigError, "its results as an object"),
    ("x = (\n", ConfigError, r"app\.py, line 1: '\(' was never closed"),
    ("raise SystemExit(3)", ConfigError, r"app\.py, line 1: SystemExit: 3"),
    ("import re\nre.compile('(')", ConfigError, r"app\.py, line 2: "),
    (BUILDER + "\nbuilder.stream('')", TopologyError, r"app\.py, line 4: '' can't be the name of a topic"),
    (STARTED + "KafkaStreams(builder, config).start()", ConfigError, r"app\.py, line 7: the application is started while its"),
    (STARTED + "with KafkaStreams(builder, config):\n    pass", ConfigError, "Put the start under `if __name__ =="),
    (BUILDER + "builder.stream('a', name='x').to('b', name='x')", TopologyError, r"app\.py: two nodes have the name 'x'"),
])
def test_a_file_that_fails_says_where_and_why(
    write: Write, text: str, error: type[TidemillError], message: str
) -> None:
    file = write(text)
    with pytest.raises(error, match=message):
        load_application(file, {})
    assert MODULE_NAME not in sys.modules


@pytest.mark.parametrize(
    "line",
    ['config = {"kafka.ssl.key.password": "hush", **nothing}', 'url = "http://me:hush@host" + nothing', 'int("http://me:hush@host")'],
)
def test_a_line_that_may_hold_a_secret_is_not_shown(write: Write, line: str) -> None:
    with pytest.raises(ConfigError, match=r"app\.py, line 3: (NameError: name 'nothing'|ValueError: invalid literal)") as failed:
        load_application(write(BUILDER + line), {})
    assert "hush" not in str(failed.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no application file .*nowhere\.py"):
        load_application(tmp_path / "nowhere.py", {})
    with pytest.raises(ConfigError, match=r"can't be read .*expected an application file"):
        load_application(tmp_path, {})


def test_a_ready_made_topology_can_not_be_optimised_from_outside(write: Write) -> None:
    file = write(REKEYED + "topology = builder.build()")
    with pytest.raises(ConfigError, match=r"topology\.optimization can't be set from outside"):
        load_application(file, {"topology.optimization": "all"})


# --- describing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimization", [None, "none", "all"])
def test_the_wordcount_example_is_described_as_by_kafka(capsys: pytest.CaptureFixture[str], optimization: str | None) -> None:
    with gzip.open(ROOT / "tests" / "vectors" / "topologies.jsonl.gz", "rt") as lines:
        vectors = {vector["id"]: vector for vector in map(json.loads, lines)}
    describe(ROOT / "examples" / "wordcount.py", optimization=optimization)
    assert capsys.readouterr().out == vectors[f"wordcount_article_named_store/{optimization or 'none'}"]["describe"]


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_every_example_can_be_described(capsys: pytest.CaptureFixture[str], example: str) -> None:
    describe(ROOT / "examples" / example)
    assert "Sub-topology: 0" in capsys.readouterr().out


def test_json_and_mermaid_are_printed_but_not_both(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(BUILDER + 'builder.stream("in", name="src").to("out", name="snk")')
    describe(file, json=True)
    assert json.loads(capsys.readouterr().out) == {"subtopologies": [{"id": 0, "nodes": [
        {"type": "source", "name": "src", "topics": ["in"], "predecessors": [], "successors": ["snk"]},
        {"type": "sink", "name": "snk", "topic": "out", "predecessors": ["src"], "successors": []},
    ]}]}
    describe(file, mermaid=True)
    assert capsys.readouterr().out == """flowchart TD
  t0[/"in"/]
  t1[/"out"/]
  subgraph sub0 [Sub-topology 0]
    n0["src"]
    n1["snk"]
  end
  t0 --> n0
  n0 --> n1
  n1 --> t1
"""
    with pytest.raises(ConfigError, match="exclude each other"):
        describe(file, json=True, mermaid=True)


def test_a_class_of_the_file_as_json_travels_by_value(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from datetime import datetime\n"
        "from pydantic import BaseModel\n"
        "from tidemill import Serdes, StreamsBuilder\n"
        "class Item(BaseModel):\n    sku: str\n"
        "@dataclass\nclass Order:\n    at: datetime\n    items: list[Item]\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in', key=Serdes.json(Item), value=Serdes.json(Order)).to('out')\n"
    )
    topology, _ = load_application(file, {})
    [source] = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    read = "import pickle, sys; serde = pickle.load(sys.stdin.buffer); print(serde.deserialize(sys.argv[1].encode()))"
    text = '{"at":"2026-01-31T12:00:00Z","items":[{"sku":"a"}]}'
    elsewhere = subprocess.run(
        [sys.executable, "-c", read, text], input=cloudpickle.dumps(source.value_serde), capture_output=True, check=True,
        timeout=240,
    )
    assert elsewhere.stdout.decode().startswith("Order(at=datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc)")
