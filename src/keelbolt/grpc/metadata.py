"""The metadata of a call as request headers, so that it passes the same gate."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

from keelbolt.server.http import header

AFTER_SEQ = b"after-seq"


def scope_of(path: str, metadata: Any, peer: str = "") -> Scope:
    """Return the ASGI scope for the gate. Binary metadata (``-bin``) is not used, but counts towards the size."""
    headers = [
        (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("utf-8"))
        for name, value in metadata or ()
    ]
    client = _client(peer)
    return {"type": "http", "path": path, "query_string": b"", "headers": headers, "client": client}


def _client(peer: str) -> tuple[str, int] | None:
    """Return the address and port of a gRPC peer: ipv4:192.0.2.1:50051, ipv6:%5B2001:db8::1%5D:50051."""
    kind, _, rest = unquote(peer).partition(":")
    address, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return address.strip("[]"), int(port)


def query_of(scope: Scope) -> dict[str, str]:
    """Return the query parameter afterSeq, taken from the metadata ``after-seq``."""
    after = header(scope, AFTER_SEQ)
    return {} if after is None else {"afterSeq": after}


def pairs(headers: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[str, str], ...]:
    """Return response headers as metadata, whose values are plain ASCII."""
    return tuple((name.decode("ascii"), _plain(value)) for name, value in headers)


def _plain(value: bytes) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in value.decode("latin-1"))
