"""Writes the reference of the operations API from its table. To update it: python -m tests.docs.operations_page"""

from __future__ import annotations

from pathlib import Path

from keelbolt.operations.table import PREFIX, ROUTES, OpsRoute

PAGE = Path(__file__).parents[2] / "docs/reference/operations-api.md"
BEGIN = "<!-- written from keelbolt.operations.table.ROUTES: begin -->\n"
END = "<!-- written from keelbolt.operations.table.ROUTES: end -->\n"


def given(route: OpsRoute) -> str:
    """Return the parameters of the route, without those that name the owner."""
    query = [f"`{name}`: {text}" for name, text in route.query if name not in ("tenant", "owner", "askedTenant")]
    body = [f"`{name}` (body): {text}" for name, text in route.body]
    return "<br>".join([*query, *body])


def row(route: OpsRoute) -> str:
    marks = "".join([" *operators*" if route.operator else "", " *stream*" if route.stream else ""])
    return f"| `{route.method} {route.path}` | {route.summary}{marks} | {given(route)} |"


def written() -> str:
    """Return the generated text between the two marks of the page."""
    head = f"\nAll paths are under `{PREFIX}`.\n\n| route | | takes |\n|---|---|---|\n"
    return head + "".join(f"{row(route)}\n" for route in ROUTES) + "\n"


def parts(page: str) -> tuple[str, str, str]:
    """Return the page before the marks, between them, and after them."""
    before, rest = page.split(BEGIN)
    between, after = rest.split(END)
    return before, between, after


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(before + BEGIN + written() + END + after)
