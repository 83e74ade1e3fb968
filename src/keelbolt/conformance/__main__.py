"""Prints the laws of one suite as Markdown: `python -m keelbolt.conformance kernel`."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    print(importlib.import_module(f"keelbolt.conformance.{sys.argv[1]}").laws_as_markdown(), end="")  # noqa: T201
