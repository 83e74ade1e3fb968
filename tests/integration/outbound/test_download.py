"""Downloads: only from public addresses, also after redirects, limited in size and time, complete or an error."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trustme

from keelbolt.errors import AddressNotAllowed, DownloadFailed, InvalidValue
from keelbolt.outbound.connection import OutboundConnection
from keelbolt.outbound.download import MAX_HEAD_BYTES, MAX_REDIRECTS, DownloadRules, download

Serving = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes, *lines: str, status: int = 200) -> bytes:
    head = [f"HTTP/1.1 {status} Some Reason", f"content-length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


class Files:
    """A server on loopback; ``answers`` has its response for each path, ``asked`` the requested paths."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.hang = False
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            self.asked.append(path)
            self.heads.append(head)
            writer.write(self.answers[path])
            await writer.drain()
            if self.hang:
                await reader.read()
        writer.close()

    def url(self, path: str = "/file", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Files]:
    files = Files()
    server = await asyncio.start_server(files.serve, "127.0.0.1", 0, ssl=tls)
    files.port = server.sockets[0].getsockname()[1]
    try:
        yield files
    finally:
        server.close()


@pytest.fixture
async def files() -> AsyncIterator[Files]:
    async with serving() as files:
        yield files


HERE = DownloadRules(loopback=True, seconds=10)


async def whole(url: str, rules: DownloadRules = HERE) -> bytes:
    return b"".join([piece async for piece in download(url, rules)])


async def test_a_file_arrives_whole(files: Files) -> None:
    body = bytes(range(256)) * 4096
    files.answers["/file?a=b%20c"] = answer(body)
    assert await whole(files.url("/file?a=b%20c")) == body
    assert f"Host: 127.0.0.1:{files.port}\r\n" in files.heads[0]


async def test_chunks_and_bodies_without_a_length(files: Files) -> None:
    files.answers["/chunked"] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    files.answers["/open"] = b"HTTP/1.0 200 OK\r\n\r\nuntil the end"
    files.answers["/hint"] = b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n" + answer(b"late")
    assert await whole(files.url("/chunked")) == b"abcde"
    assert await whole(files.url("/open")) == b"until the end"
    assert await whole(files.url("/hint")) == b"late"


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"",
    ],
)
async def test_a_truncated_file_is_an_error(files: Files, cut: bytes) -> None:
    files.answers["/file"] = cut
    with pytest.raises(DownloadFailed, match="closed the connection"):
        await whole(files.url())


