"""The documentation site builds without warnings, and has what a reader looks for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import keelbolt

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> Path:
    command = [sys.executable, "docs/build_site.py"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return ROOT / "site"


def test_the_site_has_every_page(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix("")
        assert (site / (place.parent if place.name == "README" else place) / "index.html").exists(), place


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference/api/keelbolt/index.html").read_text()
    for name in keelbolt.__all__:
        assert f'id="keelbolt.{name}"' in page, name


def test_the_site_shows_its_version_and_can_be_searched(site: Path) -> None:
    home = (site / "index.html").read_text()
    assert f"Keelbolt {keelbolt.__version__}" in home
    assert "prefers-color-scheme: dark" in home
    found = json.dumps(json.loads((site / "search.json").read_text()))
    assert "KEELBOLT_LEASE_SECONDS" in found
