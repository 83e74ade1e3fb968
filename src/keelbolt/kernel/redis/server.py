"""Checks of a server's version, role and durability, on opening, and the library of server-side functions.

The role is checked again on each reconnect. The library is built from the Lua files and named after a hash of its
contents: two versions of a program can thus use one server at the same time, each with its own functions.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import resources

from redis.exceptions import OutOfMemoryError, ResponseError

from keelbolt.errors import CannotOpen, StorageReadOnly
from keelbolt.kernel.contract import Durability
from keelbolt.kernel.redis.connection import Wire
from keelbolt.kernel.redis.replies import Disconnected, failure_of, is_replica, passes, text_of

OLDEST = (7, 0)
WAITAOF_SINCE = (7, 2)


@dataclass(frozen=True, slots=True)
class Server:
    """Properties that a server reports."""

    version: tuple[int, ...]
    name: str
    run_id: str
    role: str
    cluster: bool
    aof: bool
    fsync: str | None  # None: the server does not allow CONFIG GET
    policy: str

    @property
    def can_wait(self) -> bool:
        """Whether the server supports WAITAOF."""
        return self.version >= WAITAOF_SINCE

    def weaknesses(self) -> list[str]:
        """Return the reasons why the server may lose acknowledged writes."""
        found = []
        if self.policy != "noeviction":
            found.append(f"maxmemory-policy is {self.policy}, so the server may evict data; set it to noeviction")
        if not self.aof:
            found.append("it writes no append-only file; set appendonly yes")
        elif not self.can_wait and self.fsync != "always":
            found.append(f"appendfsync is {self.fsync or 'unknown'}, and WAITAOF needs version 7.2; set it to always")
        return found


async def look_at(wire: Wire) -> Server:
    """Query the server's properties."""
    try:
        facts = _facts(await wire.one("INFO", "everything"))
    except ResponseError as error:
        if passes(text_of(error)):
            raise Disconnected("the server is loading its data") from error
        raise CannotOpen(
            f"the server at {wire.address} does not let this user call INFO; grant it the right"
        ) from error
    # Valkey reports the Redis version that it is compatible with.
    version = tuple(int(part) for part in facts.get("redis_version", "0").split(".")[:3] if part.isdigit())
    return Server(
        version=version,
        name=f"{facts.get('server_name', 'redis')} {facts.get('valkey_version') or facts.get('redis_version', '?')}",
        run_id=facts.get("run_id", ""),
        role=facts.get("role", "master"),
        cluster=facts.get("redis_mode") == "cluster" or facts.get("cluster_enabled") == "1",
        aof=facts.get("aof_enabled") == "1",
        fsync=await _setting(wire, "appendfsync"),
        policy=facts.get("maxmemory_policy", "noeviction"),
    )


def _facts(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


async def _setting(wire: Wire, name: str) -> str | None:
    try:
        reply = await wire.one("CONFIG", "GET", name)
    except ResponseError:  # managed servers forbid CONFIG
        return None
    return reply[1].decode() if isinstance(reply, list) and len(reply) > 1 else None


def check(server: Server, durability: Durability) -> str:
    """Raise if the server can't be used. Return its weaknesses, which only a relaxed storage accepts."""
    if server.version < OLDEST:
        raise CannotOpen(f"the server is {server.name}; Keelbolt needs Redis 7 or Valkey 8, or later")
    if server.role != "master":
        raise StorageReadOnly("this server is a replica, which can't be written; use the URL of its primary")
    weaknesses = server.weaknesses()
    if not weaknesses:
        return ""
    if durability == "durable":
        raise CannotOpen(
            f"this server may lose acknowledged writes: {'; '.join(weaknesses)}. Or accept this with durability=relaxed"
        )
    text = "; ".join(weaknesses)
    warnings.warn(f"this storage may lose acknowledged data: {text}", RuntimeWarning, stacklevel=2)
    return text


async def load_library(wire: Wire) -> None:
    """Load Keelbolt's functions into the server, which persists them like data."""
    name, source = library()
    try:
        await wire.one("FUNCTION", "LOAD", source)
    except ResponseError as error:
        if "already exists" in str(error):
            return
        if isinstance(error, OutOfMemoryError):  # a full server says so before it looks for the library
            if await wire.one("FUNCTION", "LIST", "LIBRARYNAME", name):
                return
            raise failure_of(text_of(error)) from error
        if passes(text_of(error)):
            raise Disconnected("the server is not ready") from error
        if is_replica(text_of(error)):
            raise StorageReadOnly(
                "this server is a replica, which can't be written; use the URL of its primary"
            ) from error
        raise CannotOpen(
            f"the server refused the functions {name}: this user needs the right to call FUNCTION LOAD and FCALL"
        ) from error


# -------------------------------------------------------------------------------------------------------------- library


_FILES = (
    "values",
    "turn",
    "marks",
    "registry",
    "shapes",
    "records",
    "logs",
    "work",
    "claims",
    "blobs",
    "commit",
    "reads",
    "upkeep",
    "export",
    "load",
    "library",
)


@cache
def library() -> tuple[str, bytes]:
    """Return the library's name and source."""
    folder = resources.files("keelbolt.kernel.redis").joinpath("lua")
    # turn.lua uses both tables before their files define them, so they are declared first.
    parts = (folder.joinpath(f"{name}.lua").read_text() for name in _FILES)
    source = "\n".join(("local Registry, Marks = {}, {}", *parts))
    name = f"keelbolt_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    return name, f"#!lua name={name}\n{source.replace('%PREFIX%', name)}".encode()


@cache
def function(name: str) -> bytes:
    """Return the full name of a function."""
    return f"{library()[0]}_{name}".encode()
