"""Opens a storage by its URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from keelbolt.errors import CannotOpen, InvalidValue, MissingExtra, StorageMissing, UnknownScheme
from keelbolt.kernel.contract import Durability, Kernel
from keelbolt.kernel.records import Collection

if TYPE_CHECKING:
    from keelbolt.kernel.migrations import Migration


_PORT = r"[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5]"
_HOST = re.compile(rf"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]*)(:({_PORT}))?")
ENGINES = "keelbolt.engines"  # entry point group; an entry is scheme = "package.module:function"
MEMORY = ("memory", "memory:", "memory://")  # URLs of a storage in the memory of the process
_POSTGRES = ("postgresql", "postgres")
_REDIS = ("redis", "rediss", "valkey", "valkeys", "unix")


def open_storage(url: str, *, durability: Durability | None = None, declare: Iterable[Collection] = ()) -> Kernel:
    """Return a kernel for this URL, to be used as an async context manager.

        async with open_storage("sqlite:///keelbolt.db") as kernel: ...

    ``memory:`` keeps everything in this process; ``sqlite:///path`` in a file (``sqlite:////path`` is absolute);
    ``postgresql://…`` and ``redis://…`` on a server. Another scheme opens the engine that an installed package
    registers for it in the entry point group ``keelbolt.engines``. The default ``durability`` is ``durable``; the
    argument overrides the URL (``?durability=relaxed``).
    """
    scheme, path, options = _split(url)
    chosen = _durability(options.pop("durability", None), durability)
    if scheme == "memory":
        from keelbolt.kernel.memory import MemoryKernel

        _refuse_unknown(options)
        return MemoryKernel(durability=chosen, declare=declare)
    if scheme == "postgresql":
        from keelbolt.kernel.postgres import TLS_OPTIONS, PostgresKernel

        schema = options.pop("schema", "keelbolt")
        connections = _connections(options.pop("connections", "5"))
        hints, fsync = options.pop("hints", "listen"), options.pop("fsync", "checked")
        if hints not in ("listen", "poll"):
            raise InvalidValue(f"hints is 'listen' or 'poll', not {hints!r}")
        if fsync not in ("checked", "trusted"):
            raise InvalidValue(f"fsync is 'checked' or 'trusted', not {fsync!r}")
        for name in TLS_OPTIONS:  # they stay in the URL, for the driver
            options.pop(name, None)
        _refuse_unknown(options, "schema", "connections", "hints", "fsync", *TLS_OPTIONS)
        return PostgresKernel(
            path,
            schema=schema,
            durability=chosen,
            declare=declare,
            connections=connections,
            poll=hints == "poll",
            trusted=fsync == "trusted",
        )
    if scheme == "redis":
        return _redis(url, options, chosen, declare)
    if scheme != "sqlite":
        return _registered(scheme, url, chosen, declare)
    from keelbolt.kernel.sqlite import SQLiteKernel

    _refuse_unknown(options)
    return SQLiteKernel(path, durability=chosen, declare=declare)


def _redis(url: str, options: dict[str, str], durability: Durability, declare: Iterable[Collection]) -> Kernel:
    if find_spec("redis") is None:
        raise MissingExtra("redis", "redis")
    from keelbolt.kernel.redis import RedisKernel, address_of

    address = address_of(urlsplit(url), options)
    try:
        replicas, timeout = int(options.pop("replicas", "0")), float(options.pop("timeout", "10"))
    except ValueError:
        raise InvalidValue(
            "replicas and timeout are numbers, as in redis://host:6379/0?replicas=1&timeout=10"
        ) from None
    namespace = options.pop("namespace", "keelbolt")
    _refuse_unknown(options, "namespace", "replicas", "timeout", "db", "ca_file")
    return RedisKernel(
        address,
        namespace=namespace,
        replicas=replicas,
        timeout_seconds=timeout,
        durability=durability,
        declare=declare,
    )


def _registered(scheme: str, url: str, durability: Durability, declare: Iterable[Collection]) -> Kernel:
    """Open a third-party engine. Its entry point takes the URL, the durability and the collections."""
    found = entry_points(group=ENGINES, name=scheme)
    if len(found) > 1:
        names = ", ".join(sorted(entry.value for entry in found))
        raise CannotOpen(f"several packages register an engine for {scheme!r} ({names}); uninstall all but one")
    (entry,) = found
    try:
        make = entry.load()
    except Exception as error:
        raise CannotOpen(
            f"the engine {entry.value!r}, registered for {scheme!r}, can't be imported: {error}"
        ) from error
    kernel: Kernel = make(url, durability=durability, declare=declare)
    return kernel


def pending_migrations(url: str) -> list[Migration]:
    """Return the migrations that `migrate` would apply. Changes nothing."""
    scheme, path, options = _split(url)
    if scheme not in ("sqlite", "postgresql"):  # Redis has a format and no schema; other engines migrate when opened
        return []
    if scheme == "postgresql":
        from keelbolt.kernel.postgres.schema import migrate as migrate_server

        return migrate_server(path, options.get("schema", "keelbolt"), dry_run=True)
    from keelbolt.kernel.sqlite.schema import pending

    return pending(path)


def migrate(url: str) -> list[Migration]:
    """Migrate the database to this program's schema and return the applied migrations."""
    scheme, path, options = _split(url)
    if scheme not in ("sqlite", "postgresql"):  # Redis has a format and no schema; other engines migrate when opened
        return []
    if scheme == "postgresql":
        from keelbolt.kernel.postgres.schema import migrate as migrate_server

        return migrate_server(path, options.get("schema", "keelbolt"), dry_run=False)
    from keelbolt.kernel.sqlite.schema import migrate as migrate_file

    return migrate_file(path)


