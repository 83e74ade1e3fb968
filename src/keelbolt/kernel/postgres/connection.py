"""Connections to the server, and the translation of its errors."""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from keelbolt.errors import (
    CannotOpen,
    InvalidValue,
    KeelboltError,
    MissingExtra,
    StorageBroken,
    StorageBusy,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)
from keelbolt.kernel.contract import Durability
from keelbolt.kernel.keys import LONG_BYTES
from keelbolt.kernel.migrations import queries_of
from keelbolt.kernel.records import MAX_INDEXES
from keelbolt.outbound.reasons import connection_reason

try:
    import asyncpg
except ImportError as error:
    raise MissingExtra("postgres", "asyncpg") from error

Connection: TypeAlias = Any  # asyncpg has no type annotations

CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
LATE_SECONDS = 5.0  # client-side wait beyond the server's own timeout
LOCK_SECONDS = 10.0
IDLE_SECONDS = 5.0  # limit for a stalled process that holds locks in an open transaction
OPEN_SECONDS = 60.0  # per statement while opening: another process may be migrating
SLOW_SECONDS = 3600.0  # for statements that read or rebuild whole tables
OUTAGE_SECONDS = 30.0  # how long callers wait for an unreachable server
OLDEST = 14

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised by its state machine if the server ends the connection
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.IdleSessionTimeoutError,
    OSError,
    TimeoutError,
)
MISSING = (asyncpg.UndefinedFunctionError, asyncpg.FeatureNotSupportedError)
RESERVED = (asyncpg.PostgresSyntaxError, asyncpg.ReservedNameError)
UniqueViolationError = asyncpg.UniqueViolationError
ERRORS = (asyncpg.PostgresError, *LOST)

TLS_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
TLS_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

