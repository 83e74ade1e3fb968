"""Turns any text into a part of a name: readable if it is plain, and unique per text. Pure."""

from __future__ import annotations

import hashlib
from urllib.parse import quote


def escaped(text: str, plain: str) -> str:
    """Percent-encode everything except ASCII letters, digits, ``-._`` and the characters of ``plain``."""
    return quote(text.encode("utf-8", "surrogatepass"), safe=plain).replace("~", "%7E")


def shortened(name: str, limit: int, *, head: int) -> str:
    """Shorten a name that is longer than ``limit`` to its first ``head`` characters, a tilde and its SHA-256."""
    if len(name) <= limit:
        return name
    return f"{name[:head]}~{hashlib.sha256(name.encode()).hexdigest()}"
