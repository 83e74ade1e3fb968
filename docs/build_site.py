"""Builds the documentation site into site/: ``make docs`` runs it.

The pages in docs/ are written for GitHub and are the source of the site. This program copies them to build/docs, takes
the navigation from docs/README.md, adds one page of API reference for each public package, and runs Zensical with
warnings as errors.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILD = ROOT / "build"  # Zensical reads and writes below its configuration file only
SITE = ROOT / "site"
API = "reference/api"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def version() -> str:
    """The version of the package, read without an import."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/keelbolt/__init__.py").read_text(), re.MULTILINE)
    assert found
    return found[1]


def site_page(page: Path, place: str) -> str:
    """The text of a page at its place in the site. A link to a file that is not in docs/ becomes the file's path."""

    def site_link(link: re.Match[str]) -> str:
        text, address = link.groups()
        path, hash_sign, anchor = address.partition("#")
        if "://" in address or not path:
            return link[0]
        target = (page.parent / path).resolve()
        if not target.is_relative_to(DOCS):
            return f"{text} (`{target.relative_to(ROOT)}`)"
        relative = os.path.relpath(target.relative_to(DOCS), Path(place).parent)
        return f"[{text}]({Path(relative).as_posix()}{hash_sign}{anchor})"

    return LINK.sub(site_link, page.read_text())


def public_names() -> dict[str, list[str]]:
    """The public names of each package that declares ``__all__``, read without an import."""
    package = griffe.load("keelbolt", search_paths=[ROOT / "src"], resolve_aliases=True)
    modules = {"keelbolt": package, **{f"keelbolt.{name}": module for name, module in package.modules.items()}}
    found = {name: sorted(map(str, module.exports)) for name, module in modules.items() if module.exports}
    errors = package["errors"].docstring  # declares no __all__; a test checks that its tree has every error
    assert errors
    found["keelbolt.errors"] = sorted({"KeelboltError", *re.findall(r"[├└]── (\w+)", errors.value)})
    return dict(sorted(found.items()))


def navigation(packages: list[str]) -> list[object]:
    """The sections of docs/README.md with their pages, in its order, then the API and the changelog."""
    found: list[object] = ["README.md"]
    for section in re.split(r"^## ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        entries: list[object] = []
        for line in re.split(r"\n(?=[|-])", section)[1:]:
            pages = [address for _, address in LINK.findall(line) if address.endswith(".md")]
            group = re.match(r"\| \*\*(.+?)\*\*", line)
            entries += [{group[1]: pages}] if group else pages
        found.append({section.splitlines()[0]: entries})
    return [*found, {"API": [{name: f"{API}/{name}.md"} for name in packages]}, {"Changes": "changes.md"}]


def toml(value: object) -> str:
    """A value of the navigation as TOML: text, a list, or a table."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value)


def write_pages(folder: Path) -> None:
    """Write all pages and the configuration of Zensical into the folder."""
    pages = folder / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    kinds = {".md", ".png", ".svg"}
    sources = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*") if path.suffix in kinds}
    for place, source in {**sources, "changes.md": ROOT / "CHANGELOG.md"}.items():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            target.write_text(site_page(source, place))
        else:
            shutil.copyfile(source, target)
    packages = public_names()
    (pages / API).mkdir()
    for package, names in packages.items():
        symbols = "".join(f"\n::: {package}.{name}\n" for name in names)
        (pages / API / f"{package}.md").write_text(f"# {package}\n{symbols}")
    settings = (DOCS / "zensical.toml").read_text().replace("@version@", version())
    (folder / "zensical.toml").write_text(settings.replace('"@navigation@"', toml(navigation(list(packages)))))


def main() -> int:
    write_pages(BUILD)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=BUILD, check=False)
    if not built.returncode:
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.move(BUILD / "site", SITE)
        print(f"Open {(SITE / 'index.html').relative_to(ROOT)}")  # noqa: T201
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
