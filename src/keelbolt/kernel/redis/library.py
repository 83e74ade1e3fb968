"""The server-side functions: one library, built from the Lua files and named after a hash of its contents.

Two versions of a program can thus use one server at the same time, each with its own functions.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

_FILES = (
    "values",
    "turn",
    "marks",
    "registry",
    "shapes",
    "records",
    "logs",
    "work",
    "claims",
    "blobs",
    "commit",
    "reads",
    "upkeep",
    "export",
    "load",
    "library",
)


@cache
def library() -> tuple[str, bytes]:
    """Return the library's name and source."""
    folder = resources.files("keelbolt.kernel.redis").joinpath("lua")
    # turn.lua uses both tables before their files define them, so they are declared first.
    parts = (folder.joinpath(f"{name}.lua").read_text() for name in _FILES)
    source = "\n".join(("local Registry, Marks = {}, {}", *parts))
    name = f"keelbolt_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    return name, f"#!lua name={name}\n{source.replace('%PREFIX%', name)}".encode()


@cache
def function(name: str) -> bytes:
    """Return the full name of a function."""
    return f"{library()[0]}_{name}".encode()
