"""Fetches, verifies and caches the agent card, and revalidates it by its ETag."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from keelbolt.client.endpoints import card_urls, check_url, origin_of
from keelbolt.errors import A2AClientError, A2AConnectionError, A2ADiscoveryError, A2AServerError, CardSignatureError

if TYPE_CHECKING:
    import httpx2

    from keelbolt.client.http import Http

logger = logging.getLogger("keelbolt.client")

CARD_BYTES = 1024 * 1024
KEY_SET_BYTES = 1024 * 1024

Keys = Mapping[str, Any] | str
"""The public keys that verify cards: a JSON Web Key Set, or its URL."""


class AgentCardFetcher:
    """``await fetcher.fetch()`` returns the card, at most ``ttl`` seconds old. Concurrent callers share one request.

    With ``keys``, a card is accepted only if one of them signed it unchanged. Key URLs in the card are ignored.
    """

    def __init__(
        self,
        http: Http | httpx2.AsyncClient | None = None,
        base_url: str = "",
        *,
        ttl: float = 300.0,
        keys: Keys | None = None,
        max_bytes: int = CARD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._urls = card_urls(check_url(base_url))
        self._keys_url = _key_set_url(keys) if isinstance(keys, str) else None
        self._keys = None if isinstance(keys, str) else keys
        self._http = http
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._clock = clock
        self._card: dict[str, Any] | None = None
        self._etag: str | None = None
        self._at = float("-inf")
        self._keys_at = float("-inf")
        self._lock = asyncio.Lock()

    @classmethod
    def of(cls, card: Mapping[str, Any], base_url: str) -> AgentCardFetcher:
        """Return a fetcher that always returns this card."""
        fetcher = cls(None, base_url, ttl=float("inf"))
        fetcher._card, fetcher._at = dict(card), fetcher._clock()
        return fetcher

    @property
    def known(self) -> dict[str, Any] | None:
        """The card that was fetched last, of any age."""
        return self._card

    async def fetch(self, *, refresh: bool = False) -> dict[str, Any]:
        """Return the card. Raise A2ADiscoveryError, A2AConnectionError or CardSignatureError."""
        asked = self._clock()
        if not refresh and self._card is not None and asked - self._at < self._ttl:
            return self._card
        async with self._lock:
            if self._card is None or self._at < asked:  # otherwise another caller fetched it meanwhile
                await self._fetch()
            assert self._card is not None
            return self._card

    async def at_hand(self) -> dict[str, Any]:
        """Return the card for a call; an expired one if a new one can't be fetched."""
        try:
            return await self.fetch()
        except A2AClientError as error:
            if self._card is None:
                raise
            self._at = self._clock() - self._ttl + min(self._ttl, 5.0)  # do not retry at every call
            logger.warning("the agent card could not be fetched again (%s); the old card stays in use", error)
            return self._card

    async def _fetch(self) -> None:
        http = self._opened()
        headers = {"Accept": "application/json"}
        if self._etag is not None:
            headers["If-None-Match"] = self._etag
        for url in self._urls:
            try:
                reply = await http.ask("GET", url, headers=headers, limit=self._max_bytes, again=True)
                if reply.status == 304 and self._card is not None:
                    self._at = self._clock()
                    return
                if reply.status in (404, 405, 410) and url != self._urls[-1]:
                    continue
                if reply.status != 200:
                    raise A2ADiscoveryError(f"there is no agent card at {url}: HTTP {reply.status}")
                card = reply.json()
            except A2AServerError as error:
                raise A2ADiscoveryError(f"the agent card at {url} can't be used: {error}") from None
            if not isinstance(card, dict) or not isinstance(card.get("name"), str):
                raise A2ADiscoveryError(f"the document at {url} is not an agent card")
            await self.verify(card)
            self._card, self._etag, self._at = card, reply.headers.get("etag"), self._clock()
            self._urls = (url,)
            return

    async def verify(self, card: Mapping[str, Any]) -> None:
        """Raise CardSignatureError unless one of the keys signed this card; without keys, accept every card."""
        if self._keys is None and self._keys_url is None:
            return
        from keelbolt.protocol.signatures import verify_card  # noqa: PLC0415 - needs an extra

        fresh = self._keys_url is not None and self._clock() - self._keys_at >= self._ttl
        if fresh:
            await self._fetch_keys()
        try:
            verify_card(card, self._keys or {})
        except CardSignatureError:
            if self._keys_url is None or fresh:
                raise
            await self._fetch_keys()  # the keys may have been rotated
            verify_card(card, self._keys or {})

    async def _fetch_keys(self) -> None:
        """Fetch the key set without credentials: it is public, and may be at another origin."""
        assert self._keys_url is not None
        from keelbolt.client.http import Http  # noqa: PLC0415

        http = Http()
        try:
            reply = await http.ask("GET", self._keys_url, limit=KEY_SET_BYTES, again=True)
            keys = reply.json() if reply.status == 200 else None
        except (A2AServerError, A2AConnectionError) as error:
            raise A2ADiscoveryError(f"the keys that verify agent cards can't be loaded: {error}") from None
        finally:
            await http.close()
        if not isinstance(keys, dict) or not isinstance(keys.get("keys"), list):
            raise A2ADiscoveryError("the keys that verify agent cards can't be loaded: there is no key set")
        self._keys, self._keys_at = keys, self._clock()

    def _opened(self) -> Http:
        from keelbolt.client.http import Http  # noqa: PLC0415 - imports httpx2

        if self._http is None:
            raise A2ADiscoveryError("this client uses the card that was passed to it and can't fetch another")
        if not isinstance(self._http, Http):
            self._http = Http(client=self._http)
        return self._http


def _key_set_url(url: str) -> str:
    """Raise ValueError unless the URL is https or loopback: an attacker who changes the key set can sign cards."""
    if not url.startswith("https://") and not origin_of(url).startswith("http://localhost:"):
        raise ValueError("the URL of a key set must begin with https://")
    return url
