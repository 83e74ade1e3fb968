"""Packages whose names are imported on first use, so that importing the package needs no optional dependency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from keelbolt.errors import MissingExtra


class Needs(NamedTuple):
    """The module that a package needs, and the extra and distribution that install it."""

    module: str
    extra: str
    distribution: str


def lazy_names(package: str, homes: Mapping[str, str], needs: Needs | None = None) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package. ``homes`` maps each name to the module that defines it.

    A name raises MissingExtra if the module that the package ``needs`` is not installed.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if needs is not None and not _is_installed(needs.module):
            raise MissingExtra(needs.extra, needs.distribution)
        return getattr(import_module(homes[name]), name)

    return get


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
