"""One POST: to the checked address, with the certificate of the name, without redirects, with limits."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from keelbolt.outbound import connection
from keelbolt.outbound.connection import MAX_ANSWER
from keelbolt.webhooks import post
from keelbolt.webhooks.post import Poster
from tests.integration.webhooks.receiver import OK, Answering, Arrival, Receiver, answer, receiving

HEADERS = {"webhook-id": "1", "Authorization": "Bearer secret"}


class Dns:
    """A resolver that returns the test's lists of addresses one by one, and the last one repeatedly."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


HERE = ["127.0.0.1"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def poster() -> AsyncIterator[Poster]:
    poster = Poster(loopback=True, seconds=5)
    yield poster
    await poster.aclose()


async def test_it_arrives_as_it_was_sent(receiver: Receiver, poster: Poster) -> None:
    answered = await poster.post(f"{receiver.url}?a=b%20c", b"\x00body", {**HEADERS, "X-A2A-Notification-Token": "t"})
    assert answered.ok
    [arrival] = receiver.arrivals
    assert arrival.path == "/hook?a=b%20c"
    assert arrival.body == b"\x00body"
    assert arrival.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert arrival.headers["x-a2a-notification-token"] == "t"


async def test_connections_are_reused(receiver: Receiver, poster: Poster) -> None:
    for _ in range(5):
        assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert receiver.connections == 1
    assert [arrival.connection for arrival in receiver.arrivals] == [1] * 5


async def test_a_reused_connection_that_was_closed_is_replaced(receiver: Receiver, poster: Poster) -> None:
    """The connection is replaced whether or not its end was already noticed."""
    assert (await poster.post(receiver.url, b"1", HEADERS)).ok
    receiver.hang_up()
    assert (await poster.post(receiver.url, b"2", HEADERS)).ok

    async def last(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        asyncio.get_running_loop().call_soon(writer.transport.abort)
        return OK

    receiver.answering = last
    for _ in range(5):
        assert (await poster.post(receiver.url, b"3", HEADERS)).ok


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 204 No Content\r\n\r\na body",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok, and more",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_what_follows_a_response_does_not_change_it(receiver: Receiver, poster: Poster, response: bytes) -> None:
    """The delivery counts, as if the rest had arrived later; the connection is not used again."""

    async def odd(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        return response

    receiver.answering = odd
    for _ in range(2):
        assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert receiver.connections == 2


async def test_an_unreachable_receiver_is_a_result(poster: Poster) -> None:
    async with receiving() as receiver:
        url = receiver.url
    answered = await poster.post(url, b"{}", HEADERS)
    assert not answered.ok
    assert answered.silent


# ------------------------------------------------------------------------------------------------------------ addresses


@pytest.fixture
def no_packets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Open no connections; record the addresses."""
    opened: list[str] = []

    async def open_nothing(address: str, port: int, tls: object, name: str) -> None:
        opened.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(connection.OutboundConnection, "open", open_nothing)
    return opened


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "https://localhost/", "https://[::ffff:7f00:1]/", "https://2130706433/", "file:///x"]
)
async def test_a_private_address_is_not_connected_to(url: str, no_packets: list[str]) -> None:
    """This also holds for a stored URL from a time when the switch was on."""
    answered = await Poster().post(url, b"{}", HEADERS)
    assert not answered.ok
    assert not answered.gone
    assert no_packets == []


@pytest.mark.parametrize("private", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:169.254.169.254"], ["fd00::1"]])
async def test_a_name_that_leads_into_a_private_network_is_not_connected_to(
    private: list[str], no_packets: list[str]
) -> None:
    answered = await Poster(resolver=Dns(private)).post("https://hook.example/", b"{}", HEADERS)
    assert not answered.ok
    assert no_packets == []


async def test_the_connection_goes_to_the_checked_address(no_packets: list[str]) -> None:
    """The name is resolved once: an answer that changes after the check has no effect."""
    dns = Dns(["8.8.8.8"], ["127.0.0.1"])
    poster = Poster(resolver=dns)
    await poster.post("https://hook.example/", b"{}", HEADERS)
    assert dns.asked == ["hook.example"]
    assert no_packets == ["8.8.8.8"]
    await poster.post("https://hook.example/", b"{}", HEADERS)
    assert no_packets == ["8.8.8.8"], "the changed answer was checked too"


async def test_the_next_address_is_tried(no_packets: list[str]) -> None:
    addresses = ["2606:4700::1111", "8.8.8.8", "8.8.4.4", "1.1.1.1"]
    await Poster(resolver=Dns(addresses)).post("https://hook.example/", b"{}", HEADERS)
    assert no_packets == addresses[:3]


async def test_a_redirect_is_not_followed(poster: Poster) -> None:
    """No redirect is followed, to a private address or any other."""
    async with receiving() as inner, receiving() as outer:
        for status in (301, 302, 303, 307, 308):
            outer.always(status, f"location: {inner.url}")
            answered = await poster.post(outer.url, b"{}", HEADERS)
            assert not answered.ok
            assert answered.error == f"HTTP {status}"
        assert inner.arrivals == []
        assert inner.connections == 0


# --------------------------------------------------------------------------------------------------------- certificates


async def test_the_certificate_is_that_of_the_name(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """The connection goes to an address; the name is sent and verified, also with a trailing dot."""
    names: list[str | None] = []
    tls = server_tls(authority, "hook.example")
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    async with receiving(tls=tls) as receiver:
        poster = Poster(loopback=True, resolver=Dns(HERE), tls=trusting)
        assert (await poster.post(f"https://hook.example:{receiver.port}/", b"{}", HEADERS)).ok
        assert (await poster.post(f"https://hook.example.:{receiver.port}/", b"{}", HEADERS)).ok
        await poster.aclose()
    assert names == ["hook.example", "hook.example"]
    assert receiver.arrivals[0].headers["host"] == f"hook.example:{receiver.port}"


@pytest.mark.parametrize("name", ["other.example", "127.0.0.1", "hook.example.evil.example"])
async def test_the_certificate_of_another_name_is_refused(
    name: str, authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    """Nothing is sent, even when the certificate is for the address itself."""
    async with receiving(tls=server_tls(authority, name)) as receiver:
        poster = Poster(loopback=True, resolver=Dns(HERE), tls=trusting)
        answered = await poster.post(f"https://hook.example:{receiver.port}/", b"{}", HEADERS)
        assert not answered.ok
        assert answered.error.startswith("TLS failed")
        assert receiver.arrivals == []


async def test_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    async with receiving(tls=server_tls(authority, "hook.example")) as receiver:
        poster = Poster(loopback=True, resolver=Dns(HERE))
        answered = await poster.post(f"https://hook.example:{receiver.port}/", b"{}", HEADERS)
        assert not answered.ok
        assert receiver.arrivals == []


async def test_hosts_at_one_address_share_no_connection(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """A connection verified for one name is not used for another."""
    async with receiving(tls=server_tls(authority, "one.example", "two.example")) as receiver:
        poster = Poster(loopback=True, resolver=Dns(HERE), tls=trusting)
        for host in ("one", "two", "one", "two"):
            assert (await poster.post(f"https://{host}.example:{receiver.port}/", b"{}", HEADERS)).ok
        await poster.aclose()
    used = {(arrival.headers["host"].partition(".")[0], arrival.connection) for arrival in receiver.arrivals}
    assert used == {("one", 1), ("two", 2)}


# -------------------------------------------------------------------------------------------------------------- answers


async def test_a_large_answer_is_read_up_to_a_bound(receiver: Receiver, poster: Poster) -> None:
    """The status decides; the rest of the body is not awaited, and the connection is not used again."""
    written = 0

    async def large(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"x" * 1000)
            written += 1000
            await writer.drain()
        return b""

    receiver.answering = large
    assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert written < 9_000_000  # no more than the size of the buffers in between
    receiver.answering = Receiver().answering
    assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert receiver.connections == 2


@pytest.mark.parametrize(
    "first",
    [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: "],
    ids=["chunked", "until the end", "head"],
)
async def test_an_endless_answer_is_read_up_to_a_bound(receiver: Receiver, poster: Poster, first: bytes) -> None:
    async def endless(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        writer.write(first)
        while True:
            writer.write(b"400\r\n" + b"x" * 0x400 + b"\r\n" if b"chunked" in first else b"x" * 1000)
            await writer.drain()

    receiver.answering = endless
    answered = await poster.post(receiver.url, b"{}", HEADERS)
    assert answered.ok == (not first.endswith(b"x: "))


def dripping(first: bytes) -> Answering:
    """Send a byte at intervals, forever."""

    async def drip(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        writer.write(first)
        while True:
            await asyncio.sleep(0.02)
            writer.write(b"0")
            await writer.drain()

    return drip


async def silent(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
    await asyncio.sleep(60)
    return b""


@pytest.mark.parametrize("answering", [silent, dripping(b"HTTP/1.1 200 OK\r\nx: ")], ids=["silent", "dripping"])
async def test_a_slow_response_has_a_time_limit(receiver: Receiver, answering: Answering) -> None:
    """The limit is for the whole response, even if single bytes arrive at intervals."""
    receiver.answering = answering
    poster = Poster(loopback=True, seconds=0.3)
    answered = await poster.post(receiver.url, b"{}", HEADERS)
    assert not answered.ok
    assert answered.silent
    assert answered.error == "no response within 0.3 s"
    await poster.aclose()


async def test_a_slow_body_after_the_status_is_ignored(
    receiver: Receiver, poster: Poster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that the receiver accepted is not sent again because its response is slow."""
    monkeypatch.setattr(connection, "REST_SECONDS", 0.1)
    receiver.answering = dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert receiver.connections == 2


@pytest.mark.parametrize(
    "response",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    ],
)
async def test_a_response_that_is_not_http_is_a_result(receiver: Receiver, poster: Poster, response: bytes) -> None:
    async def answering(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        writer.write(response)
        await writer.drain()
        writer.close()
        return b""

    receiver.answering = answering
    answered = await poster.post(receiver.url, b"{}", HEADERS)
    assert not answered.ok
    assert "HTTP" in answered.error


async def test_a_connection_closed_without_a_response_is_a_result(receiver: Receiver, poster: Poster) -> None:
    async def answering(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        writer.close()
        return b""

    receiver.answering = answering
    assert not (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert len(receiver.arrivals) == 1, "a fresh connection is not tried twice"


async def test_interim_responses_are_skipped(receiver: Receiver, poster: Poster) -> None:
    async def answering(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        return b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + answer(204)

    receiver.answering = answering
    for _ in range(2):
        assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
    assert receiver.connections == 1


@pytest.mark.parametrize(("status", "ok", "gone"), [(200, True, False), (299, True, False), (410, False, True)])
async def test_only_the_status_counts(receiver: Receiver, poster: Poster, status: int, ok: bool, gone: bool) -> None:
    receiver.always(status)
    answered = await poster.post(receiver.url, b"{}", HEADERS)
    assert (answered.ok, answered.gone) == (ok, gone)


async def test_a_header_can_not_contain_another_one(receiver: Receiver, poster: Poster) -> None:
    answered = await poster.post(receiver.url, b"{}", {"Authorization": "Bearer x\r\nX-Evil: 1"})
    assert not answered.ok
    assert "x\r\n" not in answered.error
    assert receiver.connections == 0


async def test_the_number_of_reused_connections_is_limited(poster: Poster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest connections are closed; connections in use are not."""
    monkeypatch.setattr(post, "MAX_KEPT", 2)
    go = asyncio.Event()

    async def held(arrival: Arrival, writer: asyncio.StreamWriter) -> bytes:
        await go.wait()
        return OK

    async with receiving(held) as slow, receiving() as one, receiving() as two, receiving() as three:
        waiting = asyncio.create_task(poster.post(slow.url, b"{}", HEADERS))
        for receiver in (one, two, three, one, three):
            assert (await poster.post(receiver.url, b"{}", HEADERS)).ok
        go.set()
        assert (await waiting).ok
        assert (one.connections, two.connections, three.connections) == (2, 1, 1)


def test_the_limit_matches_the_documentation() -> None:
    assert MAX_ANSWER == 64 * 1024
