"""Suggestions for unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return ``; did you mean …?``, or the known names if none is similar."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; known names: {', '.join(names)}"
