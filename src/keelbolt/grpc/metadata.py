"""The metadata of a call as the headers of a request: it passes the same gate."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

from keelbolt.server.http import header

AFTER_SEQ = b"after-seq"


def scope_of(path: str, metadata: Any, peer: str = "") -> Scope:
    """What the gate looks at. Binary metadata (``-bin``) is not for us, but counts for its size."""
    headers = [
        (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("utf-8"))
        for name, value in metadata or ()
    ]
    client = _client(peer)
    return {"type": "http", "path": path, "query_string": b"", "headers": headers, "client": client}


def _client(peer: str) -> tuple[str, int] | None:
    """The address and port of a peer, as gRPC writes it: ipv4:192.0.2.1:50051, ipv6:%5B2001:db8::1%5D:50051."""
    kind, _, rest = unquote(peer).partition(":")
    address, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return address.strip("[]"), int(port)


def query_of(scope: Scope) -> dict[str, str]:
    """``after-seq`` says the same as the query parameter afterSeq."""
    after = header(scope, AFTER_SEQ)
    return {} if after is None else {"afterSeq": after}


def pairs(headers: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[str, str], ...]:
    """Headers of an answer as metadata, whose values are plain ASCII."""
    return tuple((name.decode("ascii"), _plain(value)) for name, value in headers)


def _plain(value: bytes) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in value.decode("latin-1"))
