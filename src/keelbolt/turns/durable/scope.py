"""Whose a turn is: its tenant, its thread and its agent; and the names under which the kernel keeps what is theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from keelbolt.errors import TurnStorageScopeMissing
from keelbolt.names import escaped, shortened
from keelbolt.storage import Kernel
from keelbolt.storage import Scope as TenantScope

PARTITIONS = "~turns/"  # before a tenant's name: no principal's partition begins so
_PLAIN = "!$&'()*+,-.:;=@_ |<>[]{}^`\"\\?#"  # all but "/", "%" and "~", which have a meaning
_PARTITION_CHARACTERS = 180
_NAME_CHARACTERS = 600
_HEAD_CHARACTERS = 100  # of a name that is too long, kept before its digest so that people recognise it


class Stash(Protocol):
    """What a scope is read from."""

    def get(self, key: str, default: Any = None, /) -> Any: ...


class Turn(Protocol):
    """What storage needs to know of a TurnContext."""

    @property
    def id(self) -> str: ...
    @property
    def stash(self) -> Stash: ...


@dataclass(frozen=True, slots=True)
class Scope:
    """``tenant`` owns everything and nothing is shared between two of them; ``thread`` is one conversation of it.

    ``agent`` divides memories and standing instructions, where several agents serve one tenant.
    """

    tenant: str
    thread: str
    agent: str = ""

    def __post_init__(self) -> None:
        for name in ("tenant", "thread"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise TurnStorageScopeMissing(f"the {name} of a scope is a non-empty str, not {value!r}")
        if not isinstance(self.agent, str):
            raise TurnStorageScopeMissing(f"the agent of a scope is a str, not {self.agent!r}")

    def __deepcopy__(self, _memo: object) -> Scope:
        return self  # a stash copies what it hands out, at every call


ScopeOf = Callable[[Any], Scope]
Reach = Literal["thread", "agent", "tenant"]  # by whom something is shared


def scope_in_stash(ctx: Turn) -> Scope:
    """The scope that the stash holds: a Scope, or a dict with tenant, thread and perhaps agent."""
    return as_scope(ctx.stash.get("scope"))


def as_scope(found: object) -> Scope:
    if isinstance(found, Scope):
        return found
    if isinstance(found, Mapping) and {"tenant", "thread"} <= set(found) <= {"tenant", "thread", "agent"}:
        return Scope(**found)
    if found is None:
        raise TurnStorageScopeMissing
    raise TurnStorageScopeMissing(
        f"a scope is a Scope, or a dict with tenant, thread and perhaps agent, not {type(found).__name__}"
    )


def partition_of(tenant: str) -> str:
    """The partition of everything that this tenant has."""
    return PARTITIONS + shortened(_escaped(tenant), _PARTITION_CHARACTERS, head=_HEAD_CHARACTERS)


def tenant_scope(kernel: Kernel, tenant: str) -> TenantScope:
    """The kernel from inside this tenant."""
    return kernel.scoped(partition_of(tenant))


def owner_of(scope: Scope, reach: Reach) -> str:
    """Who shares it, as a name within the tenant: ``thread/…``, ``agent/…`` or ``tenant``."""
    if reach == "thread":
        return name("thread", scope.thread)
    return name("agent", scope.agent) if reach == "agent" else "tenant"


def owner_in(key: str) -> str:
    """The owner of the record with this key; see `under`."""
    kind, _, rest = key.partition("/")
    return kind if kind == "tenant" else f"{kind}/{rest.partition('/')[0]}"


def name(*parts: str) -> str:
    """One name for these: different ones for different parts, whatever characters they hold."""
    return shortened("/".join(map(_escaped, parts)), _NAME_CHARACTERS, head=_HEAD_CHARACTERS)


def under(owner: str, *parts: str) -> str:
    """The name of something that belongs to this owner."""
    return f"{owner}/{name(*parts)}"


def _escaped(part: str) -> str:
    if part.isascii() and part.isprintable() and not ("/" in part or "%" in part or "~" in part):
        return part
    return escaped(part, _PLAIN)
