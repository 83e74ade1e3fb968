"""The authenticated caller, as all code behind authentication sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from keelbolt.names import escaped, shortened

MAX_PARTITION_BYTES = 200  # limit of the storage for the name of a partition

# ASCII only: which other characters are printable depends on Python's Unicode version, and a caller whose partition is
# renamed would no longer find its tasks. "/", "%" and "~" are excluded because they have a meaning.
_PLAIN = "@:+=,|"
_ANONYMOUS_PARTITION = "~anonymous"
_HEAD_CHARACTERS = 120  # readable prefix before the digest of a name that is too long


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. It can access only what its ``tenant`` and ``owner`` own.

    ``owner`` is empty for anonymous callers. ``tenant`` is authenticated and can be trusted. ``asked_tenant`` is the
    one that the request names while the authenticator provides none: it divides the caller's own data and grants
    nothing. ``claims`` are the other authenticated claims; repr omits them, because they may be personal. ``type`` is
    the kind of caller (``"user"``, ``"service"``).
    """

    owner: str = ""
    tenant: str = ""
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    type: str = ""
    asked_tenant: str = ""

    def __post_init__(self) -> None:
        for name in ("owner", "tenant", "type", "asked_tenant"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} of a Principal must be a string")
        if isinstance(self.roles, str):  # a string is an iterable of characters, not a set of roles
            raise TypeError("roles of a Principal must be a set of strings, not one string")
        roles = frozenset(self.roles)
        if not all(isinstance(role, str) for role in roles):
            raise TypeError("roles of a Principal must be strings")
        if self.tenant and self.asked_tenant:
            raise ValueError("a Principal with an authenticated tenant can't have an asked_tenant")
        object.__setattr__(self, "roles", roles)
        object.__setattr__(self, "claims", MappingProxyType(dict(self.claims)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Principal.from_json, (self.to_json(),)

    @property
    def anonymous(self) -> bool:
        """Whether the caller is unauthenticated. A tenant alone is no identity."""
        return not self.owner

    @property
    def id(self) -> str:
        """The owner, under the name of apcore's Identity."""
        return self.owner

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The claims, under the name of apcore's Identity."""
        return self.claims

    @property
    def partition(self) -> str:
        """The storage partition of this principal's data, unique for every pair of tenant and owner.

        ``alice``, ``acme/alice``, ``acme/`` for the anonymous callers of a tenant and ``~anonymous`` for those of none;
        ``alice//acme`` and ``~anonymous//acme`` if the request names the tenant and no authenticator confirms it.
        Characters other than ASCII letters, digits and usual punctuation are percent-encoded; a name that gets too long
        ends in its SHA-256. The name depends only on tenant and owner, so it is the same in every process.
        """
        return _partition(self.owner, self.tenant, self.asked_tenant)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, to be stored with what this principal started."""
        return {
            "owner": self.owner,
            "tenant": self.tenant,
            "roles": sorted(self.roles),
            "claims": dict(self.claims),
            "type": self.type,
            **({"askedTenant": self.asked_tenant} if self.asked_tenant else {}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Principal:
        """Return the principal that `to_json` stored; missing fields get their defaults."""
        return cls(
            owner=stored.get("owner", ""),
            tenant=stored.get("tenant", ""),
            roles=frozenset(stored.get("roles", ())),
            claims=stored.get("claims", {}),
            type=stored.get("type", ""),
            asked_tenant=stored.get("askedTenant", ""),
        )


@lru_cache(maxsize=4096)
def _partition(owner: str, tenant: str, asked_tenant: str) -> str:
    owner = escaped(owner, _PLAIN)
    if tenant:
        name = f"{escaped(tenant, _PLAIN)}/{owner}"
    elif asked_tenant:
        name = f"{owner or _ANONYMOUS_PARTITION}//{escaped(asked_tenant, _PLAIN)}"
    else:
        name = owner or _ANONYMOUS_PARTITION
    return shortened(name, MAX_PARTITION_BYTES, head=_HEAD_CHARACTERS)


ANONYMOUS = Principal()
