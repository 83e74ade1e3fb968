"""Admission of messages: selects the skill, checks the caller's permission, and validates the input."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from keelbolt.apcore.access import AccessPolicy, is_system
from keelbolt.apcore.approvals import pending_in
from keelbolt.apcore.catalog import Module, SkillCatalog
from keelbolt.apcore.errors_map import loggable
from keelbolt.apcore.inputs import check_input, parts_to_input
from keelbolt.auth.principal import Principal
from keelbolt.errors import SkillInputError, SkillNotFoundError, SkillRequiredError
from keelbolt.protocol.card import SkillConfig
from keelbolt.protocol.requests import SendMessageRequest
from keelbolt.protocol.types import Message, TaskState
from keelbolt.server.admission import Admitted
from keelbolt.server.caller import Caller
from keelbolt.tasks.manager import TaskManager

logger = logging.getLogger("keelbolt.apcore")

SKILL = "skillId"
_STRANGER = Module("stranger", SkillConfig(id="stranger", name="", description=""), None, {})


class SkillAdmission:
    """Admits messages to an agent whose skills are modules.

    A skill that the caller may not call gets the same error as one that does not exist. Input errors are raised only
    after the permission check, so that they do not reveal the skill either.
    """

    def __init__(self, catalog: SkillCatalog, access: AccessPolicy, *, default_skill: str | None = None) -> None:
        self._catalog = catalog
        self._access = access
        self._default = default_skill
        if default_skill is not None and catalog.get(default_skill) is None:
            logger.warning("default skill %s does not exist (yet): messages must name their skill", default_skill)

    @property
    def rewrites_input(self) -> bool:
        """Whether only apcore can validate an input, because a middleware may change it first."""
        return self._access.rewrites_input

    async def admit(self, request: SendMessageRequest, caller: Caller, tasks: TaskManager) -> Admitted:
        message = request.message
        chosen = chosen_skill(message, request.metadata)
        principal = caller.principal
        if message.task_id is not None:
            return await self._go_on(message, message.task_id, chosen, principal, tasks)
        if message.context_id is not None:
            waiting = await tasks.waiting(message.context_id, principal)
            if waiting is not None and await self._answers(waiting, chosen, principal, tasks):
                return Admitted(waiting)
        module = await self._call(message, chosen, self.assumed(), principal)
        return Admitted(metadata={SKILL: module.id})

    def assumed(self) -> str | None:
        """Return the skill for a message that names none: the declared default, or the only skill."""
        if self._default is not None:
            return self._default
        modules = [module_id for module_id in self._catalog.modules if not is_system(module_id)]
        return modules[0] if len(modules) == 1 else None

    async def _go_on(
        self, message: Message, task_id: str, chosen: str | None, principal: Principal, tasks: TaskManager
    ) -> Admitted:
        """Admit a message to an existing task: an answer, or a further call while the task runs."""
        task = await tasks.load(task_id, principal)
        if task.view.state in (TaskState.submitted, TaskState.working):
            await self._call(message, chosen, task.view.metadata.get(SKILL) or self.assumed(), principal)
        return Admitted()

    async def _answers(self, task_id: str, chosen: str | None, principal: Principal, tasks: TaskManager) -> bool:
        """Return whether a message in a context answers its waiting task instead of calling another skill."""
        if chosen is None:
            return True
        task = await tasks.load(task_id, principal)
        said = from_json(task.view.status).get("message") or {}
        pending = pending_in(said.get("parts", ()))
        return chosen == (pending.skill_id if pending is not None else task.view.metadata.get(SKILL))

    async def _call(self, message: Message, chosen: str | None, assumed: str | None, principal: Principal) -> Module:
        skill_id = chosen or assumed
        if skill_id is None:
            raise SkillRequiredError
        known = self._catalog.get(skill_id)
        module = known or _STRANGER  # the same checks run for an unknown skill, so that timing does not reveal it
        inputs: dict[str, Any] = {}
        wrong: SkillInputError | None = None
        try:
            inputs = parts_to_input(message.parts, module)
        except SkillInputError as error:
            wrong = error
        allowed = await self._access.allows(principal, skill_id, inputs)
        if known is None or not allowed:
            why = "does not exist" if known is None else "is denied by the ACL"
            logger.warning("skill %s refused for %s: it %s", loggable(skill_id), loggable(principal.owner) or "?", why)
            if chosen is None:  # the caller did not name the skill, so the error does not either
                raise SkillRequiredError
            raise SkillNotFoundError(skill_id)
        if wrong is not None:
            raise wrong
        if not self.rewrites_input:
            check_input(inputs, module)
        return module


def chosen_skill(message: Message, metadata: Mapping[str, Any] | None) -> str | None:
    """Return the skill that the message's or its request's metadata names, or None. Raise SkillInputError."""
    for source in (message.metadata, metadata):
        found = (source or {}).get(SKILL)
        if found is not None:
            if not isinstance(found, str) or not found:
                raise SkillInputError("Invalid input: metadata.skillId must be the id of a skill")
            return found
    return None
