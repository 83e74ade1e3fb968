"""The sources of the documentation site; `make docs`, run by .ci/run, builds it with warnings as errors."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import keelbolt
from docs.build_site import DOCS, ROOT, write_pages


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write_pages(folder)
    return folder


def pages(navigation: Any) -> set[str]:
    """Return all pages below an entry of the navigation."""
    match navigation:
        case str():
            return {navigation}
        case dict():
            return pages(list(navigation.values()))
        case _:
            return set().union(*(pages(item) for item in navigation))


def test_every_page_is_in_the_navigation(source: Path) -> None:
    project = tomllib.loads((source / "zensical.toml").read_text())["project"]
    assert project["site_name"] == f"Keelbolt {keelbolt.__version__}"
    written = {path.relative_to(source / "docs").as_posix() for path in (source / "docs").rglob("*.md")}
    assert pages(project["nav"]) == written
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} < written


def test_the_api_reference_has_every_public_name(source: Path) -> None:
    page = (source / "docs/reference/api/keelbolt.md").read_text()
    assert page.split("\n::: ")[1:] == [f"keelbolt.{name}\n" for name in sorted(keelbolt.__all__)]
    assert (source / "docs/reference/api/keelbolt.errors.md").exists()


def test_links_out_of_the_documentation_become_paths(source: Path) -> None:
    assert "](../../" not in (source / "docs/howto/apcore.md").read_text()
    assert "(`examples/apcore_agent/README.md`)" in (source / "docs/howto/apcore.md").read_text()
    assert "](howto/migrate-from-apcore-a2a.md)" in (source / "docs/changes.md").read_text()


def test_every_check_builds_the_site() -> None:
    assert "run docs" in (ROOT / ".ci/run").read_text()
