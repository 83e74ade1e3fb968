"""The A2A-Extensions header: which extensions a client asks for, and which ones the agent uses.

0.3 calls it X-A2A-Extensions; both are read, and the answer goes back under the name that was used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keelbolt.errors import ExtensionSupportRequiredError

HEADER = "A2A-Extensions"
HEADER_V03 = "X-A2A-Extensions"
RESUME = "urn:keelbolt:a2a:resume:v1"
"""A stream can be continued after any event by Last-Event-ID; a send repeated with its Idempotency-Key is one task."""
GENERATION = "urn:keelbolt:a2a:generation:v1"
"""Tasks and events have a generation; GetTask can wait for a newer one, and SendMessage can require one."""

MAX_EXTENSIONS = 100  # a header of this many URIs is no honest request; the rest is not looked at


@dataclass(frozen=True, slots=True)
class Declared:
    """An extension of the agent's card."""

    uri: str
    required: bool = False


def parse(*values: str | None) -> tuple[str, ...]:
    """The URIs in header values (each a comma list), in their order, each once.

    What holds a space or a control character is no URI and is left out: it could not be echoed safely.
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


def activate(asked: Iterable[str], declared: Iterable[Declared]) -> tuple[str, ...]:
    """The declared extensions that the client asked for, in the client's order; unknown ones are ignored.

    Raises ExtensionSupportRequiredError when the agent requires one that was not asked for.
    """
    asked = tuple(asked)
    known = {extension.uri: extension for extension in declared}
    missing = [uri for uri, extension in known.items() if extension.required and uri not in asked]
    if missing:
        raise ExtensionSupportRequiredError(f"this agent requires {', '.join(missing)}; name it in the {HEADER} header")
    return tuple(uri for uri in asked if uri in known)


def echo(activated: Iterable[str]) -> str:
    """The header's value in an answer; empty when there is nothing to say, then the header is left out."""
    return ", ".join(activated)
