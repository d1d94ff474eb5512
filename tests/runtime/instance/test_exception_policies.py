"""What settings say of exception handlers, as workers are given it."""

from __future__ import annotations

from tidemill.config.streams_config import StreamsConfig
from tidemill.operators.exception_handlers import FAILING, ExceptionResponse
from tidemill.runtime.instance.exception_policies import exception_handlers_of

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


def test_global_stores_are_covered_only_where_the_setting_says_so() -> None:
    continuing = {**NEEDED, "processing.exception.handler": "continue"}
    assert exception_handlers_of(StreamsConfig.of(continuing)).of_global_stores == FAILING
    covered = StreamsConfig.of({**continuing, "processing.exception.handler.global.enabled": True})
    assert exception_handlers_of(covered).of_global_stores.processing is ExceptionResponse.CONTINUE
