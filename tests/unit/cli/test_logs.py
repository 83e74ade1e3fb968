"""Log lines for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.cli.logs import log_to_stderr


@contextmanager
def fresh() -> Iterator[logging.Logger]:
    """A program that has set up no logging: pytest's own handlers come back before it looks for them."""
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    handlers, level = root.handlers, ours.level
    root.handlers = []
    try:
        yield root
    finally:
        root.handlers = handlers
        ours.setLevel(level)


def test_a_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Also one with a line feed in it, and one with a traceback."""
    with fresh():
        log_to_stderr(as_json=True)
        logger = logging.getLogger("holdfast.tasks")
        logger.info("two\nlines, %d", 2)
        try:
            int("why")
        except ValueError:
            logger.exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("info", "holdfast.tasks", "two\nlines, 2")
    assert "ValueError: invalid literal" in second["exception"]


def test_people_read_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """What Holdfast tells, and only the warnings of others."""
    with fresh():
        log_to_stderr(as_json=False)
        logging.getLogger("holdfast.tasks").info("begun")
        logging.getLogger("somebody.else").info("chatter")
        logging.getLogger("somebody.else").warning("look")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["INFO begun", "WARNING look"]


def test_who_has_set_up_logging_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Unless JSON is asked for."""
    own = logging.NullHandler()
    with fresh() as root:
        root.addHandler(own)
        log_to_stderr(as_json=False)
        assert root.handlers == [own]
        log_to_stderr(as_json=True)
        logging.getLogger("somebody.else").warning("look")
    assert json.loads(capsys.readouterr().err)["logger"] == "somebody.else"
