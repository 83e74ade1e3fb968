"""Converts the output of a module to the parts of an artifact.

    None         no part
    text         a text part
    bytes        a file part
    the rest     a data part; bytes within it become separate file parts, replaced by {"file": name}

Content of up to INLINE_BYTES is in its part. The server stores larger content as a file: one part has the link, and a
text part after it has the beginning, for clients that only read parts.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from keelbolt.errors import InvalidAgentResponseError
from keelbolt.protocol.types import Part

INLINE_BYTES = 1024 * 1024
ALL_FILES_BYTES = 1536 * 1024  # total of inline files: the output of a step is limited
PREVIEW_CHARACTERS = 2000
JSON = "application/json"

Keep = Callable[[bytes, str, str], Awaitable[str]]
"""Stores a file (bytes, media type, name) and returns its URL."""


async def output_to_parts(output: Any, keep: Keep) -> list[Part]:
    """Return the parts of a module's output. Raise InvalidAgentResponseError if it can't be sent."""
    if output is None:
        return []
    if isinstance(output, str):
        return await _text(output, keep)
    if isinstance(output, bytes | bytearray | memoryview):
        return await _file(bytes(output), "output", "", keep)
    lifted = _Lifted()
    data = lifted.plain(output, "")
    parts, room = await _data(data, keep), ALL_FILES_BYTES
    for name, (path, content) in lifted.files.items():
        more = await _file(content, name, path, keep, room)
        room -= len(more[0].raw or b"")
        parts += more
    return parts


@dataclass(slots=True)
class _Lifted:
    """Converts an output to JSON and collects the files in it, by name."""

    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def plain(self, value: Any, path: str) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            plain = name = path.strip("/").replace("/", ".") or "output"
            while name in self.files:
                name = f"{plain}-{len(self.files)}"
            self.files[name] = (path, bytes(value))
            return {"file": name}
        if isinstance(value, BaseModel):
            value = {name: getattr(value, name) for name in type(value).model_fields}
        if isinstance(value, Mapping):
            return {_key(key): self.plain(item, f"{path}/{_key(key)}") for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.plain(item, f"{path}/{number}") for number, item in enumerate(value)]
        if value is None or isinstance(value, str | bool | int):
            return value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidAgentResponseError(f"the output is not JSON: {path or '/'} is {value}")
            return value
        try:
            return to_jsonable_python(value)  # dates, decimals, UUIDs, paths, enums, dataclasses
        except (PydanticSerializationError, ValueError):
            raise InvalidAgentResponseError(
                f"the output is not JSON: {path or '/'} is a {type(value).__name__}"
            ) from None


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


async def _data(data: Any, keep: Keep) -> list[Part]:
    text = to_json(data)
    if len(text) <= INLINE_BYTES:
        return [Part(data=data, media_type=JSON)]
    return await _kept(text, JSON, "output.json", keep)


async def _text(text: str, keep: Keep) -> list[Part]:
    if len(to_json(text)) <= INLINE_BYTES:
        return [Part(text=text)]
    return await _kept(text.encode(), "text/plain; charset=utf-8", "output.txt", keep)


async def _file(content: bytes, name: str, path: str, keep: Keep, room: int = ALL_FILES_BYTES) -> list[Part]:
    kind = media_type_of(content)
    metadata = {"path": path} if path else None
    if len(content) > min(INLINE_BYTES, room):
        return await _kept(content, kind, name, keep, metadata)
    more: dict[str, Any] = {"metadata": metadata} if metadata else {}
    return [Part(raw=content, media_type=kind, filename=name, **more)]


async def _kept(content: bytes, kind: str, name: str, keep: Keep, metadata: dict[str, Any] | None = None) -> list[Part]:
    """Store the content as a file; return the link, and the beginning of a text."""
    more: dict[str, Any] = {"metadata": metadata} if metadata else {}
    parts = [Part(url=await keep(content, kind, name), media_type=kind, filename=name, **more)]
    if kind.startswith(("text/", JSON)):
        beginning = content[: PREVIEW_CHARACTERS * 4].decode(errors="ignore")[:PREVIEW_CHARACTERS]
        text = (
            f"The beginning of {name} ({len(content)} bytes; the previous part links to the whole file):\n{beginning}…"
        )
        parts.append(Part(text=text, metadata={"preview": {"filename": name, "bytes": len(content)}}))
    return parts


# ---------------------------------------------------------------------------------------------------------- media types


OCTETS = "application/octet-stream"

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"\x00asm", "application/wasm"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS = {b"avif": "image/avif", b"heic": "image/heic", b"M4A ": "audio/mp4"}


def media_type_of(data: bytes) -> str:
    """Return the media type of these bytes. Content that a browser could run is text/plain, to be displayed only."""
    for beginning, found in _BEGINNINGS:
        if data.startswith(beginning):
            return found
    if data[:4] == b"RIFF" and data[8:12] in _RIFF:
        return _RIFF[data[8:12]]
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "video/mp4")
    return "text/plain" if _is_text(data) else OCTETS


def _is_text(data: bytes) -> bool:
    if b"\0" in data[:65536]:
        return False
    try:
        data[:65536].decode("utf-8")
    except UnicodeDecodeError as error:
        return len(data) > 65536 and error.start >= 65532  # cut within a character
    return True
