"""The root of the tree, and errors of setting up: missing packages, wrong versions, extensions directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar


class KeelboltError(Exception):
    """Something went wrong in Keelbolt."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)


class MissingExtra(KeelboltError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, module: str) -> None:
        self.extra = extra
        self.module = module
        super().__init__(f"{module} is not installed. Install it with: pip install 'keelbolt[{extra}]'")


class AddressNotAllowed(KeelboltError):
    """The address is not allowed: it is private, local or reserved, or the URL does not begin with https://."""


class DownloadFailed(KeelboltError):
    """A file could not be downloaded from its URL."""


class UnsupportedVersion(KeelboltError):
    """An optional dependency is installed in a version that Keelbolt does not support."""

    def __init__(self, package: str, found: str, supported: str) -> None:
        self.package = package
        self.found = found
        self.supported = supported
        super().__init__(
            f"{package} {found} is not supported. Install a version that is: pip install '{package}{supported}'"
        )


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
