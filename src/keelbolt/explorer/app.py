"""Serves the files of the explorer by their exact paths, with headers that restrict scripts."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from json import dumps

from starlette.types import Receive, Scope, Send

from keelbolt.errors import InvalidValue

Header = tuple[bytes, bytes]

PAGE = "index.html"
TAKEN = frozenset((".well-known", "extendedAgentCard", "health", "keelbolt", "metrics", "ready", "tasks", "v1"))
"""Path segments that the agent itself uses."""

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",  # the browser rejects text that would become HTML
    "trusted-types": "'none'",
}

HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"cache-control", b"no-cache"),  # cached, and revalidated by its ETag
    (b"vary", b"accept-encoding"),
)


class Explorer:
    """Serves the page under a prefix. All paths are fixed; other paths under the prefix are not served."""

    def __init__(self, prefix: str = "/explorer", agents: Sequence[str] = ()) -> None:
        self.prefix = checked_prefix(prefix)
        self._headers = [(b"content-security-policy", policy(agents)), *HEADERS]
        self._files = {f"{self.prefix}/{path}": file for path, file in static_files().items() if path != PAGE}
        self._files[f"{self.prefix}/"] = _page(static_files()[PAGE], self.prefix, agents)

    def takes(self, scope: Scope, path: str) -> bool:
        """Return whether this request is for one of the files, or from a browser at / that is to be redirected."""
        if scope["method"] not in ("GET", "HEAD"):
            return False
        return path == self.prefix or path in self._files or (path == "/" and _in_a_browser(scope))

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it serves."""
        return self.prefix, *self._files

    async def __call__(self, scope: Scope, _receive: Receive, send: Send, path: str) -> None:
        if path in ("/", self.prefix):  # relative, so that it also works if the agent is mounted under a path
            location = (self.prefix[1:] if path == "/" else self.prefix.rpartition("/")[2]).encode() + b"/"
            await _answer(send, 307, b"", [(b"location", location), *self._headers])
            return
        file, asked = self._files[path], dict(reversed(scope["headers"]))
        headers = [(b"etag", file.etag), *self._headers]
        if _names(file, asked.get(b"if-none-match", b"")):
            await _answer(send, 304, b"", headers)
            return
        body = file.body
        if re.search(rb"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", asked.get(b"accept-encoding", b"")):
            body = file.compressed
            headers.append((b"content-encoding", b"gzip"))
        headers += [(b"content-type", file.content_type), (b"content-length", b"%d" % len(body))]
        await _answer(send, 200, b"" if scope["method"] == "HEAD" else body, headers)


def checked_prefix(prefix: str) -> str:
    """Return the prefix without a trailing slash. Raise InvalidValue."""
    found = prefix.rstrip("/")
    parts = found.split("/")
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", found) or any(part in (".", "..") for part in parts):
        raise InvalidValue(f"explorer_prefix is a path such as /explorer, not {prefix!r}")
    if parts[1] in TAKEN:
        raise InvalidValue(f"explorer_prefix can't be under /{parts[1]}, where the agent answers")
    return found


def checked_agent(url: str) -> str:
    """Return the origin of another agent that the page may call. Raise InvalidValue."""
    found = re.fullmatch(r"(https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?)(?:/[A-Za-z0-9._~/-]*)?", url)
    if found is None:
        raise InvalidValue(f"explorer_agents are addresses such as https://agent.example.com, not {url!r}")
    return found[1]


def policy(agents: Sequence[str]) -> bytes:
    """Return the Content-Security-Policy: the page may connect to its own origin, and to those of ``agents``."""
    origins = dict.fromkeys(checked_agent(url) for url in agents)
    allowed = {**POLICY, "connect-src": " ".join((POLICY["connect-src"], *origins))}
    return "; ".join(f"{name} {value}" for name, value in allowed.items()).encode()


def _page(file: StaticFile, prefix: str, agents: Sequence[str]) -> StaticFile:
    """Return the page with the path of the agent, the other agents, and the modules to load."""
    root = "../" * prefix.count("/")
    modules = sorted(path for path in static_files() if path.endswith(".js"))
    links = "\n".join(f'    <link rel="modulepreload" href="{path}">' for path in modules)
    text = file.body.decode().replace("{{root}}", root).replace("    <!-- modules -->", links)
    text = text.replace("{{agents}}", escape(dumps(list(agents))))
    return StaticFile(text.encode(), file.content_type)


def _names(file: StaticFile, asked: bytes) -> bool:
    tags = [tag.strip().removeprefix(b"W/") for tag in asked.split(b",")]
    return b"*" in tags or file.etag in tags


def _in_a_browser(scope: Scope) -> bool:
    """Return whether the client accepts HTML, as only browsers do, at a path where a relative redirect works."""
    asked = (value for name, value in scope["headers"] if name == b"accept")
    return scope["path"].endswith("/") and any(b"text/html" in value for value in asked)


async def _answer(send: Send, status: int, body: bytes, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# ---------------------------------------------------------------------------------------------------------------- files


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
