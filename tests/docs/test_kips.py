"""The table of KIPs in docs/migration/kafka-streams.md: what it says to be here is here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidemill
from tidemill.config.names import SettingNames
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "migration" / "kafka-streams.md"
ROW = re.compile(r"^\| (\d\.\d) \| ((?:KIP-\d+(?:, )?)+) \| (.+) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
VERDICTS = ("yes", "partly", "no: ", "nothing to do")
NAMES = SettingNames(StreamsConfig.__dataclass_fields__.values())


def kips() -> list[int]:
    return [int(number) for _, numbers, _, _ in ROWS for number in re.findall(r"KIP-(\d+)", numbers)]


def test_every_kip_of_issue_20_is_in_the_table_once_and_in_the_order_of_versions() -> None:
    assert {1111, 1146, 1112, 1259, 1270, 1340, 796} <= set(kips())
    assert len(kips()) == len(set(kips())) > 80
    versions = [tuple(map(int, version.split("."))) for version, *_ in ROWS]
    assert versions == sorted(versions)
    assert versions[0] == (3, 0)
    assert len(re.findall(r"^\| \d\.\d \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_what_a_row_names_exists(row: tuple[str, str, str, str]) -> None:
    *_, here = row
    assert here.startswith(VERDICTS), here
    if not here.startswith(("yes", "partly")):
        return
    for name in re.findall(r"`([^`]+)`", here):
        assert _is_setting(name) or _is_public(name) or name in PLAIN, f"{name} is no setting and no public name"


PLAIN = {"reverse=True", "default.dsl.store"}
"""Arguments, and what is said not to be understood."""


def _is_setting(name: str) -> bool:
    try:
        NAMES.find(name + "zone" if name.endswith(".") else name)
    except ConfigError:
        return False
    return True


def _is_public(name: str) -> bool:
    first, _, attribute = name.partition(".")
    return first in tidemill.__all__ and (not attribute or hasattr(getattr(tidemill, first), attribute))
