"""The files of the explorer: read once, compressed once, each with its ETag."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """A static file."""

    body: bytes
    content_type: bytes

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, 9, mtime=0)

    @cached_property
    def etag(self) -> bytes:
        return b'"%b"' % hashlib.sha256(self.body).hexdigest()[:32].encode()


@cache
def static_files() -> dict[str, StaticFile]:
    """Return every file by its path, such as ``js/main.js``."""
    found = {}
    for path, entry in _walk(files("keelbolt.explorer") / "static"):
        found[path] = StaticFile(entry.read_bytes(), TYPES["." + path.rpartition(".")[2]])
    return found


def _walk(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _walk(entry, f"{path}{entry.name}/")
        else:
            yield path + entry.name, entry
