"""The scope of a turn (tenant, thread, agent), and the names of its data in the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from keelbolt.errors import TurnStorageScopeMissing
from keelbolt.kernel import Kernel
from keelbolt.kernel import Scope as TenantScope
from keelbolt.names import escaped, shortened

PARTITIONS = "~turns/"  # prefix of a tenant's partition; no principal's partition begins with it
_PLAIN = "!$&'()*+,-.:;=@_ |<>[]{}^`\"\\?#"  # all but "/", "%" and "~", which are reserved
_PARTITION_CHARACTERS = 180
_NAME_CHARACTERS = 600
_HEAD_CHARACTERS = 100  # readable prefix of a name that is too long; its digest follows


class Stash(Protocol):
    """The interface from which a scope is read."""

    def get(self, key: str, default: Any = None, /) -> Any: ...


class TurnLike(Protocol):
    """The attributes of a TurnContext that storage needs."""

    @property
    def id(self) -> str: ...
    @property
    def stash(self) -> Stash: ...


@dataclass(frozen=True, slots=True)
class TurnScope:
    """``tenant`` owns all data, and tenants share nothing; ``thread`` is one of its conversations.

    ``agent`` separates memories and standing instructions if several agents serve one tenant.
    """

    tenant: str
    thread: str
    agent: str = ""

    def __post_init__(self) -> None:
        for name in ("tenant", "thread"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise TurnStorageScopeMissing(f"the {name} of a scope must be a non-empty str, not {value!r}")
        if not isinstance(self.agent, str):
            raise TurnStorageScopeMissing(f"the agent of a scope must be a str, not {self.agent!r}")

    def __deepcopy__(self, _memo: object) -> TurnScope:
        return self  # a stash copies its values at every read


ScopeOf = Callable[[Any], TurnScope]
Reach = Literal["thread", "agent", "tenant"]  # level at which records are shared


def scope_in_stash(ctx: TurnLike) -> TurnScope:
    """Return the scope in the stash: a Scope, or a dict with tenant, thread and optionally agent."""
    return as_scope(ctx.stash.get("scope"))


def as_scope(found: object) -> TurnScope:
    if isinstance(found, TurnScope):
        return found
    if isinstance(found, Mapping) and {"tenant", "thread"} <= set(found) <= {"tenant", "thread", "agent"}:
        return TurnScope(**found)
    if found is None:
        raise TurnStorageScopeMissing
    raise TurnStorageScopeMissing(
        f"a scope must be a Scope, or a dict with tenant, thread and optionally agent, not {type(found).__name__}"
    )


def partition_of(tenant: str) -> str:
    """Return the partition of this tenant."""
    return PARTITIONS + shortened(_escaped(tenant), _PARTITION_CHARACTERS, head=_HEAD_CHARACTERS)


def tenant_scope(kernel: Kernel, tenant: str) -> TenantScope:
    """Return the kernel scope of this tenant."""
    return kernel.scoped(partition_of(tenant))


def owner_of(scope: TurnScope, reach: Reach) -> str:
    """Return the owner of a record as a name within the tenant: ``thread/…``, ``agent/…`` or ``tenant``."""
    if reach == "thread":
        return name("thread", scope.thread)
    return name("agent", scope.agent) if reach == "agent" else "tenant"


def owner_in(key: str) -> str:
    """Return the owner of the record with this key; see `under`."""
    kind, _, rest = key.partition("/")
    return kind if kind == "tenant" else f"{kind}/{rest.partition('/')[0]}"


def name(*parts: str) -> str:
    """Return a unique name for these parts, which may contain any characters."""
    return shortened("/".join(map(_escaped, parts)), _NAME_CHARACTERS, head=_HEAD_CHARACTERS)


def under(owner: str, *parts: str) -> str:
    """Return a name that begins with this owner."""
    return f"{owner}/{name(*parts)}"


def _escaped(part: str) -> str:
    if part.isascii() and part.isprintable() and not ("/" in part or "%" in part or "~" in part):
        return part
    return escaped(part, _PLAIN)
