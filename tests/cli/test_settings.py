"""Settings that a command is given: whose win, which brokers are asked, and what can't be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cli_process import ran_here
from tidemill.cli.settings import outside_settings
from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.kafka.admin import client, groups


def test_set_wins_over_the_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('commit.interval.ms = 50\n[num]\nstream.threads = 2\n[kafka]\n"client.id" = "x"\n')
    assert outside_settings(["num.stream.threads=3"], file) == {
        "commit.interval.ms": 50, "num.stream.threads": "3", "kafka.client.id": "x",
    }  # fmt: skip


def test_a_settings_file_that_is_missing_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: can't be read"):
        outside_settings([], tmp_path / "gone.toml")
    (tmp_path / "bad.toml").write_text("num.stream.threads: 2")
    with pytest.raises(ConfigError, match=r"bad\.toml: the settings are not TOML"):
        outside_settings([], tmp_path / "bad.toml")


LOOKS = [
    ("group", "describe", "--group", "g"),
    ("group", "members", "--group", "g"),
    ("group", "history", "--group", "g"),
    ("assign", "explain", "--group", "g"),
    ("drain", "one", "--group", "g"),
    ("roll", "--group", "g"),
    ("top", "--once", "--group", "g"),
    ("schema", "infer", "orders"),
]
"""Commands that look at brokers without an application."""


@pytest.fixture
def unreachable_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is asked is named in an error."""

    def asked(settings: Mapping[str, Any], *_what: object, **_how: object) -> None:
        brokers = settings.get("bootstrap.servers") or ",".join(settings["bootstrap_servers"])
        raise EnvironmentProblem(f"asked {brokers}")

    monkeypatch.setattr(groups, "live_group", asked)
    monkeypatch.setattr(client, "Admin", asked)


@pytest.mark.usefixtures("unreachable_brokers")
@pytest.mark.parametrize("command", LOOKS, ids=lambda command: " ".join(command[:2]))
def test_the_brokers_are_the_options_else_those_of_the_settings_else_local(command: tuple[str, ...], tmp_path: Path) -> None:
    """A group of that name on other brokers would be shown, or drained, without a word."""
    file = tmp_path / "settings.toml"
    file.write_text('bootstrap.servers = "of-file:1"\n')
    given = ("--config", file, "--bootstrap-server", "of-option:1")
    for most, brokers in ((4, "of-option:1"), (2, "of-file:1"), (0, "localhost:9092")):
        done = ran_here(*command, *given[:most])
        assert (done.returncode, done.stderr) == (2, f"tidemill: asked {brokers}\n")


@pytest.mark.usefixtures("unreachable_brokers")
@pytest.mark.parametrize("command", [("group", "members"), ("assign", "explain")], ids=" ".join)
def test_an_application_file_names_the_brokers_of_its_group(command: tuple[str, ...], tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from tidemill import Serdes, StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        'builder.stream("a", key=Serdes.string(), value=Serdes.string()).to("b", key=Serdes.string(), value=Serdes.string())\n'
        'config = {"bootstrap.servers": "of-app:1"}\n'
    )
    done = ran_here(*command, "--group", "g", "--app", app)
    assert (done.returncode, done.stderr) == (2, "tidemill: asked of-app:1\n")
    done = ran_here(*command, "--group", "g", "--app", app, "--set", "bootstrap.servers=of-set:1")
    assert (done.returncode, done.stderr) == (2, "tidemill: asked of-set:1\n")


@pytest.mark.parametrize("command", [*LOOKS, ("run", "app.py"), ("reset", "app.py")], ids=lambda command: " ".join(command[:2]))
def test_brokers_that_are_no_addresses_are_told_by_their_option(command: tuple[str, ...]) -> None:
    done = ran_here(*command, "--bootstrap-server", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tidemill: --bootstrap-server is 'nowhere', expected host:port")


def test_an_instance_and_a_group_are_not_both_asked() -> None:
    done = ran_here("top", "localhost:8080", "--bootstrap-server", "localhost:9092")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not both" in done.stderr
