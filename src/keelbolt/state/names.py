"""Ids of callers as keys and streams: any text, of any length, different ids different names."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from urllib.parse import quote, unquote

from keelbolt.errors import InvalidState

GLOBAL = "__global__"  # the stream of events that belong to no trace

_PLAIN = " !#$&'()*+,:;<=>?@[]^`{|}"  # as they are; "/" joins, "%" escapes, "~" begins a digest
_LONG = 300


@lru_cache(maxsize=8192)
def name(text: str) -> str:
    """The id itself where it is short and plain, escaped or as its SHA-256 where it is not."""
    if not isinstance(text, str):
        raise InvalidState(f"an id must be a string, not {type(text).__name__}")
    escaped = quote(text, safe=_PLAIN, errors="surrogatepass").replace("~", "%7E") or "%"
    if len(escaped) <= _LONG:
        return escaped
    return f"~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def unnamed(short: str) -> str | None:
    """The id of which this is the name; None where only its digest is left."""
    if short.startswith("~"):
        return None
    return "" if short == "%" else unquote(short, errors="surrogatepass")


def joined(*ids: str | None) -> str:
    """One name for several ids; None is different from every id."""
    return "/".join([name(text) if text is not None else "" for text in ids])


def digest(data: bytes) -> str:
    """By what a repeat of the same bytes is known."""
    return hashlib.sha256(data).hexdigest()
