"""One version: `keelbolt.__version__`, and everything that shows it agrees."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from keelbolt import __version__

ROOT = Path(__file__).parents[2]


def test_the_package_has_the_version_of_the_source() -> None:
    """pyproject.toml takes it from keelbolt/__init__.py; after a change, install again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/keelbolt/__init__.py"
    assert metadata.version("keelbolt") == __version__


def test_the_command_prints_the_version() -> None:
    command = [sys.executable, "-m", "keelbolt", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"keelbolt {__version__}\n"


def test_the_changelog_has_the_version_with_a_date() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", headings[1])
