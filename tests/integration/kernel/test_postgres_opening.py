"""Opening a PostgreSQL that is missing, forbidden, too old, a replica, or opened by many processes at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from keelbolt.errors import (
    CannotOpen,
    CommitRefused,
    InvalidValue,
    SchemaTooNew,
    StorageBusy,
    StorageError,
    StorageReadOnly,
    StorageUnreachable,
)
from keelbolt.kernel import Absent, Append, Collection, Draft, Put, Receipt, open_storage
from keelbolt.kernel.urls import migrate, pending_migrations
from keelbolt.testing.launch import ServerFailed, free_port
from keelbolt.testing.postgres import OwnPostgres, all_binaries, own_postgres
from tests.integration.kernel.postgres_servers import assert_discreet, make_role, replica_of, url_for

FAMILIES = (Collection("doc", fields={"state": str}, counters=((), ("state",))),)
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


async def refusal(url: str, **options: object) -> StorageError:
    """Return the error of opening this URL; check that it is raised within seconds and leaks no secrets."""
    with pytest.raises(StorageError) as caught:
        async with asyncio.timeout(20), open_storage(url, declare=FAMILIES, **options):  # type: ignore[arg-type]
            pass
    assert_discreet(caught.value, url)
    return caught.value


# ---------------------------------------------------------------------------------------------------- address and role


async def test_a_server_that_does_not_run(url: str) -> None:
    """No server listens at this port: a retryable error, at once."""
    error = await refusal(url.replace(url.rpartition(":")[2].partition("/")[0], str(free_port())))
    assert isinstance(error, StorageUnreachable)
    assert error.retryable


async def test_a_host_that_has_no_address() -> None:
    assert isinstance(await refusal("postgresql://someone@no-such-host.invalid/db"), StorageUnreachable)


async def test_a_server_that_accepts_and_never_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server accepts the connection and never responds: opening times out."""
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.CONNECT_SECONDS", 0.5)
    gone = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        assert isinstance(await refusal(f"postgresql://someone:word@127.0.0.1:{port}/db"), StorageUnreachable)
        await gone.wait()


@pytest.mark.parametrize("part", ["user", "password"])
async def test_a_wrong_user_or_password(url: str, server: OwnPostgres, part: str) -> None:
    wrong = url_for(url, ("no_such_user", "secretword") if part == "user" else ("postgres", "secretword"))
    error = await refusal(wrong)
    assert isinstance(error, CannotOpen)
    assert "user or password" in str(error)


async def test_a_missing_database(server: OwnPostgres) -> None:
    error = await refusal(server.url_of("there_is_none"))
    assert isinstance(error, CannotOpen)
    assert "create it" in str(error)


async def test_a_role_that_may_not_create(url: str, server: OwnPostgres) -> None:
    """Opening fails without the right to create the schema, and later without the right to use it."""
    role = make_role(server)
    error = await refusal(url_for(url, role))
    assert isinstance(error, CannotOpen)
    assert "CREATE" in str(error)
    async with open_storage(url, declare=FAMILIES):
        pass
    assert isinstance(await refusal(url_for(url, role)), CannotOpen)


async def test_the_rights_that_the_documentation_grants_are_enough(url: str, server: OwnPostgres) -> None:
    """A role that may only read and write can use a schema created by its owner."""
    async with open_storage(url):
        pass
    role = make_role(server)
    for grant in (
        f"GRANT USAGE ON SCHEMA keelbolt TO {role[0]}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA keelbolt TO {role[0]}",
        f"GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA keelbolt TO {role[0]}",
    ):
        server.execute(grant, url=url)
    async with open_storage(url_for(url, role), declare=FAMILIES) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1", {"state": "new"}), Append("log", "s", (Draft("a", b""),)))
        await kernel.claim("queue", "worker")
        blob = await kernel.stage_blob("p", b"bytes")
        assert (await kernel.open_blob("p", blob.digest)).blob.size == 5
        await kernel.sweep()
        assert [problem async for problem in kernel.check()] == []


