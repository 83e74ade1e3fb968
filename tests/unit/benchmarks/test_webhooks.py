"""The benchmark of webhooks prints all its figures; their values are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import webhooks
from benchmarks.__main__ import main


def test_bench_webhooks_prints_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "QUICK", webhooks.Counts(rounds=1, events=2, streams=2, beats=3))
    monkeypatch.setattr(webhooks, "BEAT_SECONDS", 0.01)
    file = tmp_path / "figures.json"
    result = CliRunner().invoke(main, ["webhooks", "--quick", "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    figures = {figure["name"]: figure for figure in json.loads(file.read_text())["figures"]}
    judged = [name for name, figure in figures.items() if figure["target"]]
    assert judged == [
        "deliveries ÷ POSTs of a bare loop",
        "from the commit to the POST, p50",
        "latency beside a dead receiver ÷ with it alive",
    ]
    assert all(figure["value"] > 0 for figure in figures.values())
