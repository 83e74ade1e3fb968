"""Addresses of agents: checks a URL, and derives its origin and the URLs of its card."""

from __future__ import annotations

from urllib.parse import urlsplit

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The path since 0.3, and the one before."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}


def check_url(url: str) -> str:
    """Return the URL of an agent without a trailing slash. Raise ValueError."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise ValueError("the URL of an agent must be a text that begins with https:// or http://")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        raise ValueError(f"the URL of an agent must begin with https:// or http://, not {url[:100]!r}")
    if not parts.hostname:
        raise ValueError("the URL of an agent must contain a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a password in it ends up in logs; pass auth= instead")
    if parts.query or parts.fragment:
        raise ValueError("the URL of an agent must not contain ? or #")
    if parts.port == 0:  # .port raises ValueError for an invalid port
        raise ValueError("0 is not a valid port")
    return url.rstrip("/")


def origin_of(url: str) -> str:
    """Return scheme, host and port. Raise ValueError. Credentials of one origin are never sent to another.

    All loopback names count as one host: a card often has a different one than the caller.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url[:100]!r} is not an http or https URL")
    host = "localhost" if parts.hostname in LOOPBACK else parts.hostname
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{parts.port or _PORTS[parts.scheme]}"


def place_of(url: str) -> str:
    """Return the agent's address for messages: scheme, host and port as given, without path and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"[:200]


def card_urls(url: str) -> tuple[str, ...]:
    """Return the URLs to try for the card of the agent; a URL that ends in .json is the card itself."""
    return (url,) if url.endswith(".json") else tuple(url + path for path in WELL_KNOWN)