@pytest.mark.parametrize("bad", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"])
async def test_a_response_that_is_not_http_is_an_error(files: Files, bad: bytes) -> None:
    files.answers["/file"] = bad
    with pytest.raises(DownloadFailed, match="not HTTP"):
        await whole(files.url())


async def test_other_statuses_and_encodings_are_errors(files: Files) -> None:
    files.answers["/gone"] = answer(b"secret words", status=404)
    files.answers["/redirect"] = answer(b"", status=302)
    files.answers["/zip"] = answer(b"\x1f\x8b", "content-encoding: gzip")
    with pytest.raises(DownloadFailed, match="HTTP 404") as error:
        await whole(files.url("/gone"))
    assert "secret" not in str(error.value)
    with pytest.raises(DownloadFailed, match="HTTP 302"):
        await whole(files.url("/redirect"))
    with pytest.raises(DownloadFailed, match="compressed"):
        await whole(files.url("/zip"))


# ------------------------------------------------------------------------------------------------------------- bounds


async def test_a_file_that_is_too_large_is_not_read(files: Files) -> None:
    """The file is refused by its Content-Length if it has one, otherwise as soon as the limit is exceeded."""
    small = DownloadRules(loopback=True, max_bytes=1000)
    files.answers["/with-length"] = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n"
    files.answers["/without-length"] = b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 100_000
    files.answers["/fits"] = answer(b"x" * 1000)
    with pytest.raises(DownloadFailed, match="100000000000 bytes"):
        await whole(files.url("/with-length"), small)
    got: list[bytes] = []

    async def collect() -> None:
        got.extend([piece async for piece in download(files.url("/without-length"), small)])

    with pytest.raises(DownloadFailed, match="more than 1000 bytes"):
        await collect()
    assert len(b"".join(got)) <= 1000
    assert len(await whole(files.url("/fits"), small)) == 1000


async def test_a_server_that_stops_sending_is_not_waited_for(files: Files) -> None:
    files.hang = True
    files.answers["/head"] = b"HTTP/1.1 200 OK\r\n"
    files.answers["/body"] = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"
    for path in ("/head", "/body"):
        with pytest.raises(DownloadFailed, match=r"within 0\.2 s"):
            await whole(files.url(path), DownloadRules(loopback=True, seconds=0.2))


async def test_a_head_without_an_end_is_an_error(files: Files) -> None:
    files.answers["/file"] = b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * MAX_HEAD_BYTES
    with pytest.raises(DownloadFailed):
        await whole(files.url())


@pytest.mark.parametrize("trailer", [b"x: y\r\n", b"xxxxxx"], ids=["many", "endless"])
async def test_trailers_without_an_end_are_an_error(files: Files, trailer: bytes) -> None:
    files.answers["/file"] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    files.answers["/file"] += trailer * MAX_HEAD_BYTES
    with pytest.raises(DownloadFailed, match="bytes besides the file"):
        await whole(files.url())


def test_rules_are_checked() -> None:
    for wrong in ({"max_bytes": 0}, {"seconds": 0}, {"hosts": "example.com"}):
        with pytest.raises(InvalidValue):
            DownloadRules(**wrong)


# ---------------------------------------------------------------------------------------------------------- addresses


@pytest.fixture
def no_packets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record connections instead of making them."""
    opened: list[str] = []

    async def open_nothing(address: str, port: int, tls: object, name: str) -> None:
        opened.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(OutboundConnection, "open", open_nothing)
    return opened


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://[::1]/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://2130706433/",
        "http://example.com/",
        "https://user:secret@example.com/",
        "file:///etc/passwd",
    ],
)
async def test_addresses_that_are_not_public_are_refused(url: str, no_packets: list[str]) -> None:
    with pytest.raises(AddressNotAllowed):
        await whole(url, DownloadRules())
    assert no_packets == []


async def test_a_name_that_resolves_to_a_private_address_is_refused(no_packets: list[str]) -> None:
    """Every resolved address is checked, and the connection uses the checked address, from one query."""
    asked: list[str] = []

    async def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8"] if len(asked) == 1 else ["10.0.0.1"]

    rules = DownloadRules(resolver=resolver)
    with pytest.raises(DownloadFailed, match="no connection"):
        await whole("https://files.example/", rules)
    with pytest.raises(AddressNotAllowed):
        await whole("https://files.example/", rules)
    assert (no_packets, len(asked)) == (["8.8.8.8"], 2)


async def test_hosts_are_the_only_ones_allowed(no_packets: list[str]) -> None:
    rules = DownloadRules(hosts=("*.example.com",))
    with pytest.raises(AddressNotAllowed):
        await whole("https://example.org/", rules)
    assert no_packets == []


async def test_redirects_are_checked_like_the_first_url(files: Files) -> None:
    """A public server can't redirect the agent into its own network. ``loopback`` stands for a public address here."""
    files.answers["/ok"] = answer(b"", "location: /file?x=1", status=302)
    files.answers["/file?x=1"] = answer(b"found")
    assert await whole(files.url("/ok")) == b"found"
    for number, target in enumerate(("https://10.0.0.1/", "http://example.com/", "//169.254.169.254/", "file:///x")):
        files.answers[f"/{number}"] = answer(b"", f"location: {target}", status=307)
        with pytest.raises(AddressNotAllowed):
            await whole(files.url(f"/{number}"))


async def test_a_redirect_that_is_no_url_is_a_download_error(files: Files) -> None:
    files.answers["/file"] = answer(b"", "location: http://[::1", status=302)
    with pytest.raises(DownloadFailed, match="no URL"):
        await whole(files.url())


async def test_redirects_are_bounded(files: Files) -> None:
    files.answers["/file"] = answer(b"", "location: /file", status=301)
    with pytest.raises(DownloadFailed, match="redirected"):
        await whole(files.url())
    assert len(files.asked) == MAX_REDIRECTS + 1


async def test_certificates_are_verified() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("files.example").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    rules = DownloadRules(loopback=True, resolver=resolver, tls=trusting)
    async with serving(context) as files:
        files.answers["/file"] = answer(b"sealed")
        assert await whole(files.url(scheme="https", host="files.example"), rules) == b"sealed"
        with pytest.raises(DownloadFailed, match="TLS"):
            await whole(files.url(scheme="https", host="other.example"), rules)
        with pytest.raises(DownloadFailed, match="TLS"):
            await whole(
                files.url(scheme="https", host="files.example"), DownloadRules(loopback=True, resolver=resolver)
            )


async def test_an_unreachable_server_is_a_download_error(files: Files) -> None:
    async with serving() as gone:
        url = gone.url()
    with pytest.raises(DownloadFailed, match="no connection"):
        await whole(url)