# --------------------------------------------------------------------------------------------------- kind of server


async def test_an_old_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version before the oldest supported one is refused by its number, before anything is created."""
    old = asyncpg.types.ServerVersion(13, 9, 0, "final", 0)
    monkeypatch.setattr(asyncpg.Connection, "get_server_version", lambda _self: old)
    error = await refusal(url)
    assert isinstance(error, CannotOpen)
    assert "13" in str(error)
    assert "14" in str(error)


async def test_a_replica(server: OwnPostgres, url: str) -> None:
    """A real streaming replica is refused, with and without the schema."""
    with replica_of(server) as replica:
        place = f"{replica}/{url.rpartition('/')[2]}"
        assert "primary" in str(await refusal(place))
    async with open_storage(url):
        pass
    with replica_of(server) as replica:
        assert "primary" in str(await refusal(f"{replica}/{url.rpartition('/')[2]}"))


async def test_a_primary_that_becomes_read_only(server: OwnPostgres, url: str) -> None:
    """Writes of an open storage raise a typed error and store nothing; reads work; later writes work again."""
    name = url.rpartition("/")[2]
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1"))
        server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        with pytest.raises(StorageReadOnly) as caught:
            await kernel.commit("p", Put("doc", "a", b"2"))
        assert_discreet(caught.value, url)
        record = await kernel.get("p", "doc", "a")
        assert record is not None
        assert record.version == 1
        server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        await kernel.commit("p", Put("doc", "a", b"2"))


async def test_a_server_without_fsync() -> None:
    """Opening as durable is refused with a message that names durability=relaxed, which works."""
    with own_postgres(settings={"fsync": "off"}) as careless, careless.database() as url:
        error = await refusal(url)
        assert isinstance(error, CannotOpen)
        assert "fsync" in str(error)
        assert "relaxed" in str(error)
        async with open_storage(url, declare=FAMILIES, durability="relaxed") as kernel:
            await kernel.commit("p", Put("doc", "a", b"1"))
            assert (await kernel.health()).durability == "relaxed"
        async with open_storage(f"{url}?durability=relaxed", declare=FAMILIES) as kernel:
            assert await kernel.get("p", "doc", "a") is not None


async def test_a_server_without_fsync_can_be_trusted() -> None:
    """With fsync=trusted in the URL, a server with fsync off is accepted as durable."""
    with own_postgres(settings={"fsync": "off"}) as other, other.database() as url:
        assert "fsync=trusted" in str(await refusal(url))
        async with open_storage(f"{url}?fsync=trusted", declare=FAMILIES) as kernel:
            await kernel.commit("p", Put("doc", "a", b"1"))
            assert (await kernel.health()).durability == "durable"


# ------------------------------------------------------------------------------------------------- compatible servers

# A no-op in a schema searched before pg_catalog simulates a database whose function does nothing.
SHADOWS = {
    "both": ("pg_advisory_xact_lock(bigint)", "pg_advisory_xact_lock_shared(bigint)"),
    "exclusive": ("pg_advisory_xact_lock(bigint)",),
    "shared": ("pg_advisory_xact_lock_shared(bigint)",),
}


def shadow(server: OwnPostgres, url: str, *functions: str) -> None:
    """Replace these functions of a database, for new connections."""
    server.execute("CREATE SCHEMA shadow", url=url)
    for function in functions:
        server.execute(f"CREATE FUNCTION shadow.{function}", url=url)
    name = url.rpartition("/")[2]
    server.execute(f"ALTER DATABASE {name} SET search_path = shadow, pg_catalog, public")


@pytest.mark.parametrize("which", SHADOWS)
async def test_locks_that_do_not_exclude_are_refused(url: str, server: OwnPostgres, which: str) -> None:
    """Older CockroachDB: advisory locks exist and lock nothing."""
    shadow(server, url, *(f"{name} RETURNS void LANGUAGE sql AS 'SELECT'" for name in SHADOWS[which]))
    error = await refusal(url)
    assert isinstance(error, CannotOpen)
    assert "are not exclusive" in str(error)


async def test_locks_that_outlive_their_transaction_are_refused(url: str, server: OwnPostgres) -> None:
    shadow(
        server,
        url,
        "pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS 'SELECT pg_catalog.pg_advisory_lock($1)'",
    )
    assert "does not release" in str(await refusal(url))


async def test_a_server_without_locks_is_refused(url: str, server: OwnPostgres) -> None:
    """The server does not implement one of the lock functions."""
    shadow(
        server,
        url,
        "pg_advisory_xact_lock_shared(bigint) RETURNS void LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'unimplemented' USING ERRCODE = 'feature_not_supported'; END$$",
    )
    error = await refusal(url)
    assert isinstance(error, CannotOpen)
    assert "no transaction-level advisory locks" in str(error)


async def test_sequences_that_decrease_are_refused(url: str, server: OwnPostgres) -> None:
    """YugabyteDB: each session caches numbers, so a later number of another session can be lower."""
    async with open_storage(url, declare=FAMILIES):
        pass
    server.execute("ALTER SEQUENCE keelbolt.ids CACHE 50", url=url)
    error = await refusal(url)
    assert isinstance(error, CannotOpen)
    assert "do not increase" in str(error)
    server.execute("ALTER SEQUENCE keelbolt.ids CACHE 1", url=url)
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1"))


async def test_a_refused_server_keeps_no_connection(url: str, server: OwnPostgres) -> None:
    """Both connections of the server check are closed when it fails, and no lock stays."""
    shadow(server, url, "pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS 'SELECT'")
    await refusal(url)
    for _ in range(200):
        if not server.execute("SELECT 1 FROM pg_stat_activity WHERE datname = $1", url.rpartition("/")[2]):
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("a connection stayed open")


async def test_the_default_isolation_level_does_not_matter(url: str, server: OwnPostgres) -> None:
    """With a snapshot for the whole transaction, a batch would read data from before it got its locks."""
    server.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = 'repeatable read'")
    async with open_storage(url, declare=FAMILIES) as one, open_storage(url, declare=FAMILIES) as other:
        for number in range(30):
            once = (Absent("doc", f"k{number}"), Put("doc", f"k{number}", b""))
            done = await asyncio.gather(one.commit("p", *once), other.commit("p", *once), return_exceptions=True)
            assert {type(outcome) for outcome in done} == {Receipt, CommitRefused}


async def test_polling_by_the_url(url: str, server: OwnPostgres) -> None:
    """With hints=poll no connection uses LISTEN or NOTIFY, and tails of other processes wake by the poll."""
    async with (
        open_storage(f"{url}?hints=poll", declare=FAMILIES) as one,
        open_storage(f"{url}?hints=poll", declare=FAMILIES) as other,
    ):
        assert "polling" in (await one.health()).detail
        tail = one.tail("p", "log", "s")
        first = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.3)
        await other.commit("p", Append("log", "s", (Draft("a", b"x"),)))
        async with asyncio.timeout(10):
            assert (await first).data == b"x"
        await tail.aclose()  # type: ignore[attr-defined]
        asked = server.execute("SELECT query FROM pg_stat_activity WHERE datname = $1", url.rpartition("/")[2])
        assert not [query for (query,) in asked if "LISTEN" in query.upper() or "notify" in query]
    with pytest.raises(InvalidValue):
        open_storage(f"{url}?hints=often")
    with pytest.raises(InvalidValue):
        open_storage(f"{url}?fsync=maybe")


async def test_durability_sets_synchronous_commit(url: str, server: OwnPostgres) -> None:
    """The committer's connection waits for the disk when durable, whatever the server's default."""
    server.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = off")
    found = {}
    for durability in ("durable", "relaxed"):
        async with open_storage(f"{url}?durability={durability}", declare=FAMILIES) as kernel:
            await kernel.commit("p", Put("doc", "a", b"1"))
            found[durability] = await kernel._committer._connection.fetchval(  # type: ignore[attr-defined]
                "SHOW synchronous_commit"
            )
    assert found == {"durable": "on", "relaxed": "off"}


# --------------------------------------------------------------------------------------------------------------- TLS


def certificate_in(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("a certificate needs openssl")
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    return certificate, key


@pytest.fixture(scope="module")
def tls_server() -> Iterator[tuple[OwnPostgres, Path]]:
    """A server with its own certificate for 127.0.0.1, and the path of that certificate."""
    for binaries in all_binaries():  # not every build supports TLS
        with own_postgres(binaries=binaries) as started:
            certificate, key = certificate_in(started.home, "server")
            if started._user is not None:
                os.chown(key, started._user.pw_uid, started._user.pw_gid)
            started.stop()
            try:
                started.start(ssl="on", ssl_cert_file=str(certificate), ssl_key_file=str(key))
            except ServerFailed:
                continue
            yield started, certificate
            return
    pytest.skip("no PostgreSQL here is built with TLS")


async def test_tls_options_reach_every_connection(tls_server: tuple[OwnPostgres, Path], tmp_path: Path) -> None:
    """With sslmode all connections are encrypted; with verify-full the certificate must be the given one."""
    own, certificate = tls_server
    with own.database() as url:
        for options in ("sslmode=require", f"sslmode=verify-full&sslrootcert={certificate}"):
            async with open_storage(f"{url}?{options}&schema=safe", declare=FAMILIES) as kernel:
                await kernel.commit("p", Put("doc", "a", b"1"))
                assert await kernel.get("p", "doc", "a") is not None
                safe = own.execute(
                    "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                    "WHERE datname = $1",
                    url.rpartition("/")[2],
                )[0]
                assert safe[0] == safe[1] >= 2
        other, _ = certificate_in(tmp_path, "other")
        for options in ("sslmode=verify-full", f"sslmode=verify-full&sslrootcert={other}"):
            error = await refusal(f"{url}?{options}")
            assert isinstance(error, CannotOpen)
            assert "certificate" in str(error)


async def test_tls_required_of_a_server_without_it(url: str) -> None:
    """If TLS is required and the server has none, opening is refused."""
    error = await refusal(f"{url}?sslmode=require")
    assert isinstance(error, StorageUnreachable | CannotOpen)


@pytest.mark.parametrize(
    "options", ["sslmode=sometimes", "sslrootcert=/no/such/file", "connections=0", "connections=many", "color=blue"]
)
def test_wrong_options_are_refused(url: str, options: str) -> None:
    """The error is raised before a connection attempt."""
    with pytest.raises((InvalidValue, CannotOpen)) as caught:
        open_storage(f"{url}?{options}")
    assert "/no/such" not in str(caught.value)


async def test_the_number_of_connections_is_an_option(url: str, server: OwnPostgres) -> None:
    """There is one for the committer, one for LISTEN, and the URL's number for reads."""
    async with open_storage(f"{url}?connections=2", declare=FAMILIES) as kernel:
        await kernel.commit("p", Put("doc", "a", b"1"))
        await asyncio.gather(*(kernel.get("p", "doc", "a") for _ in range(50)))
        rows = server.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = $1", url.rpartition("/")[2])
        assert 2 <= rows[0][0] <= 4


