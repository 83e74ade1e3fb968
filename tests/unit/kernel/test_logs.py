"""Log lines, as JSON and as text: data of clients can't forge one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from keelbolt.observability.logs import log_to_stderr


@contextmanager
def fresh() -> Iterator[logging.Logger]:
    """A program without logging configuration; pytest's handlers are restored at the end."""
    root, ours = logging.getLogger(), logging.getLogger("keelbolt")
    handlers, level = root.handlers, ours.level
    root.handlers = []
    try:
        yield root
    finally:
        root.handlers = handlers
        ours.setLevel(level)


def test_a_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    """A message with a line feed and one with a traceback are one line each."""
    with fresh():
        log_to_stderr(as_json=True)
        logger = logging.getLogger("keelbolt.tasks")
        logger.info("two\nlines, %d", 2)
        try:
            int("why")
        except ValueError:
            logger.exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("info", "keelbolt.tasks", "two\\nlines, 2")
    assert "ValueError: invalid literal" in second["exception"]


def test_text_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """The output has all lines of Keelbolt, and only the warnings of other libraries."""
    with fresh():
        log_to_stderr(as_json=False)
        logging.getLogger("keelbolt.tasks").info("begun")
        logging.getLogger("other.library").info("chatter")
        logging.getLogger("other.library").warning("look")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["INFO begun", "WARNING look"]


def test_an_existing_logging_configuration_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Only a request for JSON replaces it."""
    own = logging.NullHandler()
    with fresh() as root:
        root.addHandler(own)
        log_to_stderr(as_json=False)
        assert root.handlers == [own]
        log_to_stderr(as_json=True)
        logging.getLogger("other.library").warning("look")
    assert json.loads(capsys.readouterr().err)["logger"] == "other.library"


EVIL = "a\n2026-01-01 00:00:00,000 ERROR forged \x1b[2J\r\x00\x9b\u202e\u2028 é 漢 🙂"
CLEAN = r"a\n2026-01-01 00:00:00,000 ERROR forged \x1b[2J\r\x00\x9b\u202e\u2028 é 漢 🙂"


def lines_of(capsys: pytest.CaptureFixture[str], as_json: bool) -> tuple[list[str], list[str]]:
    """Return the written lines and their messages."""
    lines = capsys.readouterr().err.splitlines()
    return lines, [json.loads(line)["message"] if as_json else line for line in lines]


@pytest.mark.parametrize("as_json", [False, True])
def test_client_data_creates_no_line(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """Line feeds, escape sequences and bidirectional marks are escaped; letters stay."""
    with fresh():
        log_to_stderr(as_json=as_json)
        logging.getLogger("keelbolt.server").warning("refused: %s", EVIL)
        logging.getLogger("keelbolt.server").warning("refused: %(what)s", {"what": EVIL})
        logging.getLogger("keelbolt.server").warning(f"refused: {EVIL}")  # noqa: G004
    lines, messages = lines_of(capsys, as_json)
    assert len(lines) == 3
    assert all(line.endswith(f"refused: {CLEAN}") for line in messages)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("as_json", [False, True])
def test_client_data_is_truncated(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """Each value is truncated separately, so that the message stays complete. Errors are truncated, numbers are not."""
    with fresh():
        log_to_stderr(as_json=as_json)
        logger = logging.getLogger("keelbolt.server")
        logger.warning("%s: %s is too much, by %d", "x" * 1001, ValueError("y" * 50_000), 10**40)
        logger.warning("%s", "z" * 1000)
    _, (first, second) = lines_of(capsys, as_json)
    assert first.endswith(f"{'x' * 1000}…: {'y' * 1000}… is too much, by {10**40}")
    assert second.endswith("z" * 1000)


def raised(text: str) -> None:
    raise ValueError(text)


def test_a_traceback_forges_no_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with fresh():
        log_to_stderr(as_json=False)
        try:
            raised(EVIL + "w" * 5000)
        except ValueError:
            logging.getLogger("keelbolt.server").exception("a request failed")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR a request failed")
    assert all(line.startswith("    ") and line.isprintable() and len(line) < 1100 for line in rest)
    assert any("in raised" in line for line in rest)


def test_a_traceback_forges_no_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with fresh():
        log_to_stderr(as_json=True)
        try:
            raised(EVIL)
        except ValueError:
            logging.getLogger("keelbolt.server").exception("a request failed")
    [line] = capsys.readouterr().err.splitlines()
    assert "\x1b" not in json.loads(line)["exception"]


@pytest.mark.parametrize(("level", "expected_lines"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_filters_lines(capsys: pytest.CaptureFixture[str], level: str, expected_lines: int) -> None:
    with fresh():
        log_to_stderr(as_json=False, level=level)
        logger = logging.getLogger("keelbolt.server")
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logger.log(number, "text")
    assert len(capsys.readouterr().err.splitlines()) == expected_lines


def test_levels_are_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and NO_COLOR get no colours; the message, which contains text of clients, is never coloured."""
    record = logging.LogRecord("keelbolt", logging.WARNING, "", 0, "look", (), None)
    for terminal, no_color, coloured in ((True, "", True), (True, "1", False), (False, "", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal, raising=False)
        with fresh() as root:
            log_to_stderr(as_json=False)
            line = root.handlers[0].format(record)
        assert line.endswith("\x1b[33mWARNING\x1b[0m look" if coloured else " WARNING look")
