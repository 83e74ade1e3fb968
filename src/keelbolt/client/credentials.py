"""Credentials of a client: a token, a function that returns one, or an httpx2 auth."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import httpx2

TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
AuthLike: TypeAlias = "str | TokenSource | httpx2.Auth"


class Credentials:
    """Adds the credentials to requests. A token function is called for every request, so tokens may be short-lived.

    A token without a scheme is a bearer token: ``"eyJ…"`` is sent as ``Authorization: Bearer eyJ…``.
    """

    def __init__(self, auth: AuthLike | None = None, headers: Mapping[str, str] | None = None) -> None:
        self.headers = dict(headers or {})
        for name, value in self.headers.items():
            if not (name + value).isascii() or not value.isprintable():
                raise ValueError(f"the header {name} must be ASCII text without line breaks")
        self.httpx: Any = None
        self._source: TokenSource | None = None
        self._fixed: str | None = None
        if isinstance(auth, str):
            self._fixed = _authorization(auth)
        elif hasattr(auth, "auth_flow"):
            self.httpx = auth
        elif callable(auth):
            self._source = auth
        elif auth is not None:
            raise ValueError("auth must be a token, a function that returns one, or an auth of httpx2")

    def __bool__(self) -> bool:
        return bool(self.headers or self.httpx or self._source or self._fixed)

    async def apply(self, headers: dict[str, str]) -> None:
        """Add the credentials to the headers."""
        headers.update(self.headers)
        if self._fixed is not None:
            headers["Authorization"] = self._fixed
        elif self._source is not None:
            token = self._source()
            if inspect.isawaitable(token):
                token = await token
            headers["Authorization"] = _authorization(token)


def _authorization(token: object) -> str:
    if not isinstance(token, str) or not token.strip() or not (token.isascii() and token.isprintable()):
        raise ValueError("a token must be ASCII text without line breaks")
    token = token.strip()
    return token if " " in token else f"Bearer {token}"
