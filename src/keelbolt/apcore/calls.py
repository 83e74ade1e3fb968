"""What a turn calls: a module with the input that the message holds, or the call that waited for an approval."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from keelbolt.apcore.admission import SKILL, SkillAdmission, chosen_skill
from keelbolt.apcore.approvals import Pending, digest_of, pending_before
from keelbolt.apcore.catalog import Catalog, Module
from keelbolt.apcore.inputs import RESERVED, Input, parts_to_input
from keelbolt.errors import SkillNotFoundError, SkillRequiredError
from keelbolt.protocol.types import Message
from keelbolt.tasks.context import TaskContext

logger = logging.getLogger("keelbolt.apcore")


@dataclass(frozen=True, slots=True)
class Call:
    """A module, and what it is called with. ``pending`` is the approval that the call waited for."""

    module: Module
    inputs: Input
    messages: tuple[str, ...]
    pending: Pending | None = None

    @property
    def approval_id(self) -> str | None:
        return self.pending.approval_id if self.pending is not None else None


class Calls:
    """Reads calls off turns."""

    def __init__(self, catalog: Catalog, admission: SkillAdmission) -> None:
        self._catalog = catalog
        self._admission = admission

    def of(self, ctx: TaskContext) -> Call:
        """What this turn calls. Raises SkillNotFoundError, SkillRequiredError or SkillInputError."""
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
        return Call(module, parts_to_input(ctx.parts, module), (ctx.message_id,))

    def _module(self, skill_id: str) -> Module:
        module = self._catalog.get(skill_id)
        if module is None:
            raise SkillNotFoundError(skill_id)
        return module

    def _resumed(self, ctx: TaskContext, pending: Pending, known: dict[str, Message]) -> Call:
        """The call that waited: with the very input that was to be approved; without an approval's id, the answer may
        add to it.
        """
        module = self._module(pending.skill_id)
        messages = [known[message_id] for message_id in pending.messages if message_id in known]
        inputs = parts_to_input(messages[0].parts, module) if messages else {}
        for message in messages[1:]:
            inputs |= _data(message)
        if pending.approval_id is not None:
            if digest_of(inputs) != pending.digest:  # the module's schema changed: nobody approved this input
                logger.warning("task %s: module %s changed since its approval was asked for", ctx.task_id, module.id)
                return Call(module, inputs, pending.messages)
            return Call(module, inputs, pending.messages, pending)
        if more := _data(ctx.message):
            return Call(module, inputs | more, (*pending.messages, ctx.message_id), pending)
        return Call(module, inputs, pending.messages, pending)


def _data(message: Message) -> Input:
    """The JSON objects of a message, put together."""
    found: Input = {}
    for part in message.parts:
        if isinstance(part.data, dict):
            found |= {key: value for key, value in part.data.items() if key != RESERVED}
    return found
