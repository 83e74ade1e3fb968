"""The Python in README.md and docs/ is executed, each page in its own empty directory: documentation can't rot."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

pytest_plugins = ["keelbolt.testing.pytest"]  # throw-away servers; pytest takes plugins from here alone


def enter_directory(namespace: dict[str, Any]) -> None:
    namespace["_home"] = os.getcwd()  # noqa: PTH109
    namespace["_directory"] = tempfile.TemporaryDirectory(prefix="keelbolt-docs-")
    os.chdir(namespace["_directory"].name)


def leave_directory(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_home"])
    namespace["_directory"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    setup=enter_directory,
    teardown=leave_directory,
).pytest()
