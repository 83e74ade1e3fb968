"""Server addresses and logins: redis://user:password@host:port/database, rediss:// with TLS, unix:///path."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, unquote

from keelbolt.errors import InvalidValue, UnknownScheme

SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
PORT = 6379


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """``path`` is the path of a unix socket; if it is set, host and port are unused."""

    host: str = "127.0.0.1"
    port: int = PORT
    path: str = ""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str | None = None

    def at(self, host: str, port: int) -> RedisAddress:
        """Return the same login for another server."""
        return replace(self, host=host, port=port, path="")

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


def address_of(parts: SplitResult, options: dict[str, str]) -> RedisAddress:
    """Parse the address in a URL. Removes ``db`` and ``ca_file`` from ``options``."""
    scheme = parts.scheme.split("+")[0].lower()
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    database = options.pop("db", None)
    if scheme == "unix":
        if not parts.path.startswith("/") or parts.path == "/":
            raise UnknownScheme("write the URL of a unix socket as unix:///path/of/the/socket?db=0")
        return RedisAddress(
            path=unquote(parts.path), database=_number(database or "0"), username=username, password=password
        )
    try:
        port = parts.port or PORT
    except ValueError:
        raise UnknownScheme("the port of a Redis URL is a number up to 65535: redis://host:6379/0") from None
    path = unquote(parts.path).strip("/")
    if parts.fragment:
        raise UnknownScheme("a Redis URL has no fragment; write # as %23: redis://:password@host:6379/0")
    return RedisAddress(
        host=parts.hostname or "127.0.0.1",
        port=port,
        database=_number(database or path or "0"),
        username=username,
        password=password,
        tls=scheme in ("rediss", "valkeys"),
        ca_file=options.pop("ca_file", None),
    )


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidValue(f"the database of a Redis URL is a number, as in redis://host:6379/0, not {text!r}")
    return int(text)
