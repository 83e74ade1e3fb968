"""The caller of a request, as every operation gets it, for all bindings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import Struct, structs

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import TenantNotFoundError
from keelbolt.protocol.versions import ProtocolVersion


class Caller(Struct, frozen=True):
    """The principal and the options of one request.

    ``after`` is the seq of the last event that the caller has. The worker sees ``request`` as ``ctx.request_context``;
    ``stored`` is kept with the turn.
    """

    principal: Principal = ANONYMOUS
    extensions: tuple[str, ...] = ()
    after: int | None = None
    version: ProtocolVersion = ProtocolVersion.v1_0
    stored: dict[str, Any] = {}
    trace: dict[str, str] | None = None  # headers of the trace that the request belongs to
    key: str | None = None  # Idempotency-Key
    headers: Sequence[tuple[bytes, bytes]] = ()  # of the request; for gRPC, its metadata
    request: dict[str, Any] = {}

    def in_tenant(self, tenant: str | None) -> Caller:
        """Return the caller within the tenant that the request names. Raise TenantNotFoundError for a foreign tenant.

        A caller with an authenticated tenant can use no other. For other callers, the name partitions their own data.
        """
        vouched = self.principal.tenant
        if not tenant or tenant == vouched:
            return self
        if vouched:
            raise TenantNotFoundError
        return structs.replace(self, principal=replace(self.principal, asked_tenant=tenant))
