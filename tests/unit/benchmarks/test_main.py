"""`python -m benchmarks`: the names, the table, the file of figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import storage
from benchmarks.__main__ import main
from benchmarks.processes import ENVIRONMENT, ROOT, program
from benchmarks.report import Report


def test_a_benchmark_prints_a_table_and_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the output is tested here; `make bench` measures the figures."""

    async def run(url: str | None, *, quick: bool, progress: Callable[[str], None]) -> Report:
        progress(f"{url} {quick}")
        report = Report()
        report.at_least("commits, batched against single", 7.25, "×", 5.0)
        report.at_most("wake-up, median", 2.5, "ms", 2.0)
        report.note("commits", 12345.678, "per second")
        return report

    monkeypatch.setattr(storage, "run", run)
    file = tmp_path / "figures.json"
    result = CliRunner().invoke(main, ["storage", "--quick", "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "7.25" in result.stdout
    assert "12,346" in result.stdout
    assert "1 of 2 targets met" in result.stdout
    assert [figure["met"] for figure in json.loads(file.read_text())["figures"]] == [True, False, None]


def test_make_bench_runs_every_benchmark() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nbench:")[2]
    names = recipe.partition("for name in ")[2].partition(";")[0].split()
    assert sorted(names) == sorted(main.commands)
    assert names[0] == "compare"


def test_every_benchmark_is_in_the_readme() -> None:
    text = (ROOT / "benchmarks/README.md").read_text()
    for name in main.commands:
        assert f"| `{name}` |" in text


def test_the_checkout_runs_them() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "python -m benchmarks" in ran.stdout
    for name in main.commands:
        assert name in ran.stdout


def test_children_are_found_from_any_directory(tmp_path: Path) -> None:
    """The child commits to a SQLite file beside the caller, outside the checkout."""
    command = program("pulse", "sqlite:///bench.db", "stream", "2")
    subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True)
    assert (tmp_path / "bench.db").exists()


def test_a_wrong_storage_is_one_line() -> None:
    result = CliRunner().invoke(main, ["storage", "--url", "nosuch://here", "--quick"])
    assert result.exit_code == 2
    assert "error: 'nosuch' names no engine" in result.output
