"""The metadata of a call as the headers of a request: it passes the same gate."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from keelbolt.server.http import header

AFTER_SEQ = b"after-seq"


def scope_of(path: str, metadata: Any) -> Scope:
    """What the gate looks at. Binary metadata (``-bin``) is not for us, but counts for its size."""
    headers = [
        (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("utf-8"))
        for name, value in metadata or ()
    ]
    return {"type": "http", "path": path, "query_string": b"", "headers": headers}


def query_of(scope: Scope) -> dict[str, str]:
    """``after-seq`` says the same as the query parameter afterSeq."""
    after = header(scope, AFTER_SEQ)
    return {} if after is None else {"afterSeq": after}


def pairs(headers: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[str, str], ...]:
    """Headers of an answer as metadata, whose values are plain ASCII."""
    return tuple((name.decode("ascii"), _plain(value)) for name, value in headers)


def _plain(value: bytes) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in value.decode("latin-1"))
