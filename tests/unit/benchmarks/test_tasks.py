"""The benchmark of tasks prints all its figures; their values are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import tasks
from benchmarks.__main__ import main
from benchmarks.renamed import renamed
from benchmarks.tasks_stream import costs_of
from keelbolt.kernel import Append, Draft, Insert

TINY = tasks.Counts(1, 64, 400, (500, 1000), (10, 20))


def test_bench_tasks_prints_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each target is a ratio of two measurements of the same run; the names contain the counts."""
    monkeypatch.setattr(tasks, "QUICK", TINY)
    file = tmp_path / "figures.json"
    result = CliRunner().invoke(main, ["tasks", "--quick", "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    figures = json.loads(file.read_text())["figures"]
    judged = [figure for figure in figures if figure["target"]]
    assert len(judged) in (7, 8)  # bytes written are not counted everywhere
    assert all(figure["unit"] == "×" and "÷" in figure["name"] for figure in judged)
    assert any("1,000" in figure["name"] for figure in judged)
    assert all(figure["value"] > 0 for figure in figures)


def test_chunks_of_one_commit_share_its_time() -> None:
    assert costs_of([1.0, 1.0001, 4.0, 4.0001, 4.0002, 4.0003], 0.0) == pytest.approx(
        [0.50005, 0.50005, 0.75005, 0.75005, 0.75005, 0.75005], abs=1e-9
    )


def test_renamed_operations_are_the_same_but_for_the_names() -> None:
    old = (
        Insert("tasks", "abc", b'{"id":"abc"}', {"context": "abc", "updated": 1}),
        Append("events", "abc", (Draft("status", b"of abc"), Draft("other", b"of abd"))),
    )
    assert renamed(old, {"abc": "xyz"}) == (
        Insert("tasks", "xyz", b'{"id":"xyz"}', {"context": "xyz", "updated": 1}),
        Append("events", "xyz", (Draft("status", b"of xyz"), Draft("other", b"of abd"))),
    )
