"""`tidemill --version` says the version that is installed."""

from __future__ import annotations

from importlib import metadata

import pytest

from tidemill.cli.main import main


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"tidemill {metadata.version('tidemill')}, Python 3.")
