"""The caller, as everything behind authentication sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from keelbolt.names import escaped, shortened

MAX_PARTITION_BYTES = 200  # what the storage takes as the name of a partition

# ASCII alone: which other characters are printable changes with the Unicode of the Python that runs, and a caller whose
# partition changed its name would no longer find its tasks. "/", "%" and "~" are missing because they have a meaning.
_PLAIN = "@:+=,|"
_ANONYMOUS_PARTITION = "~anonymous"
_HEAD_CHARACTERS = 120  # of a name that is too long, kept before its digest so that people recognise it


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. It sees what its ``tenant`` and ``owner`` own, and nothing else.

    ``owner`` is empty for anonymous callers. ``tenant`` is the one that the authenticator vouches for; it can be
    trusted. ``asked_tenant`` is the one that the request names, while the authenticator vouches for none: it divides
    the caller's own data and grants nothing. ``claims`` are the other claims that the authenticator vouches for; repr
    does not show them, because they may be personal. ``type`` is the kind of caller (``"user"``, ``"service"``).
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
        if isinstance(self.roles, str):  # a string is an iterable of characters, and no set of roles
            raise TypeError("roles of a Principal must be a set of strings, not one string")
        roles = frozenset(self.roles)
        if not all(isinstance(role, str) for role in roles):
            raise TypeError("roles of a Principal must be strings")
        if self.tenant and self.asked_tenant:
            raise ValueError("a Principal whose tenant is vouched for asks for no other")
        object.__setattr__(self, "roles", roles)
        object.__setattr__(self, "claims", MappingProxyType(dict(self.claims)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Principal.from_json, (self.to_json(),)

    @property
    def anonymous(self) -> bool:
        """Whether nobody vouches for this caller. A tenant alone is no identity."""
        return not self.owner

    @property
    def id(self) -> str:
        """The owner, by the name that apcore's Identity has for it."""
        return self.owner

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The claims, by the name that apcore's Identity has for them."""
        return self.claims

    @property
    def partition(self) -> str:
        """The storage partition of what this principal owns: a different one for every pair of tenant and owner.

        ``alice``, ``acme/alice``, ``acme/`` for the anonymous callers of a tenant and ``~anonymous`` for those of none;
        ``alice//acme`` and ``~anonymous//acme`` where the request names the tenant and no authenticator vouches for it.
        Other characters than ASCII letters, digits and usual punctuation are percent-encoded; a name that gets too long
        ends in its SHA-256. The name depends on nothing but tenant and owner, so it is the same in every process.
        """
        return _partition(self.owner, self.tenant, self.asked_tenant)

    def to_json(self) -> dict[str, Any]:
        """Plain values, to be stored beside what this principal started."""
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
        """The principal that `to_json` wrote; what is missing has its default."""
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
