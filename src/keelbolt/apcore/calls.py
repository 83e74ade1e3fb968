"""Derives the module call of a turn: from its message, or from the call that waited for an approval."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from keelbolt.apcore.admission import SKILL, SkillAdmission, chosen_skill
from keelbolt.apcore.approvals import Pending, digest_of, pending_before
from keelbolt.apcore.catalog import Module, SkillCatalog
from keelbolt.apcore.inputs import Input, check_input, parts_to_input, with_answer
from keelbolt.errors import SkillInputError, SkillNotFoundError, SkillRequiredError
from keelbolt.protocol.types import Message
from keelbolt.tasks.context import TaskContext

logger = logging.getLogger("keelbolt.apcore")


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A module and its input. ``pending`` is the approval that the call waited for.

    ``token`` is the approval that the gate checks; ``wrong`` is set when an answer does not match the module's input
    schema.
    """

    module: Module
    inputs: Input
    messages: tuple[str, ...]
    pending: Pending | None = None
    token: str | None = None
    wrong: SkillInputError | None = None


class ModuleCallReader:
    """Derives calls from turns."""

    def __init__(self, catalog: SkillCatalog, admission: SkillAdmission) -> None:
        self._catalog = catalog
        self._admission = admission

    def of(self, ctx: TaskContext) -> ModuleCall:
        """Return the call of this turn. Raise SkillNotFoundError, SkillRequiredError or SkillInputError."""
        if ctx.turn > 1:
            history = ctx.history
            pending = pending_before(history, ctx.turn)
            if pending is not None:
                return self._resumed(ctx, pending, {message.message_id: message for message in history})
        skill_id = chosen_skill(ctx.message, ctx.request_metadata) or ctx.task_metadata.get(SKILL)
        skill_id = skill_id or self._admission.assumed()
        if skill_id is None:
            raise SkillRequiredError
        module = self._module(skill_id)
        return ModuleCall(module, parts_to_input(ctx.parts, module), (ctx.message_id,))

    def _module(self, skill_id: str) -> Module:
        module = self._catalog.get(skill_id)
        if module is None:
            raise SkillNotFoundError(skill_id)
        return module

    def _resumed(self, ctx: TaskContext, pending: Pending, known: dict[str, Message]) -> ModuleCall:
        """Return the call that waited, with the input to be approved; if a module asked, the answer extends it."""
        module = self._module(pending.skill_id)
        messages = [known[message_id] for message_id in pending.messages if message_id in known]
        inputs = parts_to_input(messages[0].parts, module) if messages else {}
        for message in messages[1:]:
            inputs = with_answer(inputs, message.parts, module)
        if pending.approval_id is not None and not pending.by_module:
            if digest_of(inputs) != pending.digest:  # the module's schema changed, so this input was never approved
                logger.warning(
                    "task %s: module %s changed after its approval was requested; the approval is not used",
                    ctx.task_id,
                    module.id,
                )
                return ModuleCall(module, inputs, pending.messages)
            return ModuleCall(module, inputs, pending.messages, pending, pending.approval_id)
        answered = with_answer(inputs, ctx.message.parts, module)
        if answered == inputs:
            token = pending.token if digest_of(inputs) == pending.digest else None
            return ModuleCall(module, inputs, pending.messages, pending, token)
        try:
            if not self._admission.rewrites_input:
                check_input(answered, module)
        except SkillInputError as error:
            return ModuleCall(module, inputs, pending.messages, pending, pending.token, error)
        return ModuleCall(module, answered, (*pending.messages, ctx.message_id), pending)
