"""Checks of addresses in the settings. A wrong address raises at start, with a suggestion."""

from __future__ import annotations

from urllib.parse import urlsplit

from keelbolt.errors import InvalidValue


def check_public_url(url: str) -> None:
    """Raise InvalidValue unless ``url`` is empty or a web address that the card can publish."""
    if not url:
        return
    said = f"url must be the address where clients reach the agent, for example https://agent.example.com, not {url!r}"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
        parts = urlsplit("")
    if not known:
        bare = "://" not in url and "/" not in url and " " not in url
        local = url.partition(":")[0] in ("localhost", "127.0.0.1")
        hint = f"; did you mean {'http' if local else 'https'}://{url}?" if bare else ""
        raise InvalidValue(said + hint)
    if parts.query or parts.fragment or parts.username is not None or not url.isprintable() or " " in url:
        raise InvalidValue(f"{said}; it must not contain spaces, ?, # or a password")


def check_grpc_url(address: str) -> None:
    """Raise InvalidValue unless ``address`` is empty or HOST:PORT, with or without http:// or https://."""
    host, colon, port = address.removeprefix("https://").removeprefix("http://").rpartition(":")
    if address and not (host and colon and port.isdigit() and 0 < int(port) < 65536 and "/" not in host):
        raise InvalidValue(f"grpc_url must be HOST:PORT, for example agent.example.com:443, not {address!r}")


def check_origin(origin: str) -> None:
    """Raise InvalidValue unless ``origin`` is ``*``, ``null``, or scheme, host and port as in an Origin header."""
    scheme, divided, rest = origin.partition("://")
    if origin not in ("*", "null") and not (scheme and divided and rest and "/" not in rest):
        whole = origin.rstrip("/") if divided else f"https://{origin}".rstrip("/")
        raise InvalidValue(
            f"an origin must be a scheme and a host without a path, not {origin!r}; did you mean {whole}?"
        )


def check_host(setting: str, host: str) -> None:
    """Raise InvalidValue if ``host`` is a URL instead of a host name."""
    if "/" in host or " " in host or not host:
        name = (urlsplit(host).hostname if "://" in host else host.partition("/")[0].strip()) or "agent.example.com"
        raise InvalidValue(f"{setting} must be host names, not {host!r}; did you mean {name}?")
