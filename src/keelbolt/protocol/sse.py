r"""Server-sent events, encoded by concatenation: the data is JSON without line feeds, as every encoder here returns it.

event(b'{"x":1}', seq=7) == b'id: 7\ndata: {"x":1}\n\n'
"""

from __future__ import annotations

HEARTBEAT = b": \n\n"
"""A comment: prevents proxies from closing an idle stream; clients ignore it."""


def event(data: bytes, *, seq: int | None = None) -> bytes:
    """Return one event; ``seq`` becomes its id, which a client sends back as Last-Event-ID."""
    if seq is None:
        return b"data: %b\n\n" % data
    return b"id: %d\ndata: %b\n\n" % (seq, data)


def retry(milliseconds: int) -> bytes:
    """Return a field that asks the client to wait this long before it reconnects."""
    return b"retry: %d\n\n" % milliseconds
