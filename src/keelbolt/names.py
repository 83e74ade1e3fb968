"""Names: any text as a part of a name (readable if it is plain, unique per text), and suggestions for unknown names."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable
from urllib.parse import quote


def escaped(text: str, plain: str) -> str:
    """Percent-encode everything except ASCII letters, digits, ``-._`` and the characters of ``plain``."""
    return quote(text.encode("utf-8", "surrogatepass"), safe=plain).replace("~", "%7E")


def shortened(name: str, limit: int, *, head: int) -> str:
    """Shorten a name that is longer than ``limit`` to its first ``head`` characters, a tilde and its SHA-256."""
    if len(name) <= limit:
        return name
    return f"{name[:head]}~{hashlib.sha256(name.encode()).hexdigest()}"


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return ``; did you mean …?``, or the known names if none is similar."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names) or 'none'}"
