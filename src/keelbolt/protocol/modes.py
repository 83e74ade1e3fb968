"""Media types as clients and cards name them: ``text/plain``, ``image/*``, ``*/*``."""

from __future__ import annotations

from collections.abc import Iterable


def accepts(modes: Iterable[str], media_type: str) -> bool:
    """Return whether one of the modes includes this media type; parameters such as ``charset`` do not matter."""
    wanted = _essence(media_type)
    family = wanted.partition("/")[0] + "/*"
    return any(_essence(mode) in (wanted, family, "*/*", "*") for mode in modes)


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
