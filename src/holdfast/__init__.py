"""Holdfast keeps what AI agents must not lose.

The names below are loaded when they are first used: `import holdfast` itself loads no engine, no server and no command
line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError
    from holdfast.storage import open_storage

__version__ = "0.1.0"

__all__ = ["HoldfastError", "open_storage"]

_HOMES = {"HoldfastError": "holdfast.errors", "open_storage": "holdfast.storage"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
