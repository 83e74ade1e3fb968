"""What serving apcore modules can meet before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keelbolt.errors.base import KeelboltError


class ExtensionsError(KeelboltError):
    """An extensions directory can't be served."""


class ExtensionsNotFound(ExtensionsError):
    """The extensions directory does not exist."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"Extensions directory not found: {path}")


class ExtensionsUnreadable(ExtensionsError):
    """The extensions directory can't be read."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"Extensions directory can't be read: {path}; its permissions forbid it")


class NoModulesFound(ExtensionsError):
    """No module was found in the extensions directory."""

    def __init__(self, path: Path | str, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        why = f" ({'; '.join(problems)})" if problems else ""
        super().__init__(f"No modules discovered in {path}{why}")


class ExtensionsBroken(ExtensionsError):
    """The modules of the extensions directory can't be loaded together."""
