"""Approvals: the stored state of a pending approval, how the task resumes, and the approval handlers.

A call whose approval is pending ends its turn as ``input_required``. The agent's message in the task history holds all
that is needed to resume: the skill, the ids of the messages with the input, a digest of that input, and the approval
id. Any process can therefore resume the task after a restart, with exactly the approved input.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json, to_jsonable_python

from keelbolt.apcore.access import is_system
from keelbolt.apcore.errors_map import sanitized
from keelbolt.apcore.inputs import Input
from keelbolt.apcore.library import ApprovalPendingError, ApprovalRequest, ApprovalResult, BuiltinApprovalGate
from keelbolt.protocol.types import Message, Role
from keelbolt.tasks.threads import in_thread

logger = logging.getLogger("keelbolt.apcore")

APPROVAL = "approval"
ID_CHARACTERS = 32  # of approval ids that this module creates
HOW = "answer 'approved' or 'denied'"
OWNER = "the agent's owner must approve calls of system modules, and the caller can't"
NO_HANDLER = "this skill needs an approval, but this agent has no approval handler"

APPROVING = frozenset({"approved", "approve", "yes", "y", "ok", "allow", "allowed", "confirm", "confirmed"})
DENYING = frozenset({"denied", "deny", "no", "n", "rejected", "reject", "refused", "refuse", "disallow"})


@dataclass(frozen=True, slots=True)
class Pending:
    """An approval that a task waits for. ``messages`` are the ids of the messages that held the input, in order.

    ``module_id`` is the module to approve: the skill, or a module that it calls. ``approved`` are the approvals
    already given for this call. ``by_module``: the module asked, not the approval gate, so the answer is input;
    ``token`` is then the approval that the gate already has for the call.
    """

    skill_id: str
    messages: tuple[str, ...]
    turn: int
    digest: str
    approval_id: str | None = None
    module_id: str | None = None
    approved: tuple[str, ...] = ()
    by_module: bool = False
    token: str | None = None

    def json(self, reason: str | None = None, preview: Mapping[str, Any] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {
            "skillId": self.skill_id,
            "messages": list(self.messages),
            "turn": self.turn,
            "inputDigest": self.digest,
        }
        found |= {"approvalId": self.approval_id} if self.approval_id else {}
        found |= {"moduleId": self.module_id} if self.module_id else {}
        found |= {"approved": list(self.approved)} if self.approved else {}
        found |= {"byModule": True} if self.by_module else {}
        found |= {"token": self.token} if self.token else {}
        found |= {"reason": reason} if reason else {}
        found |= {"preview": preview} if preview else {}
        return {APPROVAL: found}

    def question(self, reason: str | None = None, preview: Mapping[str, Any] | None = None) -> str:
        """Return the message to the user; ``preview`` is the predicted effect of the call."""
        text = f"Approval required for {self.skill_id}"
        if self.module_id not in (None, self.skill_id):
            text += f", which calls {self.module_id}"
        if self.approval_id:
            text += f" (approval id {self.approval_id})"
        text += f": {reason}" if reason else ""
        stop = "" if text.endswith((".", "?", "!")) else "."
        wanted = "with the answer" if self.by_module else "once it is decided"
        return f"{text}{stop}{_predicted(preview or {})} Send a message to this task {wanted}."


def _predicted(preview: Mapping[str, Any]) -> str:
    """Return the predicted changes and warnings as sentences."""
    found = ""
    for title, lines in (
        ("Predicted changes", [change["summary"] for change in preview.get("changes", ())]),
        ("Warnings", preview.get("warnings", ())),
    ):
        if lines:
            found += f" {title}: {'; '.join(line.rstrip('.') for line in lines)}."
    return found


def pending_in(parts: Iterable[Any]) -> Pending | None:
    """Return the approval that an agent message asks for, or None. Parts may be JSON."""
    for part in parts:
        data = part.get("data") if isinstance(part, Mapping) else part.data
        found = data.get(APPROVAL) if isinstance(data, Mapping) else None
        if isinstance(found, Mapping):
            return Pending(
                found["skillId"],
                tuple(found["messages"]),
                found["turn"],
                found["inputDigest"],
                found.get("approvalId"),
                found.get("moduleId"),
                tuple(found.get("approved", ())),
                found.get("byModule", False),
                found.get("token"),
            )
    return None


def pending_before(history: Sequence[Message], turn: int) -> Pending | None:
    """Return the approval that the previous turn ended with, or None. ``history`` are the messages before the turn.

    Only its last message is read. Earlier ones may be questions of other agents, which choose their contents.
    """
    if not history or history[-1].role is not Role.agent:
        return None
    found = pending_in(history[-1].parts)
    return found if found is not None and found.turn == turn - 1 else None


def digest_of(inputs: Any) -> str:
    """Return the SHA-256 digest that identifies an input."""
    text = json.dumps(
        inputs, sort_keys=True, default=lambda value: value.hex() if isinstance(value, bytes) else repr(value)
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------------------------------------------------- fail closed


SERVED = "_keelbolt.refuses_unapproved"  # key in a Context's data
refuses_var: ContextVar[bool] = ContextVar("apcore_refuses_unapproved", default=False)
"""Whether the running task belongs to an agent that refuses calls without an approval."""


class RejectingApprovals:
    """Approval handler for an executor that has none: rejects calls of tasks that need an approval.

    Several agents may share the executor with different settings; each call follows the setting of its own agent.
    Calls outside of tasks are approved, as in apcore without a handler.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.servers = 0

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResult:
        data = getattr(request.context, "data", None) or {}
        if data.get(SERVED, refuses_var.get()) or self._executor.governance_state().policy_strict:
            return ApprovalResult(status="rejected", reason=NO_HANDLER)
        return ApprovalResult(status="approved")

    async def check_approval(self, approval_id: str) -> ApprovalResult:
        del approval_id
        return ApprovalResult(status="rejected", reason=NO_HANDLER)


