"""The agent cards of a catalog: the public card, and the extended card for one caller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keelbolt.apcore.access import AccessPolicy, is_system
from keelbolt.apcore.catalog import Module, SkillCatalog
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, ExtensionConfig
from keelbolt.server.caller import Caller

EXTENSION = "urn:keelbolt:a2a:apcore:v1"
"""URI of the card extension with apcore's annotations, schemas and examples: ``params.skills``, by skill id."""


class AgentCardBuilder:
    """Builds the cards of an agent whose skills are modules.

    The public card omits skills that the ACL denies to anonymous callers. With ``authenticated`` (callers can
    authenticate, so there is an extended card) it also omits skills that require an approval.
    """

    def __init__(
        self,
        catalog: SkillCatalog,
        *,
        name: str,
        version: str,
        description: str | None = None,
        access: AccessPolicy | None = None,
        push_notifications: bool = False,
        authenticated: bool = False,
    ) -> None:
        self.catalog = catalog
        self._name = name
        self._version = version
        self._description = description
        self._access = access
        self._push = push_notifications
        self._authenticated = authenticated

    def build(self) -> AgentCardConfig:
        """Return the public card."""
        return self._card([module for module in self.catalog.modules.values() if self.is_public(module)])

    async def extended(self, caller: Caller) -> AgentCardConfig:
        """Return the card for this caller: every skill that it may call."""
        modules = self.catalog.modules.values()
        if self._access is None:
            return self._card([module for module in modules if not is_system(module.id)])
        return self._card([module for module in modules if await self._access.allows(caller.principal, module.id)])

    def is_public(self, module: Module) -> bool:
        """Return whether the public card lists this module."""
        if is_system(module.id) or (self._authenticated and module.requires_approval):
            return False
        return self._access is None or self._access.public(module.id)

    def _card(self, modules: Iterable[Module]) -> AgentCardConfig:
        skills = [module.skill for module in modules]
        declared: dict[str, Any] = {skill.id: (skill.extensions or {}).get("apcore", {}) for skill in skills}
        return AgentCardConfig(
            name=self._name,
            description=self._description or f"apcore agent with {len(skills)} skills",
            version=self._version,
            skills=skills,
            capabilities=CapabilitiesConfig(
                streaming=True,
                push_notifications=self._push,
                state_transition_history=True,
                extended_agent_card=self._authenticated,
            ),
            extensions=(
                ExtensionConfig(uri=EXTENSION, description="Skills are apcore modules.", params={"skills": declared}),
            ),
            input_modes=("application/json",),
            output_modes=("application/json",),
        )
