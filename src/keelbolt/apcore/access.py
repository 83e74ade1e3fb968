"""Authorization of module calls: the executor's ACL, and a required role for apcore's system modules.

Both are checked before a task is created and before a card is served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keelbolt.apcore.library import Context, GovernanceProjection, Identity
from keelbolt.auth.principal import ANONYMOUS, Principal

SYSTEM_ROLES = ("operator:all",)


def is_system(module_id: str) -> bool:
    """Return whether this is one of apcore's modules that show and change the whole agent; the prefix is reserved."""
    return module_id.startswith("system.")


def identity_of(principal: Principal) -> Identity | None:
    """Return the caller as an apcore Identity, or None for an anonymous caller."""
    if principal.anonymous:
        return None
    attrs = dict(principal.claims)
    if principal.tenant:
        attrs["tenant"] = principal.tenant
    return Identity(principal.owner, principal.type or "user", tuple(sorted(principal.roles)), attrs)


class AccessPolicy:
    """Authorization rules of one executor: its current ACL, and the roles that system modules require."""

    def __init__(self, executor: Any, *, system_roles: Iterable[str] = SYSTEM_ROLES) -> None:
        self._executor = executor
        self._system_roles = frozenset(system_roles)

    def has_role(self, principal: Principal, module_id: str) -> bool:
        """Return whether the caller has the role that the module requires; only system modules require one."""
        return not is_system(module_id) or (not principal.anonymous and bool(principal.roles & self._system_roles))

    @property
    def acl(self) -> Any:
        """The ACL of the pipeline's step, or the executor's; None allows every call."""
        steps = getattr(getattr(self._executor, "current_strategy", None), "steps", ())
        for step in steps:
            if (found := getattr(step, "acl", None)) is not None:
                return found
        return getattr(self._executor, "_acl", None)  # apcore has no public attribute for it

    @property
    def rewrites_input(self) -> bool:
        """Whether a middleware may change an input before apcore validates it; apcore's own only read it."""
        middlewares = getattr(self._executor, "middlewares", ())
        return any(not type(one).__module__.startswith("apcore.observability") for one in middlewares)

    def public(self, module_id: str) -> bool:
        """Return whether anonymous callers may call the module."""
        if is_system(module_id):
            return False
        acl = self.acl
        if acl is None:
            return True
        context = Context.create(identity=identity_of(ANONYMOUS))
        if hasattr(acl, "check_access"):
            return bool(acl.check_access(None, module_id, context).access == "allow")
        return bool(acl.check(None, module_id, context))

    async def allows(self, principal: Principal, module_id: str, inputs: Mapping[str, Any] | None = None) -> bool:
        """Return whether the caller may call the module with these inputs."""
        if not self.has_role(principal, module_id):
            return False
        acl = self.acl
        if acl is None:
            return True
        context = Context.create(identity=identity_of(principal))
        if hasattr(acl, "async_check_access"):
            projection = GovernanceProjection.of(inputs or {})
            decision = await acl.async_check_access(None, module_id, context, projection=projection)
            return bool(decision.access == "allow")
        if hasattr(acl, "async_check"):
            return bool(await acl.async_check(None, module_id, context))
        return bool(acl.check(None, module_id, context))
