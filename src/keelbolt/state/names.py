"""Ids of callers as keys and streams: any text, of any length, different ids different names."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from urllib.parse import unquote

from keelbolt.errors import InvalidState
from keelbolt.names import escaped

GLOBAL = "__global__"  # the stream of events that belong to no trace

_PLAIN = " !#$&'()*+,:;<=>?@[]^`{|}"  # as they are; "/" joins, "%" escapes, "~" begins a digest
_LONG = 300
_LONG_TENANT = 170  # the name of a partition has at most 200 bytes


@lru_cache(maxsize=8192)
def name(text: str) -> str:
    """The id itself where it is short and plain, escaped or as its SHA-256 where it is not."""
    if not isinstance(text, str):
        raise InvalidState(f"an id must be a string, not {type(text).__name__}")
    short = escaped(text, _PLAIN) or "%"
    if len(short) <= _LONG:
        return short
    return f"~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def unnamed(short: str) -> str | None:
    """The id of which this is the name; None where only its digest is left."""
    if short.startswith("~"):
        return None
    return "" if short == "%" else unquote(short, errors="surrogatepass")


def joined(*ids: str | None) -> str:
    """One name for several ids; None is different from every id."""
    return "/".join([name(text) if text is not None else "" for text in ids])


def tenant_partition(prefix: str, tenant: str) -> str:
    """The partition of a tenant in a face whose partitions begin with ``prefix``; no principal's partition does."""
    short = name(tenant)
    return prefix + (short if len(short) <= _LONG_TENANT else digest(tenant.encode("utf-8", "surrogatepass")))


def digest(data: bytes) -> str:
    """By what a repeat of the same bytes is known."""
    return hashlib.sha256(data).hexdigest()
