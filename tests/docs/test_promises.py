"""The page about the promises contains each promise, and the tests and files that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/promises.md").read_text()


def test_each_promise_has_its_place_and_its_tests() -> None:
    promises = re.findall(r"^(\d)\. \*\*", (ROOT / "README.md").read_text(), re.MULTILINE)
    sections = re.findall(r"^## (\d)\. .*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert promises == sections == list("12345678")
    for text in re.findall(r"^## \d\. .*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL):
        assert "**Kept**" in text
        assert len(re.findall(r"`tests/\S+`", text)) >= 2, text.splitlines()[0]


def test_what_is_named_exists() -> None:
    """A test that is named without a file is in the last named file."""
    file = ""
    for name in re.findall(r"`((?:tests/\S+\.py)?(?:::)?(?:test_\w+(?:\.py)?)?)`", PAGE):
        path, _, test = name.partition("::")
        if path.startswith("tests/"):
            file = (ROOT / path).read_text()
        elif path.endswith(".py"):
            assert (ROOT / "tests/faults" / path).exists(), name
            continue
        else:
            test = path
        assert not test or f"def {test}(" in file, name
    for room in re.findall(r"`((?:tasks|server|webhooks)/[\w.]*)`", PAGE):
        assert (ROOT / "src/keelbolt" / room).exists(), room
