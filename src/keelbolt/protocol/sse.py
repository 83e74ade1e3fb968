r"""Server-sent events by joining: the data is JSON without line feeds, as every encoder here writes it.

event(b'{"x":1}', seq=7) == b'id: 7\ndata: {"x":1}\n\n'
"""

from __future__ import annotations

HEARTBEAT = b": \n\n"
"""A comment: keeps proxies from closing a quiet stream, and is seen by no client."""


def event(data: bytes, *, seq: int | None = None) -> bytes:
    """One event; ``seq`` becomes its id, which a client sends back as Last-Event-ID."""
    if seq is None:
        return b"data: %b\n\n" % data
    return b"id: %d\ndata: %b\n\n" % (seq, data)


def retry(milliseconds: int) -> bytes:
    """Asks the client to wait this long before it connects again."""
    return b"retry: %d\n\n" % milliseconds
