"""Any text as a part of a name: readable where it is plain, and different for different texts. Pure."""

from __future__ import annotations

import hashlib
from urllib.parse import quote


def escaped(text: str, plain: str) -> str:
    """The text with everything percent-encoded but ASCII letters, digits, ``-._`` and the characters of ``plain``."""
    return quote(text.encode("utf-8", "surrogatepass"), safe=plain).replace("~", "%7E")


def shortened(name: str, limit: int, *, head: int) -> str:
    """A name that is longer than ``limit`` becomes its first characters, a tilde and its SHA-256."""
    if len(name) <= limit:
        return name
    return f"{name[:head]}~{hashlib.sha256(name.encode()).hexdigest()}"
