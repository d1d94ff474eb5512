"""Where reads may be served and to whom, decided before anything starts."""

from __future__ import annotations

import pytest

from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}
TOKEN = "a-token-of-some-length"


def config(**http: object) -> StreamsConfig:
    return StreamsConfig.of({**NEEDED, **{f"tidemill.http.{name.replace('_', '.')}": value for name, value in http.items()}})


@pytest.mark.parametrize("listen", ["localhost:8080", "127.0.0.1:0", "127.9.9.9:1", "[::1]:8080", ""])
def test_this_machine_may_be_served_without_a_token(listen: str) -> None:
    assert config(listen=listen).http_listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:8080", "192.168.1.5:80", "reads.example:80", "127.0.0.1.example:80"])
def test_other_machines_need_a_token(listen: str) -> None:
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        config(listen=listen)


def test_every_address_is_no_name_to_be_known_by() -> None:
    with pytest.raises(ConfigError, match="is every address of this machine"):
        config(listen="0.0.0.0:8080", token=TOKEN)
    given = StreamsConfig.of(
        {**NEEDED, "tidemill.http.listen": "0.0.0.0:8080", "tidemill.http.token": TOKEN, "application.server": "one:8080"}
    )
    assert given.application_server == "one:8080"


@pytest.mark.parametrize("listen", ["8080", "localhost", "localhost:", ":80", "localhost:http", "localhost:65536"])
def test_an_address_is_a_host_and_a_port(listen: str) -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        config(listen=listen)


@pytest.mark.parametrize("token", ["short", "with spaces between its words", "ein-schlüssel-mit-umlaut"])
def test_a_token_that_is_none_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="16 or more printable characters") as error:
        config(listen="one:80", token=token)
    assert token not in str(error.value)


def test_the_token_is_never_printed() -> None:
    printed = repr(config(listen="one:80", token=TOKEN))
    assert TOKEN not in printed
    assert "tidemill.http.token=(hidden)" in printed
