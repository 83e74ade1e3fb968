"""The module call of a turn: the admission of its message, its input, and calls that must not be made twice."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from keelbolt.apcore.access import AccessPolicy, is_system
from keelbolt.apcore.approvals import Pending, digest_of, pending_before, pending_in
from keelbolt.apcore.catalog import Module, SkillCatalog
from keelbolt.apcore.errors_map import ErrorMapper, loggable
from keelbolt.apcore.inputs import Input, check_input, parts_to_input, with_answer
from keelbolt.apcore.library import ApprovalPendingError, ExecutionCancelledError
from keelbolt.auth.principal import Principal
from keelbolt.errors import (
    InvalidAgentResponseError,
    KeelboltError,
    ProtocolError,
    SkillInputError,
    SkillNotFoundError,
    SkillRequiredError,
)
from keelbolt.protocol.card import SkillConfig
from keelbolt.protocol.requests import SendMessageRequest
from keelbolt.protocol.types import Message, Part, TaskState, encode
from keelbolt.server.admission import Admitted
from keelbolt.server.caller import Caller
from keelbolt.tasks.context import TaskContext
from keelbolt.tasks.manager import TaskManager

logger = logging.getLogger("keelbolt.apcore")


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A module and its input. ``pending`` is the approval that the call waited for.

    ``token`` is the approval that the gate checks; ``wrong`` is set when an answer does not match the module's input
    schema. ``early``: the message was sent before the approval was requested, so it is no answer.
    """

    module: Module
    inputs: Input
    messages: tuple[str, ...]
    pending: Pending | None = None
    token: str | None = None
    wrong: SkillInputError | None = None
    early: bool = False


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
        if ctx.sent_while_working:
            return ModuleCall(module, {}, pending.messages, pending, early=True)
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


# ------------------------------------------------------------------------------------------------------------ admission


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
        relayed = task.record.turn.asked is not None  # then another agent may have chosen the parts
        pending = None if relayed else pending_in(said.get("parts", ()))
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


# ------------------------------------------------------------------------------------------------------ calls made once


FAILED = "_keelbolt.failed"
_CONTENT = frozenset({"text", "raw", "url", "data"})


class RecordedFailure(Exception):
    """The call failed in a process that died before it reported the failure; ``data`` is the error for the caller."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data.get("message", ""))
        self.data = data


async def call_once(
    ctx: TaskContext,
    module: Module,
    call: Callable[[], Awaitable[list[Part]]],
    parts_of: Callable[[Any], Awaitable[list[Part]]],
    errors: ErrorMapper,
) -> list[Part]:
    """Make the call unless it was already made. If the process dies meanwhile, the user is asked for the outcome."""
    failure: Exception | None = None

    async def recorded() -> Any:
        nonlocal failure
        try:
            return [from_json(encode(part)) for part in await call()]
        except (ApprovalPendingError, ExecutionCancelledError):
            raise  # nothing was done yet, or the task is canceled
        except Exception as error:
            if isinstance(error, KeelboltError) and not isinstance(error, ProtocolError | InvalidAgentResponseError):
                raise  # it concerns the task, not the module
            failure = error
            return {FAILED: errors.to_jsonrpc_error(error, module)}

    found = await ctx.step(f"call {module.id}", recorded)
    if failure is not None:
        raise failure
    if isinstance(found, Mapping) and isinstance(data := found.get(FAILED), dict):
        raise RecordedFailure(data)
    if isinstance(found, list) and all(isinstance(part, dict) and part.keys() & _CONTENT for part in found):
        return [Part.model_validate(part) for part in found]
    return await parts_of(found)  # the output as the user reported it
