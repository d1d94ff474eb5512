"""Settings that a command is given: whose win, and what can't be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.cli.settings import outside_settings
from tidemill.errors import ConfigError


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
