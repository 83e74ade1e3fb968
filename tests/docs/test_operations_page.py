"""The reference of the operations API is generated from its table."""

from __future__ import annotations

import re

from keelbolt.operations.table import ROUTES
from tests.docs.operations_page import PAGE, parts, written


def test_the_page_is_written_from_the_table() -> None:
    _, between, _ = parts(PAGE.read_text())
    assert between == written(), "renew it with: python -m tests.docs.operations_page"


def test_every_route_has_its_answer() -> None:
    _, _, after = parts(PAGE.read_text())
    documented = re.findall(r"^\| `(\w+)` \|", after.split("## What they answer")[1].split("\n## ")[0], re.MULTILINE)
    assert documented == [route.name for route in ROUTES]