def run_script(url: str, scripts: Mapping[str, str]) -> None:
    """Run a face's SQL, such as reporting views, in an existing storage. ``scripts`` has one script per SQL engine.

    A script is applied completely or not at all. ``{schema}`` stands for the schema on PostgreSQL.
    """
    scheme, path, options = _split(url)
    if scheme not in scripts:
        raise InvalidValue(f"this storage has no SQL; use one of: {', '.join(sorted(scripts))}")
    if scheme == "postgresql":
        from keelbolt.kernel.postgres.schema import run_script as run_on_server

        run_on_server(path, options.get("schema", "keelbolt"), scripts[scheme])
        return
    from keelbolt.kernel.sqlite.schema import run_script as run_in_file

    if not Path(path).exists():
        raise StorageMissing
    run_in_file(path, scripts[scheme])


def _split(url: str) -> tuple[str, str, dict[str, str]]:
    if not isinstance(url, str):
        raise UnknownScheme(f"a storage URL is a string, not {type(url).__name__}; use memory: or sqlite:///path")
    if url in MEMORY:
        return "memory", "", {}
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UnknownScheme("this is not a URL; use memory:, sqlite:///path, postgresql://… or redis://…") from None
    scheme = parts.scheme.split("+")[0].lower()
    if scheme == "memory":
        if parts.netloc or parts.path:
            raise UnknownScheme('memory: has no host and no path; each open_storage("memory:") is a new one')
        return "memory", "", _options(parts)
    if scheme in (*_POSTGRES, *_REDIS):
        _check_server(parts)
    if scheme in _POSTGRES:
        return "postgresql", url, _options(parts)
    if scheme in _REDIS:
        return "redis", url, _options(parts)
    if scheme != "sqlite":
        if scheme and entry_points(group=ENGINES, name=scheme):
            return scheme, url, _options(parts)
        raise UnknownScheme(
            f"{repr(parts.scheme) if scheme else 'a URL without a scheme'} names no engine; "
            "use memory:, sqlite:///path, postgresql://… or redis://…, or install the package that registers it"
        )
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path == "/":
        raise UnknownScheme("write a SQLite URL as sqlite:///relative/path.db or sqlite:////absolute/path.db")
    path = path[1:]
    if parts.fragment or "\0" in path:
        raise UnknownScheme("the path of a SQLite URL can't hold NUL; write # as %23 and ? as %3F")
    if path == ":memory:":
        raise UnknownScheme("SQLite in memory would not be shared; use memory: instead")
    return "sqlite", path, _options(parts)


def _check_server(parts: SplitResult) -> None:
    """Refuse a URL whose password contains an unescaped delimiter.

    The rest of the password would be read as a host, a database or an option, and appear in errors. The error raised
    here contains no part of the URL.
    """
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if parts.fragment or "@" in parts.path + parts.query or not all(_HOST.fullmatch(host) for host in hosts):
        raise UnknownScheme(
            "the storage URL can't be read: it has a part after #, an @ after its host, or a port that is "
            "not a number. "
            "Encode these characters in a password: # as %23, / as %2F, ? as %3F, @ as %40"
        )


def _options(parts: SplitResult) -> dict[str, str]:
    return dict(parse_qsl(parts.query, keep_blank_values=True))


def _durability(in_url: str | None, argument: Durability | None) -> Durability:
    chosen = argument if argument is not None else in_url if in_url is not None else "durable"
    if chosen == "durable":
        return "durable"
    if chosen == "relaxed":
        return "relaxed"
    raise InvalidValue(f"durability is 'durable' or 'relaxed', not {chosen!r}")


def _connections(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise InvalidValue("connections is a whole number from 1 to 1000, as in postgresql://host/db?connections=10")
    return int(text)


def _refuse_unknown(options: dict[str, str], *known: str) -> None:
    if options:
        names = ", ".join(("durability", *known))
        raise InvalidValue(f"unknown option in the storage URL: {', '.join(sorted(options))}; known: {names}")
