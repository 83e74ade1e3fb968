"""A cached key set that its issuer publishes at a URL.

**Rotation.** A token with an unknown key id reloads the set, but at most once in ``cooldown_seconds``, however many
such tokens arrive: an attacker can send unknown ids at no cost. The set is also reloaded in the background when it is
older than ``refresh_seconds``; requests meanwhile use the cached keys.

**Outage.** Loaded keys are used for ``keep_seconds`` while the endpoint is down, slow or returns invalid data. For a
token with an unknown key id, and for every token if there are no keys, `AuthUnavailable` is raised meanwhile: the key
may be new, and the client must not drop a valid token. Concurrent callers share one request, and wait at most
``timeout_seconds``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2

from keelbolt.auth.keys import VerificationKey, keys_of_set
from keelbolt.errors import AuthMisconfigured, AuthUnavailable

logger = logging.getLogger("keelbolt.auth")

MAX_SET_BYTES = 1_000_000
MAX_KEYS = 64
RETRY_SECONDS = 1.0  # between attempts while there are no usable keys


@dataclass(frozen=True, slots=True)
class _Loaded:
    keys: tuple[VerificationKey, ...]
    at: float


class JWKSCache:
    """The keys at one URL. `aclose` cancels a running request; a ``client`` that was passed in stays open."""

    def __init__(
        self,
        url: str,
        *,
        client: httpx2.AsyncClient | None = None,
        timeout_seconds: float = 5.0,
        refresh_seconds: float = 300.0,
        cooldown_seconds: float = 30.0,
        keep_seconds: float = 86_400.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        check_url(url)
        self._url = url
        self._client = client
        self._timeout = timeout_seconds
        self._refresh = refresh_seconds
        self._cooldown = cooldown_seconds
        self._keep = keep_seconds
        self._monotonic = monotonic
        self._loaded: _Loaded | None = None
        self._next_at = float("-inf")
        self._loading: asyncio.Task[None] | None = None
        self._failed = False  # the last request

    async def find(self, algorithm: str, kid: str | None) -> tuple[VerificationKey, ...]:
        """Return the keys that may have signed a token with this header; empty if the issuer has none.

        Raise AuthUnavailable if the issuer may have one, but the set can't be loaded.
        """
        if (age := self._age()) >= self._keep:
            await self._load_now()
            if self._age() >= self._keep:
                raise AuthUnavailable
            return self._fitting(algorithm, kid)
        if age >= self._refresh:
            self._start()
        found = self._fitting(algorithm, kid)
        if not found:
            await self._load_now()
            found = self._fitting(algorithm, kid)
            if not found and self._failed:
                raise AuthUnavailable("A token names an unknown key, and the issuer's key set can't be loaded.")
        return found

    async def aclose(self) -> None:
        task = self._loading
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait([task])

    def _age(self) -> float:
        return float("inf") if self._loaded is None else self._monotonic() - self._loaded.at

    def _fitting(self, algorithm: str, kid: str | None) -> tuple[VerificationKey, ...]:
        loaded = self._loaded
        return () if loaded is None else tuple(key for key in loaded.keys if key.fits(algorithm, kid))

    async def _load_now(self) -> None:
        task = self._start()
        if task is not None:
            await asyncio.wait([task])  # a cancelled caller does not cancel the shared request

    def _start(self) -> asyncio.Task[None] | None:
        """Return the running request, or start a new one unless the cooldown applies."""
        loop = asyncio.get_running_loop()
        task = self._loading
        if task is not None and not task.done() and task.get_loop() is loop:
            return task
        now = self._monotonic()
        if now < self._next_at:
            return None
        self._next_at = now + self._cooldown
        self._loading = loop.create_task(self._load(), name="keelbolt-jwks")
        return self._loading

    async def _load(self) -> None:
        self._failed = True  # also if it is cancelled
        try:
            async with asyncio.timeout(self._timeout):
                keys = await self._fetch()
        except Exception as error:  # noqa: BLE001 - on any error, the cached keys stay
            usable = self._age() < self._keep
            if not usable:
                self._next_at = self._monotonic() + RETRY_SECONDS
            kept = "keys loaded before stay in use, other tokens get 503" if usable else "every token gets 503"
            logger.warning("keys could not be loaded from %s (%s); %s", self._url, _cause(error), kept)
        else:
            self._loaded = _Loaded(keys, self._monotonic())
            self._failed = False

    async def _fetch(self) -> tuple[VerificationKey, ...]:
        async with AsyncExitStack() as stack:
            client = self._client
            if client is None:
                client = await stack.enter_async_context(httpx2.AsyncClient(timeout=self._timeout))
            headers = {"accept": "application/json", "accept-encoding": "identity"}
            request = client.stream("GET", self._url, headers=headers, follow_redirects=False)
            response = await stack.enter_async_context(request)
            if response.status_code != 200:
                raise _Unusable(f"status {response.status_code}")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_SET_BYTES:
                    raise _Unusable(f"more than {MAX_SET_BYTES} bytes")
        document = json.loads(body)
        keys = keys_of_set(document) if isinstance(document, dict) else ()
        if not 0 < len(keys) <= MAX_KEYS:
            raise _Unusable(f"{len(keys)} usable keys")
        return keys


class _Unusable(Exception):
    """The endpoint returned no valid key set."""


def check_url(url: str) -> None:
    """Raise AuthMisconfigured unless the URL is https or loopback.

    An attacker who changes the key set in transit can impersonate every caller.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise AuthMisconfigured(f"the URL of a key set is invalid: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise AuthMisconfigured("the URL of a key set must not contain a password, since it is logged")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and _loopback(parts.hostname))):
        raise AuthMisconfigured("the URL of a key set must begin with https:// (http:// only for loopback addresses)")


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cause(error: Exception) -> str:
    return str(error) if isinstance(error, _Unusable) else type(error).__name__