class ApprovalGuard:
    """Installs `RejectingApprovals` in an executor without an approval handler; apcore alone would run such calls.

    ``refuses`` is False if the executor has no approval gate; the caller of the executor must then refuse.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._installed: RejectingApprovals | None = None
        state = getattr(executor, "governance_state", None)
        governance = state() if callable(state) else None
        self.refuses = governance is not None and bool(governance.builtin_approval_gate_wired)
        if not self.refuses:
            return
        found = self._handler()
        if found is None:
            logger.info("the executor has no approval handler: skills that need an approval are refused")
            executor.set_approval_handler(found := RejectingApprovals(executor))
        if isinstance(found, RejectingApprovals):
            self._installed = found
            found.servers += 1

    def close(self) -> None:
        """Restore the executor's handler when its last agent closes."""
        if self._installed is not None:
            self._installed.servers -= 1
            if self._installed.servers == 0 and self._handler() is self._installed:
                self._executor.set_approval_handler(None)
            self._installed = None

    def _handler(self) -> Any:
        gates = [step for step in self._executor.current_strategy.steps if isinstance(step, BuiltinApprovalGate)]
        return next((gate.handler for gate in gates if gate.handler is not None), None)


# ------------------------------------------------------------------------------------------------ the caller decides


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The user's answer to an approval: True, False, or None if unclear; ``before`` are the earlier approvals."""

    approval_id: str
    approved: bool | None
    by: str = ""
    before: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """All approvals that this call has."""
        return (*self.before, self.approval_id) if self.approved else self.before


answer_var: ContextVar[ApprovalAnswer | None] = ContextVar("apcore_approval_answer", default=None)
"""The user's answer to the approval that the running task waited for."""


def read_answer(message: Message) -> bool | None:
    """Return whether a message approves, by {"approved": true} or one of a few words; None if it does neither."""
    for part in message.parts:
        if isinstance(part.data, Mapping) and isinstance(part.data.get("approved"), bool):
            return bool(part.data["approved"])
    word = message.text.strip().strip(".!").lower()
    if word in APPROVING:
        return True
    return False if word in DENYING else None


