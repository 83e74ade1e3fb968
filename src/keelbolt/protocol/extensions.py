"""The A2A-Extensions header: the extensions that a client requests, and those that the agent activates.

0.3 calls it X-A2A-Extensions. Both are read; the response uses the name that the client used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keelbolt.errors import ExtensionSupportRequiredError

HEADER = "A2A-Extensions"
HEADER_V03 = "X-A2A-Extensions"
RESUME = "urn:keelbolt:a2a:resume:v1"
"""Streams can be resumed after any event by Last-Event-ID; a send repeated with its Idempotency-Key is one task."""
GENERATION = "urn:keelbolt:a2a:generation:v1"
"""Tasks and events have a generation; GetTask can wait for a newer one, and SendMessage can require one."""

MAX_EXTENSIONS = 100  # limits abusive headers; the rest is ignored


@dataclass(frozen=True, slots=True)
class DeclaredExtension:
    """An extension that the agent's card declares."""

    uri: str
    required: bool = False


def parse(*values: str | None) -> tuple[str, ...]:
    """Return the URIs in header values (comma-separated lists), in order, without duplicates.

    A value with a space or a control character is no URI and is omitted: echoing it would be unsafe.
    """
    found: dict[str, None] = {}
    for value in values:
        if not value:
            continue
        for item in value.split(","):
            uri = item.strip()
            if uri and uri.isascii() and uri.isprintable() and " " not in uri:
                found[uri] = None
                if len(found) == MAX_EXTENSIONS:
                    return tuple(found)
    return tuple(found)


def activate(asked: Iterable[str], declared: Iterable[DeclaredExtension]) -> tuple[str, ...]:
    """Return the declared extensions that the client requested, in the client's order; ignore unknown ones.

    Raise ExtensionSupportRequiredError if the client did not request a required extension.
    """
    asked = tuple(asked)
    known = {extension.uri: extension for extension in declared}
    missing = [uri for uri, extension in known.items() if extension.required and uri not in asked]
    if missing:
        raise ExtensionSupportRequiredError(f"this agent requires {', '.join(missing)}; name it in the {HEADER} header")
    return tuple(uri for uri in asked if uri in known)


def echo(activated: Iterable[str]) -> str:
    """Return the header value of a response; if it is empty, the header is omitted."""
    return ", ".join(activated)
