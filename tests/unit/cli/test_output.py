"""Terminal output: line width and colours."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from keelbolt.cli.main import main
from keelbolt.cli.output import work_progress
from tests.unit.cli.test_tasks import ADA, run_all

TEXT = "Please write a poem about the sea, with four verses, and read it to me ☂ 漢字漢字漢字"
TERMINAL = {"FORCE_COLOR": "1", "COLUMNS": "80", "NO_COLOR": None, "TERM": "xterm-256color"}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("everyone", [[], ["--all"]])
def test_a_list_of_tasks_fits_80_columns(tmp_path: Path, everyone: list[str]) -> None:
    """Ids are complete, and a row is one line with the start of the message."""
    url = f"sqlite:///{tmp_path}/agent.db"
    ids = asyncio.run(run_all(url, TEXT, "ask")) + asyncio.run(run_all(url, "fail", principal=ADA))
    shown = CliRunner().invoke(main, ["tasks", "list", "--storage", url, *everyone], env=TERMINAL, color=True).stdout
    lines = ANSI.sub("", shown).splitlines()
    assert all(cell_len(line) <= 80 for line in lines), shown
    for task in ids if everyone else ids[:2]:
        assert sum(task in line for line in lines) == 1
    assert "Please" in shown or everyone
    assert "…" in shown
    assert ("acme/ada: fail" in shown) == bool(everyone)
    assert "\x1b[32mcompleted" in shown
    plain = CliRunner().invoke(main, ["tasks", "list", "--storage", url], env={**TERMINAL, "NO_COLOR": "1"})
    assert "\x1b[32m" not in plain.stdout


def test_lines_are_not_truncated_without_a_terminal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    asyncio.run(run_all(url, TEXT))
    assert TEXT in CliRunner().invoke(main, ["tasks", "list", "--storage", url]).stdout


def test_progress_is_a_bar_on_a_terminal_and_a_line_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("keelbolt.cli.output.LINE_SECONDS", 0.0)
    with work_progress("erasing", "records") as tell:
        tell(1200)
    assert re.fullmatch(r"erasing: 1,200 \([\d,]+/s\) records\n", capsys.readouterr().err)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with work_progress("erasing", "records") as tell:
        tell(1200)
    assert "1,200" in ANSI.sub("", capsys.readouterr().err)
