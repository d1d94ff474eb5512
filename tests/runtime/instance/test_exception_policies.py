"""What settings say of exception handlers, as workers are given it."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError
from tidemill.operators.exception_handlers import FAILING, ExceptionResponse
from tidemill.runtime.instance.exception_policies import deserialization_handler_of, exception_handlers_of

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


def test_global_stores_are_covered_only_where_the_setting_says_so() -> None:
    continuing = {**NEEDED, "processing.exception.handler": "continue"}
    assert exception_handlers_of(StreamsConfig.of(continuing)).of_global_stores == FAILING
    covered = StreamsConfig.of({**continuing, "processing.exception.handler.global.enabled": True})
    assert exception_handlers_of(covered).of_global_stores.processing is ExceptionResponse.CONTINUE


def test_a_handler_that_continues_puts_records_aside_where_there_is_a_topic_for_them() -> None:
    continuing = {**NEEDED, "processing.exception.handler": "continue", "production.exception.handler": "fail"}
    topic = {"errors.dead.letter.queue.topic.name": "letters"}
    for more, expected in (({}, ExceptionResponse.CONTINUE), (topic, ExceptionResponse.DEAD_LETTER)):
        handlers = exception_handlers_of(StreamsConfig.of({**continuing, **more}))
        assert (handlers.processing, handlers.production) == (expected, ExceptionResponse.FAIL)


def test_a_handler_is_a_function_or_its_name_and_nothing_else() -> None:
    named = exception_handlers_of(StreamsConfig.of({**NEEDED, "processing.exception.handler": "operator:setitem"}))
    given = exception_handlers_of(StreamsConfig.of({**NEEDED, "processing.exception.handler": operator.setitem}))
    assert named.processing is given.processing is operator.setitem
    with pytest.raises(ConfigError, match=r"production\.exception\.handler=json:__name__ is 'json', expected a function of"):
        exception_handlers_of(StreamsConfig.of({**NEEDED, "production.exception.handler": "json:__name__"}))
    with pytest.raises(ConfigError, match=r"handler=json:JSONEncoder is <class 'json.*'>, expected a function of"):
        exception_handlers_of(StreamsConfig.of({**NEEDED, "production.exception.handler": "json:JSONEncoder"}))


class Skips:
    def handle(self, context: object, record: object, error: object) -> object: ...

    async def awaited(self, context: object, record: object, error: object) -> object: ...


@pytest.mark.parametrize("setting", ["deserialization", "processing", "production"])
@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (lambda: None, r"<lambda>\(\) can't be called with \(context, record, error\)"),
        (lambda record, error: None, r"<lambda>\(record, error\) can't be called with \(context, record, error\)"),
        (lambda context, record, error, *, more: None, r"\*, more\) can't be called with \(context, record, error\)"),
        ("os:getcwd", r"getcwd\(\) can't be called with \(context, record, error\)"),
        (Skips().awaited, "is defined with async def, and nothing awaits it here"),
    ],
)
def test_a_handler_that_takes_other_arguments_is_refused_with_its_setting(setting: str, handler: Any, said: str) -> None:
    config = StreamsConfig.of({**NEEDED, f"{setting}.exception.handler": handler})
    with pytest.raises(ConfigError, match=rf"^{setting}\.exception\.handler: .*{said}"):
        deserialization_handler_of(config) if setting == "deserialization" else exception_handlers_of(config)


@pytest.mark.parametrize("handler", [Skips().handle, lambda *asked: None, lambda context, record, error, more=1: None])
def test_a_handler_of_three_arguments_is_taken_however_it_says_so(handler: Any) -> None:
    config = StreamsConfig.of({**NEEDED, "processing.exception.handler": handler})
    assert callable(exception_handlers_of(config).processing)