class CallerApproves:
    """An approval handler that asks the caller: an answer of "approved" or "denied" decides.

    Executor(registry, approval_handler=CallerApproves())

    It refuses calls of apcore's system modules: they change the agent for all callers, so its owner must approve them,
    with another handler.
    """

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResult:
        """Return the caller's decision. A digest of the task, the module and its arguments identifies the call.

        A nested module's approval is requested again when the outer module is called again with its approval.
        """
        if is_system(request.module_id):
            return ApprovalResult(status="rejected", reason=OWNER)
        data = (getattr(request.context, "data", None) or {}).get("a2a") or {}
        approval_id = digest_of([data.get("taskId"), request.module_id, request.arguments])[:ID_CHARACTERS]
        description = (request.description or "").rstrip(".")
        return self._decided(approval_id, f"{description}; {HOW}" if description else HOW)

    async def check_approval(self, approval_id: str) -> ApprovalResult:
        return self._decided(approval_id, HOW)

    def _decided(self, approval_id: str, reason: str | None) -> ApprovalResult:
        answer = answer_var.get()
        if answer is not None and approval_id in answer.given:
            return ApprovalResult(status="approved", approval_id=approval_id, approved_by=answer.by or None)
        if answer is not None and answer.approval_id == approval_id and answer.approved is False:
            return ApprovalResult(status="rejected", approval_id=approval_id, reason="denied by the caller")
        return ApprovalResult(status="pending", approval_id=approval_id, reason=reason)


def reason_of(error: ApprovalPendingError) -> str | None:
    """Return the handler's reason for the approval, or None."""
    reason = getattr(error.result, "reason", None)
    return reason if isinstance(reason, str) and reason else None


# ------------------------------------------------------------------------------------------------------------- previews


PREVIEW_SECONDS = 5.0
MAX_CHANGES = 20
MAX_VALUE_BYTES = 2000  # of each before, after and custom value of a change
_RAISED = ("preflight() raised", "preview() raised")


async def preview_of(executor: Any, module_id: str, inputs: Input, context: Any) -> dict[str, Any] | None:
    """Return the prediction of ``executor.validate()``: {"changes": […], "warnings": […]}; None if it predicts
    nothing.

    A preview is optional. If it fails or takes too long, this is logged, and the approval is requested without it.
    """
    validate = getattr(executor, "validate", None)
    if not callable(validate):
        return None
    try:
        async with asyncio.timeout(PREVIEW_SECONDS):
            found = await in_thread(asyncio.run, _validated(validate, module_id, inputs, context))
        changes = [_change(change) for change in found.predicted_changes[:MAX_CHANGES]]
        checks = [check for check in found.checks if check.warnings]
    except Exception as error:  # noqa: BLE001 - a module may raise anything
        logger.warning("module %s: the preview for its approval failed: %s: %s", module_id, type(error).__name__, error)
        return None
    warnings: list[str] = []
    for warning in [str(each) for check in checks for each in check.warnings]:
        if warning.startswith(_RAISED):  # an exception's text belongs in the log only
            logger.warning("module %s: the preview for its approval failed: %s", module_id, warning)
        else:
            warnings.append(sanitized(warning))
    preview = {"changes": changes, "warnings": warnings[:MAX_CHANGES]}
    return {name: value for name, value in preview.items() if value} or None


async def _validated(validate: Callable[..., Any], *given: Any) -> Any:
    """Validate within a running loop: apcore then closes the loop that it creates. Otherwise it leaves one open."""
    return validate(*given)


def _change(change: Any) -> dict[str, Any]:
    """Return a predicted change as JSON, without values that are too large to show."""
    plain = change.model_dump(exclude_none=True)
    found = {name: sanitized(str(plain.pop(name))) for name in ("action", "target", "summary")}
    for name, value in plain.items():
        shown = to_jsonable_python(value, fallback=str, inf_nan_mode="strings")
        found[name] = shown if len(to_json(shown)) <= MAX_VALUE_BYTES else "too large to show"
    return found
