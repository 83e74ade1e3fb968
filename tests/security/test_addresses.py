"""Allowed webhook URLs: only the public internet by https, in any spelling."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from keelbolt.errors import AddressNotAllowed
from keelbolt.outbound.addresses import MAX_URL, check_address, check_url, literal_address, resolve

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "169.254.0.1",
    "169.254.169.254",  # metadata of most clouds
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",  # IPv4-compatible
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",  # IPv4-translated
    "64:ff9b::7f00:1",  # NAT64
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "100::1",  # discard
    "2001::1",  # Teredo
    "2001:0:7f00:1::",
    "2001:10::1",
    "2001:20::1",
    "2001:2::1",
    "2001:db8::1",
    "2002:7f00:1::",  # 6to4 of 127.0.0.1
    "2002:a9fe:a9fe::",  # 6to4 of the metadata address
    "2002:808:808::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00::1",
    "fd00:ec2::254",  # metadata of a cloud, by IPv6
    "fe80::1",
    "fec0::1",
    "ff02::1",
]

SPELLED = [
    "2130706433",  # decimal
    "3232235521",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7F.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.0.0.01",
    "017700000001",
    "127.1",
    "127.0.1",
    "10.1",
    "0",
    "0x0",
    "127.0.0.1.",
    "2130706433.",
    "0xa9fea9fe",
    "169.254.43518",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:7f00:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[fd00:ec2::254]",
]

NAMES = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "db",
    "kubernetes.default.svc.cluster.local",
    "printer.local",
    "metadata.google.internal",
    "metadata.google.internal.",
    "x.localhost",
    "router.lan",
    "nas.home.arpa",
    "1.2.3.4.5",
    "256.256.256.256",
    "example.0x7f",
    "exa%6dple.com",
    "%31%32%37.0.0.1",
    "a..example.com",
    ".example.com",
    "-" * 64 + ".example.com",
    "a." * 130 + "com",
    "exam\tple.com",
    "example.com\n.evil.example",
    "ex ample.com",
    "ⅼocalhost.example",
    "127。0。0。1",
    "１２７.0.0.1",
    "①②⑦.0.0.1",
    "bücher.example",
]

URLS = [
    "",
    "https://",
    "https:///path",
    "https:example.com",
    "//example.com/",
    "example.com",
    "http://example.com/",
    "HTTP://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "file://example.com/x",
    "gopher://example.com/_GET",
    "dict://example.com/",
    "javascript:alert(1)",
    "unix:///var/run/docker.sock",
    "ws://example.com/",
    "https://user@example.com/",
    "https://user:password@example.com/",
    "https://@example.com/",
    "https://:@example.com/",
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1#@example.com/",
    "https://127.0.0.1\\@example.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com:0/",
    "https://example.com:65536/",
    "https://example.com:-1/",
    "https://example.com:port/",
    "https://example.com:22/",
    "https://example.com:25/",
    "https://example.com:80/",
    "https://[::1/",
    "https://::1/",
    "https://[example.com]/",
    "https://example.com/a b",
    "https://example.com/\r\nHost: evil.example",
    "https://example.com/\x00",
    "https://example.com/ü",
    "https://example.com/" + "x" * MAX_URL,
    "https://example.com/" + "x" * 1_000_000,
    "https://" + "a" * 1_000_000 + ".example.com/",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_outside_the_public_internet_is_refused(address: str) -> None:
    with pytest.raises(AddressNotAllowed):
        check_address(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    for port in ("", ":443", ":8443"):
        with pytest.raises(AddressNotAllowed):
            check_url(f"https://{host}{port}/hook")


@pytest.mark.parametrize("host", [*SPELLED, *NAMES])
def test_another_spelling_is_refused_too(host: str) -> None:
    with pytest.raises(AddressNotAllowed):
        check_url(f"https://{host}/hook")


@pytest.mark.parametrize("url", URLS, ids=lambda url: ascii(url[:60]))
def test_anything_but_a_plain_https_url_is_refused(url: str) -> None:
    with pytest.raises(AddressNotAllowed):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("https://example.com", "example.com", 443, "/"),
        ("HTTPS://Example.COM./hook?a=b#c", "example.com.", 443, "/hook?a=b"),
        ("https://hooks.example.com:8443/a/b", "hooks.example.com", 8443, "/a/b"),
        ("https://8.8.8.8/", "8.8.8.8", 443, "/"),
        ("https://[2606:4700::1111]:4430/", "2606:4700::1111", 4430, "/"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/"),
        ("https://my_host.example.com/", "my_host.example.com", 443, "/"),
        ("https://example.com/@user", "example.com", 443, "/@user"),
        ("https://decade.cafe/", "decade.cafe", 443, "/"),
    ],
)
def test_a_public_https_url_is_accepted(url: str, host: str, port: int, path: str) -> None:
    target = check_url(url)
    assert (target.host, target.port, target.path) == (host, port, path)
    assert not target.certified.endswith(".")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8000/", "http://localhost:8000/", "http://[::1]/", "https://localhost/", "http://127.1:22/"],
)
def test_the_development_switch_allows_only_this_machine(url: str) -> None:
    assert check_url(url, loopback=True).url == url
    with pytest.raises(AddressNotAllowed):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "http://10.0.0.1/", "https://10.0.0.1/", "http://0.0.0.0/", "https://x.localhost/"],
)
def test_the_development_switch_does_not_allow_networks(url: str) -> None:
    with pytest.raises(AddressNotAllowed):
        check_url(url, loopback=True)


@pytest.mark.parametrize("host", ["example.com", "face.book", "0x", "12ab.example", "a.b", "xn--p1ai"])
def test_a_name_is_not_an_address(host: str) -> None:
    assert literal_address(host) is None


# ---------------------------------------------------------------------------------------------------------- resolving


async def answered(*answers: str, url: str = "https://hook.example/", loopback: bool = False) -> list[str]:
    async def resolver(host: str, port: int) -> list[str]:
        return list(answers)

    return await resolve(check_url(url, loopback=loopback), loopback=loopback, resolver=resolver)


async def test_every_answer_is_checked() -> None:
    """One private address among public ones makes the name untrustworthy."""
    assert await answered("8.8.8.8", "2606:4700::1111") == ["8.8.8.8", "2606:4700::1111"]
    for address in PRIVATE:
        for answers in ([address], ["8.8.8.8", address], [address, "8.8.8.8"]):
            with pytest.raises(AddressNotAllowed):
                await answered(*answers)


async def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(AddressNotAllowed):
        await answered()


async def test_with_the_switch_a_name_may_resolve_to_loopback_and_to_no_network() -> None:
    assert await answered("127.0.0.1", loopback=True) == ["127.0.0.1"]
    with pytest.raises(AddressNotAllowed):
        await answered("127.0.0.1", "10.0.0.1", loopback=True)


async def test_plain_http_never_leaves_this_machine() -> None:
    """Plain HTTP is also refused if localhost resolves to another machine."""
    with pytest.raises(AddressNotAllowed):
        await answered("8.8.8.8", url="http://localhost/", loopback=True)


async def test_an_address_is_not_resolved() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    assert await resolve(check_url("https://8.8.8.8/"), resolver=resolver) == ["8.8.8.8"]
