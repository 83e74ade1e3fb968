"""Runs a test on every engine that needs no server."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty storage."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/file.db"
