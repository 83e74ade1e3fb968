"""Each test runs on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty storage of each engine."""
    match request.param:
        case "memory":
            return "memory:"
        case "sqlite":
            return f"sqlite:///{tmp_path}/file.db"
        case name:
            url: str = request.getfixturevalue(f"{name}_url")
            return url


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def kept_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty storage of each engine that processes can share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/file.db"
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
