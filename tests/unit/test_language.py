"""Each class has one name of its own, and the texts use plain words."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs/reference/glossary.md"

BANNED = ("told", "nobody", "somebody", "whoever", "anybody", "manieth", "whosoever")
"""Also as a part of a name: ``told_late``, ``WakesNobody``."""
ALLOWED = {
    ("benchmarks/prose.py", "told"): "a list of frequent English words",
    ("src/keelbolt/kernel/postgres/migrations/0001_kernel.sql", "somebody"): "migrations are compared by checksum",
    ("src/keelbolt/kernel/postgres/migrations/0001_kernel.sql", "whoever"): "migrations are compared by checksum",
    ("src/keelbolt/kernel/sqlite/migrations/0001_kernel.sql", "somebody"): "migrations are compared by checksum",
    ("src/keelbolt/testing/launch.py", "nobody"): "the name of a Unix user",
}
FOLDERS = (".ci", "benchmarks", "deploy", "docs", "examples", "src", "tests")
KINDS = {".css", ".html", ".js", ".json", ".lua", ".md", ".py", ".service", ".sh", ".sql", ".toml", ".yaml", ".yml"}
NAMES = {"Dockerfile", "Makefile", "run"}


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
    words = "|".join(BANNED)
    titles = "|".join(word.title() for word in BANNED)
    pattern = re.compile(rf"(?<![a-zA-Z])((?i:{words}))(?![a-zA-Z])|(?<=[a-z])({titles})(?![a-z])")
    found = set()
    for path in _texts():
        place = path.relative_to(ROOT).as_posix()
        found |= {(place, match[0].lower()) for match in pattern.finditer(path.read_text())}
    assert found == set(ALLOWED)


def _texts() -> list[Path]:
    paths = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    return [path for path in paths if (path.suffix in KINDS or path.name in NAMES) and path != Path(__file__)]
