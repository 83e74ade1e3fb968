"""CORS for pages of other origins; off by default."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger("keelbolt.server")

HEADERS = (
    "A2A-Version",
    "A2A-Extensions",
    "X-A2A-Extensions",
    "Last-Event-ID",
    "Idempotency-Key",
    "Authorization",
    "X-API-Key",
    "Content-Type",
)
EXPOSED = ("A2A-Extensions", "X-A2A-Extensions", "ETag", "Retry-After", "Webhook-Secret", "WWW-Authenticate")


class Cors:
    """The application, wrapped in Starlette's middleware if origins are allowed."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        if origins:
            if "*" in origins:
                logger.warning("CORS: pages of every origin may call this agent")
            self._app = CORSMiddleware(
                app,
                allow_origins=origins,
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=HEADERS,
                expose_headers=EXPOSED,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
