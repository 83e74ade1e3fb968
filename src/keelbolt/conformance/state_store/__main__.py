"""Prints the list of all laws."""

from __future__ import annotations

from keelbolt.conformance.state_store import laws_as_markdown

print(laws_as_markdown(), end="")  # noqa: T201
