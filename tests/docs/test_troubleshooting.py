"""The messages that the troubleshooting page quotes are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/troubleshooting.md").read_text()
ROWS = [
    line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| symptom")
]
QUOTED = sorted({message for row in ROWS for message in re.findall(r'"(.+?)"', row)})


def texts() -> str:
    """Return all string constants of the package, and the constant parts of formatted strings."""
    nodes = (node for path in (ROOT / "src/keelbolt").rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return "\n".join(re.sub(r"\s+", " ", value) for value in constants if isinstance(value, str))


@pytest.fixture(scope="module")
def code() -> str:
    return texts()


def test_the_page_has_twenty_symptoms_and_more() -> None:
    assert len(ROWS) >= 20


@pytest.mark.parametrize("message", QUOTED)
def test_the_message_is_in_the_code(code: str, message: str) -> None:
    for piece in message.split("…"):
        assert piece.strip("' []:,.;?") in code, piece
