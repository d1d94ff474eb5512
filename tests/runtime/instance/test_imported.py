"""What settings name as ``module:attribute``, and what becomes of modules that fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemill.errors import ConfigError
from tidemill.runtime.instance.imported import imported

NAME = "processing.exception.handler"


def test_a_name_is_what_the_module_has_under_it() -> None:
    assert imported(NAME, "os.path:join", "module:function") is __import__("os").path.join


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_shop:f", "No module named 'no_such_shop'; expected module:function"),
        ("os.path:no_such", "has no attribute 'no_such'; expected module:function"),
        (".relative:f", "TypeError: .*relative"),
        ("shop_that_divides:f", "ZeroDivisionError: division by zero"),
        ("shop_of_no_syntax:f", "SyntaxError: "),
    ],
)
def test_whatever_a_module_raises_is_the_settings_error(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_that_divides.py").write_text("1 / 0")
    (tmp_path / "shop_of_no_syntax.py").write_text("def (")
    with pytest.raises(ConfigError, match=f"{re.escape(NAME)}={re.escape(name)} can't be imported: .*{says}"):
        imported(NAME, name, "module:function")
