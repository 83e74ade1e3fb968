"""Maps caller ids to keys and stream names: any text, of any length; different ids have different names."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from urllib.parse import unquote

from keelbolt.errors import InvalidState
from keelbolt.names import escaped

GLOBAL = "__global__"  # the stream of events without a trace

_PLAIN = " !#$&'()*+,:;<=>?@[]^`{|}"  # used unchanged; "/" joins, "%" escapes, "~" begins a digest
_LONG = 300
_LONG_TENANT = 170  # a partition name has at most 200 bytes


@lru_cache(maxsize=8192)
def name(text: str) -> str:
    """Return the id itself if it is short and plain; otherwise escaped, or as its SHA-256."""
    if not isinstance(text, str):
        raise InvalidState(f"an id must be a string, not {type(text).__name__}")
    short = escaped(text, _PLAIN) or "%"
    if len(short) <= _LONG:
        return short
    return f"~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def unnamed(short: str) -> str | None:
    """Return the id of this name; None if the name is a digest."""
    if short.startswith("~"):
        return None
    return "" if short == "%" else unquote(short, errors="surrogatepass")


def joined(*ids: str | None) -> str:
    """Return one name for several ids; None differs from every id."""
    return "/".join([name(text) if text is not None else "" for text in ids])


def tenant_partition(prefix: str, tenant: str) -> str:
    """Return the partition of a tenant in a face with this partition prefix. Partitions of principals never have it."""
    short = name(tenant)
    return prefix + (short if len(short) <= _LONG_TENANT else digest(tenant.encode("utf-8", "surrogatepass")))


def digest(data: bytes) -> str:
    """Return the digest by which a repeat of the same bytes is recognised."""
    return hashlib.sha256(data).hexdigest()
