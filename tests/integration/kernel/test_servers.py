"""The temporary servers and the proxy behave as tests require."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keelbolt.testing import postgres, valkey
from keelbolt.testing.launch import NoServer, ServerFailed
from keelbolt.testing.proxy import Proxy


def value(server: postgres.PostgresServer, sql: str, url: str | None = None) -> object:
    return server.execute(sql, url=url)[0][0]


@pytest.fixture(scope="module", params=postgres.all_binaries(), ids=lambda path: path.parts[-2])
def own_postgres(request: pytest.FixtureRequest) -> Iterator[postgres.OwnPostgres]:
    with postgres.own_postgres(binaries=request.param) as server:
        yield server


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[valkey.OwnValkey]:
    with valkey.own_valkey() as server:
        yield server


# ------------------------------------------------------------------------------------------------------ PostgreSQL


def test_each_database_is_new_and_empty(own_postgres: postgres.OwnPostgres) -> None:
    first, second = own_postgres.create_database(), own_postgres.create_database()
    own_postgres.execute("CREATE TABLE here (id int)", url=first)
    assert value(own_postgres, "SELECT count(*) FROM pg_tables WHERE tablename = 'here'", second) == 0
    own_postgres.drop_database(first)
    name = first.rpartition("/")[2]
    assert value(own_postgres, f"SELECT count(*) FROM pg_database WHERE datname = '{name}'") == 0


@pytest.mark.parametrize("end", ["fast", "immediate", "kill"])
def test_a_restarted_server_has_its_data_and_port(own_postgres: postgres.OwnPostgres, end: str) -> None:
    url = own_postgres.create_database()
    own_postgres.execute("CREATE TABLE kept AS SELECT 42 AS n", url=url)
    if end == "kill":
        own_postgres.kill()
        own_postgres.start()
    else:
        own_postgres.restart("fast" if end == "fast" else "immediate")
    assert value(own_postgres, "SELECT n FROM kept", url) == 42


def test_settings_reach_the_server() -> None:
    with postgres.postgres_server(settings={"fsync": "off", "synchronous_commit": "off"}) as server:
        assert value(server, "SHOW fsync") == "off"


def test_a_named_directory_without_postgres_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="initdb"), postgres.postgres_server(binaries=tmp_path, own=True):
        pass


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    before = set(Path("/tmp").glob("keelbolt-pg-*"))
    with pytest.raises(ServerFailed, match="shared_buffers"):
        postgres.OwnPostgres(postgres.find_binaries(), {"shared_buffers": "nonsense"})
    assert not [left for left in set(Path("/tmp").glob("keelbolt-pg-*")) - before if (left / "server.log").exists()]


def test_an_existing_server_is_used_and_left_as_it_was(
    own_postgres: postgres.OwnPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(postgres.URL_VARIABLE, own_postgres.url)
    before = value(own_postgres, "SELECT count(*) FROM pg_database")
    with postgres.postgres_server() as server:
        assert server.url == own_postgres.url
        assert value(server, "SELECT 1", server.create_database()) == 1
    assert value(own_postgres, "SELECT count(*) FROM pg_database") == before


# ---------------------------------------------------------------------------------------------------------- Valkey


def test_each_valkey_database_is_empty(own_valkey: valkey.OwnValkey) -> None:
    first, second = own_valkey.create_database(), own_valkey.create_database()
    own_valkey.execute("SET", "a", "1", url=first)
    assert own_valkey.execute("GET", "a", url=second) is None


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restarted_valkey_has_its_data_and_port(own_valkey: valkey.OwnValkey, end: str) -> None:
    own_valkey.execute("SET", "kept", end)
    getattr(own_valkey, end)()
    own_valkey.start()
    assert own_valkey.execute("GET", "kept") == end.encode()


def test_valkey_settings_and_password() -> None:
    with valkey.own_valkey(settings={"maxmemory": "64mb"}, password="secret") as server:
        assert server.execute("CONFIG", "GET", "maxmemory") in (
            [b"maxmemory", b"67108864"],
            {b"maxmemory": b"67108864"},
        )


def test_a_paused_server_answers_after_it_is_resumed(own_valkey: valkey.OwnValkey) -> None:
    own_valkey.pause()
    assert not own_valkey._is_ready()
    own_valkey.resume()
    assert own_valkey.execute("PING")


# -------------------------------------------------------------------------------------------------------- cleanup


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_a_killed_test_leaves_no_server(kind: str) -> None:
    """The watchdog ends the server and removes its directory when the process that started it is killed."""
    program = (
        f"import time; from keelbolt.testing.{kind} import own_{kind}\n"
        f"with own_{kind}() as server: print(server.pid, server.home, flush=True); time.sleep(60)"
    )
    with started(program) as child:
        assert child.stdout is not None
        pid, home = child.stdout.readline().split()
        child.kill()
    end = time.monotonic() + 20
    while (alive(int(pid)) or Path(home.decode()).exists()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(int(pid))
    assert not Path(home.decode()).exists()


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        os.kill(pid, signal.SIG_DFL)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


# ----------------------------------------------------------------------------------------------------------- proxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(1000):
        writer.write(block)
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy


async def test_the_proxy_passes_and_counts(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    assert proxy.passed == {"up": 5, "down": 5}
    assert proxy.url("redis://:word@example.org:1/0") == f"redis://:word@127.0.0.1:{proxy.port}/0"
    writer.close()


async def test_the_proxy_cuts_after_so_many_bytes(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    proxy.cut_after(3, "down")
    writer.write(b"hello")
    assert await reader.readexactly(3) == b"hel"
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"again")
    assert await reader.readexactly(5) == b"again"
    writer.close()


async def test_the_proxy_refuses_swallows_and_delays(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"
    proxy.swallow("down")
    writer.write(b"b")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.1)
    proxy.allow()
    proxy.delay(0.2)
    began = time.monotonic()
    writer.write(b"c")
    assert await reader.readexactly(1) == b"c"
    assert time.monotonic() - began >= 0.4
    proxy.refuse()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    other, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await other.readexactly(1)
    writer.close()
