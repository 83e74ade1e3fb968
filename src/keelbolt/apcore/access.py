"""Who may call what: the executor's ACL, asked before a task exists and before a card is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keelbolt.apcore.library import Context, GovernanceProjection, Identity
from keelbolt.auth.principal import ANONYMOUS, Principal


def identity_of(principal: Principal) -> Identity | None:
    """The caller in the words of apcore; None for one that nobody vouches for."""
    if principal.anonymous:
        return None
    attrs = dict(principal.claims)
    if principal.tenant:
        attrs["tenant"] = principal.tenant
    return Identity(principal.owner, principal.type or "user", tuple(sorted(principal.roles)), attrs)


class Access:
    """The ACL of an executor, whichever it has at the time."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    @property
    def acl(self) -> Any:
        """The ACL; None: everybody may call everything. What the step of the pipeline has is what counts."""
        steps = getattr(getattr(self._executor, "current_strategy", None), "steps", ())
        for step in steps:
            if (found := getattr(step, "acl", None)) is not None:
                return found
        return getattr(self._executor, "_acl", None)  # apcore has no public name for it

    @property
    def rewrites_input(self) -> bool:
        """Whether a middleware may change an input before apcore checks it; apcore's own only look at it."""
        middlewares = getattr(self._executor, "middlewares", ())
        return any(not type(one).__module__.startswith("apcore.observability") for one in middlewares)

    def public(self, module_id: str) -> bool:
        """Whether callers that nobody vouches for may call this."""
        acl = self.acl
        if acl is None:
            return True
        context = Context.create(identity=identity_of(ANONYMOUS))
        if hasattr(acl, "check_access"):
            return bool(acl.check_access(None, module_id, context).access == "allow")
        return bool(acl.check(None, module_id, context))

    async def allows(self, principal: Principal, module_id: str, inputs: Mapping[str, Any] | None = None) -> bool:
        """Whether this caller may call this, with inputs of these kinds."""
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
