"""Files as HTTP responses, sent in chunks, with headers that prevent a browser from running them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from keelbolt.kernel import BlobReader
from keelbolt.server.http import Header, header, respond, until_gone
from keelbolt.tasks.files import TaskFile

_NAME_CHARACTERS = 200
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_CACHE = (b"cache-control", b"private, no-cache")  # cached, but revalidated, so that access is checked each time
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?charset=[\w-]+)?", re.ASCII)


async def send_file(scope: Scope, receive: Receive, send: Send, file: TaskFile, reader: BlobReader) -> None:
    """Respond with a file or the requested range of it. Browsers save it as a download and do not run it."""
    etag = f'"{file.digest}"'.encode()
    tags = [tag.strip().removeprefix("W/") for tag in (header(scope, b"if-none-match") or "").split(",")]
    if etag.decode() in tags:
        await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", etag), _CACHE]})
        await send({"type": "http.response.body", "body": b""})
        return
    wanted = _range(header(scope, b"range"), file.size)
    if wanted == (0, 0):
        await respond(send, 416, b"{}", headers=((b"content-range", b"bytes */%d" % file.size),))
        return
    start, end = wanted or (0, file.size)
    headers = [*_headers(file), (b"etag", etag), (b"content-length", b"%d" % (end - start))]
    if wanted is not None:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (start, end - 1, file.size)))
    await send({"type": "http.response.start", "status": 200 if wanted is None else 206, "headers": headers})
    gone = asyncio.ensure_future(until_gone(receive))
    try:
        async for chunk in reader.chunks(start, end):
            if gone.done():  # `send` does not report a closed connection; stop reading the blob
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b""})


def _headers(file: TaskFile) -> Iterator[Header]:
    kind = file.media_type or ""
    yield b"content-type", (kind if _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream").encode()
    name = quote((file.filename or file.digest[:12])[:_NAME_CHARACTERS], safe="", errors="replace")
    yield b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()
    yield b"accept-ranges", b"bytes"
    yield _CACHE
    yield b"x-content-type-options", b"nosniff"
    yield b"cross-origin-resource-policy", b"same-origin"
    yield b"content-security-policy", b"sandbox"


def _range(asked: str | None, size: int) -> tuple[int, int] | None:
    """Return the requested range, or (0, 0) if it can't be satisfied; None for the whole file or an empty one."""
    match = _RANGE.fullmatch((asked or "").strip())
    if match is None or not size or not (match[1] or match[2]):
        return None
    if match[1]:
        start, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    else:
        start, end = max(size - int(match[2]), 0), size
    return (start, end) if start < end else (0, 0)
