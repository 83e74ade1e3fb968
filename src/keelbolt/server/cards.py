"""The agent card, encoded once per base URL, with an ETag; and the extended card per caller."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from keelbolt.auth import acting_as
from keelbolt.auth.schemes import challenge, requirements_v03, to_v03, to_v10
from keelbolt.errors import CredentialsMissing, ExtendedCardNotConfiguredError, UnsupportedOperationError
from keelbolt.grpc.address import GrpcAddress, host_port
from keelbolt.protocol.card import (
    BINDINGS,
    AgentCardConfig,
    CardSecurity,
    ExtensionConfig,
    Interface,
    build_card,
    card_v1,
)
from keelbolt.protocol.extensions import GENERATION, RESUME
from keelbolt.protocol.signatures import CardKey
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.caller import Caller
from keelbolt.server.http import NOSNIFF, Header, header, respond
from keelbolt.server.origins import host_name
from keelbolt.server.settings import ServerSettings

logger = logging.getLogger("keelbolt.server")

PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
JWKS_PATH = "/.well-known/jwks.json"
MAX_ADDRESSES = 32  # cards cached; a client that invents Host headers can't fill the memory
MAX_AGE_SECONDS = 300

ExtendedCard = Callable[[Caller], AgentCardConfig | Awaitable[AgentCardConfig]]


@dataclass(frozen=True, slots=True)
class EncodedCard:
    """A card as bytes with its response headers."""

    body: bytes
    etag: bytes
    modified: bytes

    headers: tuple[Header, ...]

    @classmethod
    def of(cls, body: bytes, modified: bytes) -> EncodedCard:
        etag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
        cache = b"public, max-age=%d" % MAX_AGE_SECONDS
        headers = (
            (b"etag", etag),
            (b"last-modified", modified),
            (b"cache-control", cache),
            (b"vary", b"host"),
            NOSNIFF,
        )
        return cls(body, etag, modified, headers)

    def known(self, scope: Scope) -> bool:
        """Return whether the client's cached card is current."""
        asked = header(scope, b"if-none-match")
        if asked is None:
            since = header(scope, b"if-modified-since")
            return since is not None and since == self.modified.decode()
        tags = [tag.strip().removeprefix("W/") for tag in asked.split(",")]
        return "*" in tags or self.etag.decode() in tags


