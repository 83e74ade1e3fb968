"""Each class has one name of its own, and the texts use plain words."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"

BANNED = ("told", "nobody", "somebody", "whoever", "anybody", "how-manieth", "whosoever")
ALLOWED = {
    ("docs/howto/authentication.md", "nobody"): "the text of a secret",
    ("docs/howto/call-an-agent.md", "nobody"): "an unknown id",
    ("docs/howto/secure.md", "somebody"): "a wrong token",
    ("src/keelbolt/kernel/postgres/migrations/0001_kernel.sql", "somebody"): "migrations are compared by checksum",
    ("src/keelbolt/kernel/postgres/migrations/0001_kernel.sql", "whoever"): "migrations are compared by checksum",
    ("src/keelbolt/kernel/sqlite/migrations/0001_kernel.sql", "somebody"): "migrations are compared by checksum",
    ("src/keelbolt/testing/launch.py", "nobody"): "the name of a Unix user",
}
KINDS = {".css", ".html", ".js", ".lua", ".md", ".py", ".sql", ".toml", ".yaml"}


def test_class_names_are_unique() -> None:
    """Two public classes share a name only if the glossary gives the reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(ROOT).as_posix())
    repeated = {name: paths for name, paths in found.items() if len(paths) > 1}
    explained = GLOSSARY.read_text().partition("## Names that occur twice")[2]
    assert explained
    assert {name: paths for name, paths in repeated.items() if f"`{name}`" not in explained} == {}
    assert set(re.findall(r"^- `(\w+)`:", explained, re.MULTILINE)) == set(repeated)


def test_plain_words() -> None:
    words = re.compile(rf"(?<!\w)({'|'.join(BANNED)})(?!\w)", re.IGNORECASE)
    found = set()
    for path in _texts():
        place = path.relative_to(ROOT).as_posix()
        found |= {(place, match[1].lower()) for match in words.finditer(path.read_text())}
    assert found == set(ALLOWED)


def _texts() -> list[Path]:
    folders = [ROOT / name for name in ("src", "docs", "deploy", "examples")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in KINDS]
    return [*files, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile"))]