# ----------------------------------------------------------------------------------------------------------- schemas


async def test_schemas_are_separate_stores(url: str) -> None:
    """Two stores in one database share nothing: records, logs, work, notifications, locks."""
    async with (
        open_storage(f"{url}?schema=first", declare=FAMILIES) as first,
        open_storage(f"{url}?schema=second", declare=FAMILIES) as second,
    ):
        await first.commit("p", Put("doc", "a", b"first"), Append("log", "s", (Draft("a", b""),)))
        assert await second.get("p", "doc", "a") is None
        assert (await second.log_state("p", "log", "s")).head == 0
        assert await second.partitions() == []
        await second.commit("p", Put("doc", "a", b"second"))
        record = await first.get("p", "doc", "a")
        assert record is not None
        assert record.body == b"first"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Upper",
        "with-dash",
        "with space",
        "a;drop",
        'quo"te',
        "1digit",
        "x" * 64,
        "ünicode",
        "pg_x",
        "user",
        "select",
    ],
)
async def test_bad_schema_names_are_refused(url: str, server: OwnPostgres, name: str) -> None:
    """Names with special characters and reserved names are refused, and nothing is created."""
    with pytest.raises(InvalidValue) as caught:
        async with open_storage(f"{url}?schema={name}"):
            pass
    assert_discreet(caught.value, url)
    made = server.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'record'", url=url)
    assert made[0][0] == 0


