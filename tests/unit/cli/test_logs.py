"""Log lines for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.cli.logs import log_to_stderr


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    logger = logging.getLogger("holdfast")
    before = (logger.handlers, logger.level, logger.propagate)
    yield
    logger.handlers, logger.level, logger.propagate = before


def test_a_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Also one with a line feed in it, and one with a traceback."""
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
    log_to_stderr(as_json=False)
    logging.getLogger("holdfast.tasks").warning("look")
    assert capsys.readouterr().err.endswith("WARNING look\n")
