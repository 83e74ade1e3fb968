"""The former name of the project, which belongs to another package on PyPI, is nowhere in the repository."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORMER = "hold" + "fast"  # in two parts, so that this file passes its own test
MADE = {"__pycache__", "build", "dist", "node_modules"}


def files() -> Iterator[Path]:
    """Return the tracked files; in an unpacked sdist, all but hidden and generated ones."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        yield from (ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file())
        return
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not any(part.startswith(".") or part in MADE for part in parts):
            yield path


def test_no_file_has_the_former_name() -> None:
    found = []
    for path in files():
        name = str(path.relative_to(ROOT))
        if FORMER in name.lower() or FORMER.encode() in path.read_bytes().lower():
            found.append(name)
    assert found == []


def test_files_are_found() -> None:
    names = {str(path.relative_to(ROOT)) for path in files()}
    assert {"README.md", "pyproject.toml", "src/keelbolt/__init__.py", "docs/images/explorer.png"} <= names