async def test_the_longest_schema_name_works_with_hints(url: str) -> None:
    """63 characters are allowed, and notifications between processes arrive."""
    place = f"{url}?schema={'s' * 63}"
    async with open_storage(place) as one, open_storage(place) as other:
        seen = asyncio.ensure_future(anext(other.tail("p", "log", "s", after=0)))
        await asyncio.sleep(0.2)
        await one.commit("p", Append("log", "s", (Draft("a", b"x"),)))
        async with asyncio.timeout(10):
            assert (await seen).data == b"x"


async def test_a_newer_schema_version_is_refused(url: str, server: OwnPostgres) -> None:
    async with open_storage(url):
        pass
    server.execute("INSERT INTO keelbolt.migration (number, name, checksum) VALUES (9999, 'future', 'x')", url=url)
    assert isinstance(await refusal(url), SchemaTooNew)


# -------------------------------------------------------------------------------------------------------- migrations


async def test_many_processes_create_the_schema_at_once(url: str, server: OwnPostgres) -> None:
    """Eight processes open an empty database together: all of them work, and each migration was applied once."""
    program = (
        "import asyncio, sys\n"
        "from keelbolt.kernel import Collection, Insert, open_storage\n"
        "async def main():\n"
        "    async with open_storage(sys.argv[1], declare=[Collection('doc')]) as kernel:\n"
        "        await kernel.commit('p', Insert('doc', sys.argv[2], b''))\n"
        "asyncio.run(main())\n"
    )
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, f"key {number}", cwd=ROOT)
        for number in range(8)
    ]
    async with asyncio.timeout(120):
        assert [await child.wait() for child in children] == [0] * 8
    applied = server.execute("SELECT count(*), count(DISTINCT number) FROM keelbolt.migration", url=url)[0]
    assert applied[0] == applied[1] > 0
    assert server.execute("SELECT count(*) FROM keelbolt.record", url=url)[0][0] == 8


async def test_opening_does_not_hang_behind_a_stuck_migration(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process never releases the migration lock: opening raises StorageBusy."""
    monkeypatch.setattr("keelbolt.kernel.postgres.schema.OPEN_SECONDS", 1.0)
    other = await asyncpg.connect(url)
    await other.execute("SELECT pg_advisory_lock($1)", 0x484F4C44)
    try:
        assert isinstance(await refusal(url), StorageBusy)
    finally:
        await other.close()
    async with open_storage(url):
        pass


def test_migrations_are_listed_and_applied_by_url(url: str) -> None:
    """`pending_migrations` changes nothing, `migrate` applies, and then no migration is pending."""
    pending = pending_migrations(url)
    assert pending
    assert pending_migrations(url) == pending
    assert migrate(url) == pending
    assert (pending_migrations(url), migrate(url)) == ([], [])
