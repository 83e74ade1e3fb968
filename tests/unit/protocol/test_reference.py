"""The reference page has the current table of errors and names of operations."""

from __future__ import annotations

import re
from pathlib import Path

from keelbolt.protocol.errors import INTERNAL, QUIET, TABLE, ErrorRow
from keelbolt.protocol.operations import NAMES_V03

PAGE = (Path(__file__).parents[3] / "docs/reference/protocol.md").read_text()


def test_the_table_of_errors() -> None:
    shown: dict[str, tuple[str, ...]] = {}
    for line in PAGE.split("## Errors")[1].split("| binding |")[0].splitlines():
        if line.startswith(("| `", "| anything")):
            names, *rest = (cell.strip() for cell in line.strip("|").split("|"))
            for name in re.findall(r"\w+", names) if "`" in names else ["anything"]:
                shown[name] = tuple(cell.strip("`") for cell in rest)

    def cells(row: ErrorRow) -> tuple[str, ...]:
        return (str(row.code), str(row.http), row.grpc, row.reason)

    expected = {kind.__name__: cells(row) for kind, row in {**TABLE, **QUIET}.items()}
    assert shown == expected | {"anything": cells(INTERNAL)}


def test_the_names_of_operations() -> None:
    for operation, name in NAMES_V03.items():
        assert f"| `{operation}` | `{name}`" in PAGE
