"""Server addresses, and one connection to one server: sends a pipeline of calls and returns their replies in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from urllib.parse import SplitResult, unquote

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from keelbolt.errors import CannotOpen, InvalidValue, UnknownScheme
from keelbolt.kernel.redis.replies import Disconnected, ReplyParser
from keelbolt.outbound.reasons import connection_reason

Reply = Any

# uvloop raises RuntimeError on a write to a connection that was reset.
_BROKEN = (RedisError, OSError, RuntimeError)


class Wire:
    """An open connection. It is unusable after any failure."""

    def __init__(self, address: RedisAddress, *, seconds: float) -> None:
        self.address = address
        self._seconds = seconds
        self._connection: AbstractConnection | None = None

    async def open(self) -> None:
        connection = self._made()
        try:
            async with asyncio.timeout(self._seconds):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (AuthenticationError, AuthorizationError) as error:
            raise CannotOpen(
                f"the server at {self.address} does not accept this user and password; check them in the URL"
            ) from error
        except (RedisError, OSError, TimeoutError) as error:
            await _closed(connection)
            if "DB index" in str(error):
                raise CannotOpen(f"the server at {self.address} has no database {self.address.database}") from error
            raise Disconnected(f"the server at {self.address} can't be reached: {connection_reason(error)}") from error
        except BaseException:
            await _closed(connection)
            raise
        self._connection = connection

    def _made(self) -> AbstractConnection:
        address = self.address
        login: Mapping[str, Any] = {
            "db": address.database,
            "username": address.username,
            "password": address.password,
            "socket_timeout": None,  # the whole pipeline has one timeout
            "socket_connect_timeout": self._seconds,
            "protocol": 2,
            "client_name": "keelbolt",
            "parser_class": ReplyParser,
        }
        if address.path:
            return UnixDomainSocketConnection(path=address.path, **login)
        if address.tls:
            return SSLConnection(host=address.host, port=address.port, ssl_ca_certs=address.ca_file, **login)
        return Connection(host=address.host, port=address.port, **login)

    async def run(self, calls: Sequence[Sequence[bytes]], *, seconds: float | None = None) -> list[Reply]:
        """Return one reply per call, exceptions for error replies. Raise Disconnected if the outcome is unknown."""
        connection = self._connection
        if connection is None:
            raise Disconnected
        replies: list[Reply] = []
        try:
            async with asyncio.timeout(seconds or self._seconds):
                await connection.send_packed_command([_packed(calls)], check_health=False)
                for _ in calls:
                    try:
                        replies.append(await connection.read_response(disable_decoding=True))
                    except ResponseError as error:
                        replies.append(error)
        except (*_BROKEN, TimeoutError) as error:
            await self.close()
            raise Disconnected(f"the connection to the server at {self.address} broke") from error
        except BaseException:
            await self.close()
            raise
        return replies

    async def one(self, *words: bytes | str | int) -> Reply:
        """Make one call and return its reply. Raise an error reply."""
        (reply,) = await self.run([[_word(word) for word in words]])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def send(self, *words: bytes | str) -> None:
        """Send a call without reading a reply, for subscriptions."""
        if self._connection is None:
            raise Disconnected
        try:
            await self._connection.send_packed_command([_packed([[_word(word) for word in words]])], check_health=False)
        except _BROKEN as error:
            raise Disconnected from error

    async def hear(self) -> Reply:
        """Wait for the next message, without a timeout."""
        if self._connection is None:
            raise Disconnected
        try:
            return await self._connection.read_response(disable_decoding=True)
        except _BROKEN as error:
            raise Disconnected from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await _closed(connection)


async def _closed(connection: AbstractConnection) -> None:
    with contextlib.suppress(*_BROKEN, asyncio.TimeoutError):
        await connection.disconnect(nowait=True)


def _word(word: bytes | str | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


class _Sizes(dict[int, bytes]):
    """Cache of the length line that precedes each argument."""

    def __missing__(self, size: int) -> bytes:
        line = b"$%d" % size
        if size < 4096:
            self[size] = line
        return line


_line = _Sizes().__getitem__


def _packed(calls: Sequence[Sequence[bytes]]) -> bytes:
    parts: list[bytes] = []
    for words in calls:
        parts.append(b"*%d" % len(words))
        parts += chain.from_iterable(zip(map(_line, map(len, words)), words, strict=True))
    parts.append(b"")
    return b"\r\n".join(parts)


# -------------------------------------------------------------------------------------------------------------- address


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
