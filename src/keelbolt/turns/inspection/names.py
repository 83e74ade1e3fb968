"""Refs of tenants, threads and records in URLs, and their original names. Pure."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from keelbolt.turns.durable.scope import PARTITIONS, name, partition_of

_SHORTENED = re.compile(r".{100}~[0-9a-f]{64}")
_KEY_CHARACTERS = 2000


def tenant_partition(ref: str) -> str:
    """Return the partition of a tenant, from its ref or its name."""
    named = PARTITIONS + ref
    return named if _SHORTENED.fullmatch(ref) or partition_of(original(ref)) == named else partition_of(ref)


def owner(kind: str, ref: str) -> str:
    """Return the owner of this kind, from its ref or its name."""
    named = f"{kind}/{ref}"
    return named if _SHORTENED.fullmatch(named) or name(kind, original(ref)) == named else name(kind, ref)


def ref_of(owner: str) -> str:
    """Return the ref of an owner in URLs."""
    return owner.partition("/")[2]


def original(ref: str) -> str:
    """Return the name of a ref; if the name was too long, the ref."""
    return unquote(ref, errors="surrogatepass")


def record_ref(owner: str, key: str) -> str:
    """Return the ref of a record in URLs."""
    return quote(key.removeprefix(f"{owner}/"), safe="")


def record_key(owner: str, ref: str) -> str | None:
    """Return the key of a record, or None if the ref is invalid."""
    rest = unquote(ref)
    fits = rest.isascii() and rest.isprintable() and len(rest) <= _KEY_CHARACTERS
    return f"{owner}/{rest}" if fits else None