class Cards:
    """Builds, signs and serves the agent card.

    A card is signed only if the setting ``url`` is set: a signature over the Host header of a request would vouch for
    any address that a client invents. The extended card needs authentication (A2A 1.0, 13.3); without ``schemes`` it is
    not served, and the card says so.
    """

    def __init__(
        self,
        config: AgentCardConfig,
        settings: ServerSettings,
        *,
        schemes: dict[str, dict[str, Any]] | None = None,
        optional_auth: bool = False,
        extended: ExtendedCard | None = None,
        key: CardKey | None = None,
    ) -> None:
        self._settings = settings
        self._schemes = schemes or {}
        if config.extended_card and not self._schemes:
            logger.warning("the extended card is not served: it needs authentication; pass auth=… to the agent")
        if key is not None and not settings.url:
            logger.warning("the card is not signed: set the agent's url, which the signature covers")
        self.config = self._offered(config)
        self._optional = optional_auth
        self._extended = extended
        self.address = ""  # where the agent listens, for requests without a usable Host
        self.grpc_at: GrpcAddress | None = None
        self._key = key
        self._known: dict[str, EncodedCard] = {}
        self._modified = formatdate(usegmt=True).encode()

    def replace(self, config: AgentCardConfig) -> None:
        """Replace the card."""
        self.config, self._known = self._offered(config), {}
        self._modified = formatdate(usegmt=True).encode()

    def _offered(self, config: AgentCardConfig) -> AgentCardConfig:
        """Return the config plus this server's extensions, without the features that it can't offer."""
        if config.extended_card and not self._schemes:
            capabilities = config.capabilities.model_copy(update={"extended_agent_card": False})
            changes = {"capabilities": capabilities, "supports_authenticated_extended_card": False}
            config = config.model_copy(update=changes)
        return _with_ours(config, self._settings)

    def reached(self, base: str = "") -> str:
        """Return the agent's URL for a caller that used ``base``; "" if the request names no address."""
        return base or self._settings.url.rstrip("/") or self.address

    def encoded(self, base: str = "") -> EncodedCard:
        """Return the card for clients that reach the agent at ``base``."""
        base = self.reached(base)
        found = self._known.get(base)
        if found is None:
            body = to_json(self._signed(self._card(self.config, base)))
            found = EncodedCard.of(body, self._modified)
            if len(self._known) < MAX_ADDRESSES:
                self._known[base] = found
        return found

    async def extended(self, caller: Caller, base: str = "", version: ProtocolVersion = ProtocolVersion.v1_0) -> bytes:
        """Return the extended card for this caller, in the format of ``version``.

        Raise CredentialsMissing for an anonymous caller.
        """
        if not self.config.extended_card:
            raise UnsupportedOperationError("this agent has no extended card; see the capabilities in its card")
        if self._extended is None:
            raise ExtendedCardNotConfiguredError
        if caller.principal.anonymous:  # also if anonymous callers may use all other operations
            raise CredentialsMissing(challenge=challenge(self._schemes))
        with acting_as(caller.principal):
            config = self._extended(caller)
            if inspect.isawaitable(config):
                config = await config
        base = self.reached(base)
        card = self._card(_with_ours(config, self._settings), base)
        return to_json(self._signed(card_v1(card) if version is ProtocolVersion.v1_0 else card))

    def _card(self, config: AgentCardConfig, base: str) -> dict[str, Any]:
        security = None
        if self._schemes:
            security = CardSecurity(
                to_v03(self._schemes),
                to_v10(self._schemes),
                requirements_v03(self._schemes, optional=self._optional),
            )
        card = build_card(config, self._interfaces(base), security=security)
        return card_v1(card) if self._settings.versions == (ProtocolVersion.v1_0,) else card

    def _signed(self, card: dict[str, Any]) -> dict[str, Any]:
        if self._key is not None and self._settings.url:
            card["signatures"] = [*card.get("signatures", ()), self._key.sign(card)]
        return card

    def _interfaces(self, base: str) -> list[Interface]:
        grpc = self._grpc(base)
        calls = base + "/" if urlsplit(base).path else base  # a mount only routes the path with its slash
        found: list[Interface] = []
        for version in self._settings.versions:
            ours = [Interface(calls, "JSONRPC", version), Interface(base, "HTTP+JSON", version)] if base else []
            if grpc:
                ours.append(Interface(grpc, "GRPC", version))
            found += sorted(ours, key=lambda one: one.binding != BINDINGS[self.config.protocol])
        return found

    def _grpc(self, base: str) -> str:
        """Return the gRPC address: ``grpc_url``, or the host of ``base`` with the gRPC port."""
        if self.grpc_at is None:
            return ""
        host = urlsplit(base).hostname or self.grpc_at.reachable_host
        return self._settings.grpc_url or host_port(host, self.grpc_at.port)

    def base(self, scope: Scope) -> str:
        """Return the URL that the client used: the setting ``url``, or the one in the request."""
        if self._settings.url:
            return self._settings.url.rstrip("/")
        scheme, host = scope.get("scheme", "http"), header(scope, b"host")
        if self._settings.trust_proxy:
            scheme = (header(scope, b"x-forwarded-proto") or scheme).partition(",")[0].strip()
            host = (header(scope, b"x-forwarded-host") or host or "").partition(",")[0].strip()
        if not _plain_host(host):
            server = scope.get("server") or ("localhost", 80)
            host = f"{server[0]}:{server[1]}"
        return f"{scheme if scheme in ('http', 'https') else 'http'}://{host}{scope.get('root_path', '')}"

    async def serve(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Serve GET of the well-known paths."""
        card = self.encoded(self.base(scope))
        if card.known(scope):
            await send({"type": "http.response.start", "status": 304, "headers": list(card.headers)})
            await send({"type": "http.response.body", "body": b""})
            return
        await respond(send, 200, card.body, caching=card.headers, head=scope["method"] == "HEAD")


async def serve_jwks(send: Send, key: CardKey) -> None:
    """Serve GET of the key set that verifies the card."""
    await respond(send, 200, to_json(key.jwks()), caching=(NOSNIFF, (b"cache-control", b"public, max-age=300")))


def _with_ours(config: AgentCardConfig, settings: ServerSettings) -> AgentCardConfig:
    """Return the config with the extensions that this server adds."""
    ours = {RESUME: "Streams can be continued after any event."} if config.capabilities.streaming else {}
    if settings.generation:
        ours[GENERATION] = "Tasks and events have a generation."
    known = {item.uri for item in config.all_extensions}
    more = [ExtensionConfig(uri=uri, description=words) for uri, words in ours.items() if uri not in known]
    return config.model_copy(update={"extensions": (*config.extensions, *more)}) if more else config


_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]+")


@lru_cache(maxsize=256)  # most requests have the same Host
def _plain_host(host: str | None) -> bool:
    """Return whether ``host`` is only a host, so that it is safe in the card."""
    if not host or len(host) > 255 or not _HOST.fullmatch(host):
        return False
    return host_name(host) != ""
