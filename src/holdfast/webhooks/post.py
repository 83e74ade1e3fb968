"""One POST to a receiver: to the address that was checked, without redirects, with little patience for the answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2

from holdfast.errors import WebhookAddressError
from holdfast.webhooks.addresses import Resolver, Target, check_url, resolve

TOTAL_SECONDS = 15.0
MAX_ANSWER = 64 * 1024
MAX_CLIENTS = 100  # receivers whose connections are kept


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it. ``gone``: the receiver says that it wants nothing more (410)."""

    ok: bool
    gone: bool = False
    error: str = ""


class Poster:
    """Posts, and keeps connections to receivers, each of them for one host alone."""

    def __init__(
        self,
        *,
        loopback: bool = False,
        resolver: Resolver | None = None,
        seconds: float = TOTAL_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._loopback = loopback
        self._resolver = resolver
        self._seconds = seconds
        self._transport = transport
        self._clients: OrderedDict[tuple[str, str, int], httpx2.AsyncClient] = OrderedDict()

    async def aclose(self) -> None:
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Never raises: what goes wrong is the answer."""
        try:
            async with asyncio.timeout(self._seconds):
                target = check_url(url, loopback=self._loopback)
                address = await resolve(target, loopback=self._loopback, resolver=self._resolver)
                return await self._post(target, address, body, headers)
        except TimeoutError:
            return Answer(ok=False, error=f"no answer within {self._seconds:g} s")
        except WebhookAddressError as error:
            return Answer(ok=False, error=str(error))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            return Answer(ok=False, error=f"{type(error).__name__}: {error}"[:300])

    async def _post(self, target: Target, address: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        client = await self._client(target, address)
        request = client.build_request(
            "POST",
            _pinned(target, address),
            content=body,
            headers={**headers, "Host": target.netloc},
            # The certificate must be the host's, though we connect to the address.
            extensions={"sni_hostname": target.host},
        )
        answer = await client.send(request, stream=True, follow_redirects=False)
        try:
            size = 0
            async for chunk in answer.aiter_raw():
                size += len(chunk)
                if size > MAX_ANSWER:
                    break
        finally:
            await answer.aclose()
        status = answer.status_code
        ok = 200 <= status < 300
        return Answer(ok=ok, gone=status == 410, error="" if ok else f"HTTP {status}")

    async def _client(self, target: Target, address: str) -> httpx2.AsyncClient:
        # A connection is verified for one host: another host at the same address must not use it.
        key = (target.host, address, target.port)
        client = self._clients.pop(key, None)
        if client is None:
            client = httpx2.AsyncClient(
                timeout=self._seconds, trust_env=False, follow_redirects=False, transport=self._transport
            )
        self._clients[key] = client
        if len(self._clients) > MAX_CLIENTS:
            _, oldest = self._clients.popitem(last=False)
            await oldest.aclose()
        return client


def _pinned(target: Target, address: str) -> str:
    host = f"[{address}]" if ip_address(address).version == 6 else address
    parts = urlsplit(target.url)
    path = parts.path or "/"
    query = f"?{parts.query}" if parts.query else ""
    return f"{target.scheme}://{host}:{target.port}{path}{query}"
