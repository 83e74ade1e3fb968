"""Shared by the PostgreSQL tests: roles, a replica, PgBouncer, and a check that messages leak no secrets."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from keelbolt.testing.launch import as_user, free_port, make_home, tail_of
from keelbolt.testing.postgres import OwnPostgres, PostgresServer

SQL_WORDS = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE TABLE", "relation", "::", "$1")
START_SECONDS = 30.0


def assert_discreet(error: BaseException, url: str) -> None:
    """Check that the message has nothing confidential: no SQL, no path, no user, no password."""
    message = str(error)
    parts = urlsplit(url)
    assert parts.password is None or parts.password not in message
    assert "@" not in message, message
    assert not [word for word in SQL_WORDS if word in message], message
    assert not [place for place in ("/tmp", "/usr", "/var", "/work") if place in message]
    assert len(message) > 20, "it says what to do"
    assert "Error" not in message, message


def make_role(server: PostgresServer, *rights: str) -> tuple[str, str]:
    """Create a role that can log in. Return its name and its password."""
    name, password = f"role_{secrets.token_hex(4)}", secrets.token_hex(8)
    server.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}' {' '.join(rights)}")
    return name, password


def url_for(url: str, role: tuple[str, str]) -> str:
    """Return the URL of the same database for another role."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role[0]}:{role[1]}@{parts.hostname}:{parts.port}").geturl()


async def answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=2, statement_cache_size=0)
    except (OSError, TimeoutError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes], home: Path) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], log: Path, ready: str) -> None:
    until = time.monotonic() + START_SECONDS
    while ready not in tail_of(log, 100):
        assert process.poll() is None, tail_of(log)
        assert time.monotonic() < until, tail_of(log)
        time.sleep(0.05)


@contextlib.contextmanager
def replica_of(server: OwnPostgres) -> Iterator[str]:
    """Start a streaming replica of this server. Return its URL."""
    home = make_home("replica", server._user)
    data, log, port = home / "data", home / "server.log", free_port()
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PGPASSWORD": server.password}
    source = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    subprocess.run(
        [server._binaries / "pg_basebackup", "-D", data, "-R", "-c", "fast", "--no-sync", "-X", "stream", *source],
        check=True,
        capture_output=True,
        cwd=home,
        env=environment,
        **as_user(server._user),
    )
    options = {
        "port": str(port),
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": str(home),
        "shared_buffers": "16MB",
        "dynamic_shared_memory_type": "mmap",
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [server._binaries / "postgres", "-D", data, *(f"-c{name}={value}" for name, value in options.items())],
            stdout=out,
            stderr=out,
            cwd=home,
            env=environment,
            **as_user(server._user),
        )
    with ended(process, home):
        _wait(process, log, "ready to accept read-only connections")
        yield f"postgresql://postgres:{server.password}@127.0.0.1:{port}"


def pgbouncer() -> str | None:
    return shutil.which("pgbouncer") or (shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin"))


@contextlib.contextmanager
def pgbouncer_of(server: OwnPostgres, *, mode: str = "transaction", backends: int = 4) -> Iterator[str]:
    """Start a PgBouncer in front of this server, with few backends. Return its URL, without a database."""
    program = pgbouncer()
    assert program is not None
    home = make_home("bouncer", server._user)
    log, port = home / "bouncer.log", free_port()
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": home / "users.txt",
        "pool_mode": mode,
        "default_pool_size": backends,
        "max_client_conn": 200,
        "logfile": log,
    }
    lines = ["[databases]", f"* = host=127.0.0.1 port={server.port}", "[pgbouncer]"]
    (home / "users.txt").write_text(f'"postgres" "{server.password}"\n')
    (home / "bouncer.ini").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]))
    if server._user is not None:
        for path in (home / "users.txt", home / "bouncer.ini"):
            os.chown(path, server._user.pw_uid, server._user.pw_gid)
    process = subprocess.Popen(
        [program, home / "bouncer.ini"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=home,
        **as_user(server._user),
    )
    with ended(process, home):
        _wait(process, log, "process up")
        yield f"postgresql://postgres:{server.password}@127.0.0.1:{port}"
