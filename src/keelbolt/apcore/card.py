"""The agent card of a catalog: what everybody sees, and what one caller may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keelbolt.apcore.access import Access, is_system
from keelbolt.apcore.catalog import Catalog, Module
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, ExtensionConfig
from keelbolt.server.caller import Caller

EXTENSION = "urn:keelbolt:a2a:apcore:v1"
"""What apcore knows of each skill: annotations, schemas, examples. Under ``params.skills``, by the id of the skill."""


class AgentCardBuilder:
    """Writes the cards of an agent whose skills are modules.

    With ``authenticated`` (callers can say who they are, so that there is an extended card) the public card leaves out
    what the ACL keeps from anonymous callers, and what needs an approval; without it, only the former.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        name: str,
        version: str,
        description: str | None = None,
        access: Access | None = None,
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
        """The card for everybody."""
        return self._card([module for module in self.catalog.modules.values() if self.is_public(module)])

    async def extended(self, caller: Caller) -> AgentCardConfig:
        """The card for this caller: everything that it may call."""
        modules = self.catalog.modules.values()
        if self._access is None:
            return self._card([module for module in modules if not is_system(module.id)])
        return self._card([module for module in modules if await self._access.allows(caller.principal, module.id)])

    def is_public(self, module: Module) -> bool:
        """Whether everybody is told of this module."""
        if is_system(module.id) or (self._authenticated and module.requires_approval):
            return False
        return self._access is None or self._access.public(module.id)

    def _card(self, modules: Iterable[Module]) -> AgentCardConfig:
        skills = [module.skill for module in modules]
        told: dict[str, Any] = {skill.id: (skill.extensions or {}).get("apcore", {}) for skill in skills}
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
                ExtensionConfig(uri=EXTENSION, description="Skills are apcore modules.", params={"skills": told}),
            ),
            input_modes=("application/json",),
            output_modes=("application/json",),
        )