_QUERIES = queries_of("keelbolt.kernel.postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def statements(schema: str) -> dict[str, str]:
    """Return the named statements for a schema.

    Statements on index entries exist once per column: scan_up_0, scan_up_1, …
    """
    if not _SCHEMA.fullmatch(schema):
        raise InvalidValue(f"a schema's name has 1 to 63 of a-z, 0-9 and '_', not {schema!r}")
    found: dict[str, str] = {}
    for name, text in _QUERIES.items():
        sql = text.replace("{schema}", schema)
        if "{entry}" in sql:
            found |= {f"{name}_{number}": sql.replace("{entry}", f"e{number}") for number in range(MAX_INDEXES)}
        else:
            found[name] = sql
    return found


def plain_url(url: str) -> str:
    """Return the URL without a driver name and without Keelbolt's options; the TLS options stay for the driver."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls = {name: options[name] for name in TLS_OPTIONS if name in options}
    if tls.get("sslmode", TLS_MODES[0]) not in TLS_MODES:
        raise InvalidValue(f"sslmode is one of {', '.join(TLS_MODES)}")
    for name in TLS_OPTIONS[1:]:
        if name in tls and not Path(tls[name]).is_file():
            raise CannotOpen(f"can't read the file that {name} names in the storage URL")
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    # The driver and urlsplit split a URL at different characters; percent-encoding makes the login unambiguous.
    login = quote(unquote(user), safe="") + colon + quote(unquote(password), safe="")
    return urlunsplit(("postgresql", login + at + hosts, parts.path, urlencode(tls), ""))


async def connect(
    url: str, *, pooled: bool = False, settings: dict[str, str] | None = None, seconds: float | None = None
) -> Connection:
    """Open a connection.

    ``pooled`` means that a pooler may run each transaction on another backend, where session settings do not apply.
    ``seconds`` is the timeout of one statement.
    """
    return await asyncpg.connect(
        url,
        timeout=CONNECT_SECONDS,
        command_timeout=seconds,
        statement_cache_size=0 if pooled else 200,
        server_settings=None if pooled else settings,
    )


# Statements find rows by key. Tables without statistics (new or restored) look empty to the planner, so a sequential
# scan looks cheap. Generic plans, because planning costs more than executing.
BY_KEYS = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}


def reader_settings() -> dict[str, str]:
    """Settings of the pool's sessions. A claim always waits for the disk, so that no fence is issued twice."""
    return BY_KEYS | {
        "statement_timeout": str(int(STATEMENT_SECONDS * 1000)),
        "lock_timeout": str(int(LOCK_SECONDS * 1000)),
        "idle_in_transaction_session_timeout": str(int(IDLE_SECONDS * 1000)),
        "synchronous_commit": "on",
    }


def writer_settings(durability: Durability) -> dict[str, str]:
    """Settings of the committer's session."""
    return reader_settings() | {"synchronous_commit": "on" if durability == "durable" else "off"}


# Each statement must see all earlier commits, regardless of the database's default: one statement takes the locks, and
# the next reads the rows that they protect.
ISOLATION = "read_committed"
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


def set_local(settings: dict[str, str]) -> str:
    """Return the settings as SET LOCAL statements, for poolers that drop session settings."""
    return "".join(f"SET LOCAL {name} = {value}; " for name, value in settings.items())


class _Pooled(asyncpg.Connection):  # type: ignore[misc]  # asyncpg brings no types
    """A connection that returns to its pool without a reset query: no session state outlives its transaction."""

    def get_reset_query(self) -> str:
        return ""


async def create_pool(url: str, *, size: int, pooled: bool, settings: dict[str, str]) -> Any:
    """Create the pool for reads and short transactions."""
    return await asyncpg.create_pool(
        url,
        min_size=0,
        connection_class=_Pooled,
        max_size=size,
        timeout=CONNECT_SECONDS,
        command_timeout=STATEMENT_SECONDS + LATE_SECONDS,
        statement_cache_size=0 if pooled else 200,
        server_settings=None if pooled else settings,
    )


async def is_pooled(connection: Connection) -> bool:
    """Return whether a pooler is in between: the announced backend pid then differs from the real one."""
    pid = await connection.fetchval("SELECT pg_backend_pid()")
    return bool(pid != connection.get_server_pid())


def short(key: str) -> str:
    """Return the key, or for a long key a name that fits into an index: its beginning and its hash."""
    if key[0] != "\x01" and (len(key) <= LONG_BYTES // 4 or len(key.encode()) <= LONG_BYTES):
        return key
    return f"\x01{key[: LONG_BYTES // 8]}{hashlib.sha256(key.encode()).hexdigest()}"


def long(key: str) -> str | None:
    """Return the full key if ``short`` shortens it, else None."""
    return None if short(key) == key else key


def translate(error: BaseException) -> KeelboltError:
    """Return the Keelbolt error for a driver error. The caller chains the original as its cause."""
    if isinstance(error, KeelboltError):
        return error
    state = getattr(error, "sqlstate", None) or ""
    match state:
        case "53100":
            return StorageFull()
        case "53200" | "53300" | "53400" | "57014" | "55P03" | "40P01" | "40001":
            return StorageBusy("the server is out of connections, memory or time; nothing was written. Try again")
        case "25006":
            return StorageReadOnly("this server is a replica and refuses writes. Use the URL of the primary")
        case "28P01" | "28000":
            return CannotOpen("the server refused the user or password in the storage URL")
        case "3D000":
            return CannotOpen("the database in the storage URL does not exist; create it first")
        case "42501":
            return CannotOpen(
                "this user may not create or use Keelbolt's schema; grant it CREATE on the database, or create the "
                "schema for it"
            )
        case "58030":
            return StorageBroken()
        case "XX001" | "XX002":
            return StorageCorrupt()
        case _:
            pass
    if isinstance(error, ssl.SSLError | asyncpg.ClientConfigurationError):
        return CannotOpen(
            "no TLS connection; check the server's certificate and the TLS options in the storage URL:  "
            f"{connection_reason(error) if isinstance(error, ssl.SSLError) else error}"
        )
    if isinstance(error, LOST) or state[:2] in ("08", "57"):
        return StorageUnreachable()
    return StorageError(f"the database returned {type(error).__name__}")


def opening_error(error: BaseException, url: str) -> KeelboltError:
    """Like ``translate``, for errors while opening: names the server and the cause, never the user or password."""
    found = translate(error)
    parts = urlsplit(url)
    place = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200]
    if isinstance(found, StorageUnreachable) and not isinstance(error, KeelboltError):
        return StorageUnreachable(
            f"{place}: {connection_reason(error)}. Is the server running, and is the address right?"
        )
    if type(found) is CannotOpen and not isinstance(error, KeelboltError):
        return CannotOpen(f"{place}: {found}")
    return found


async def close_quietly(connection: Connection | None) -> None:
    """Close a connection that may be broken. Terminate it if the server does not respond within 2 seconds."""
    if connection is None:
        return
    try:
        await asyncio.wait_for(connection.close(), 2.0)
    except Exception:  # noqa: BLE001 - it is closed either way
        connection.terminate()
