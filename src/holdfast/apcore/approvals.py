"""Approvals: what a task that waits for one says, how it goes on, and who may give it.

A call whose approval is pending ends its turn as ``input_required``. What is needed to go on stands in the message that
says so, which belongs to the task's history: the skill, the message that held the input, a digest of that input, and
the id of the approval. So the task goes on in any process, after any restart, with exactly the input that was approved.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from holdfast.apcore.library import ApprovalPendingError, ApprovalRequest, ApprovalResult
from holdfast.protocol.types import Message, Role
from holdfast.storage import new_id

logger = logging.getLogger("holdfast.apcore")

APPROVAL = "approval"
NOBODY = "this skill needs an approval, and this agent has nobody who could give it"

_APPROVING = frozenset({"approved", "approve", "yes", "y", "ok", "allow", "allowed", "confirm", "confirmed"})
_DENYING = frozenset({"denied", "deny", "no", "n", "rejected", "reject", "refused", "refuse", "disallow"})


@dataclass(frozen=True, slots=True)
class Pending:
    """An approval that a task waits for. ``messages`` are the ids of those that held the input, in their order."""

    skill_id: str
    messages: tuple[str, ...]
    turn: int
    digest: str
    approval_id: str | None = None

    def json(self, reason: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {
            "skillId": self.skill_id,
            "messages": list(self.messages),
            "turn": self.turn,
            "inputDigest": self.digest,
        }
        found |= {"approvalId": self.approval_id} if self.approval_id else {}
        found |= {"reason": reason} if reason else {}
        return {APPROVAL: found}

    def question(self, reason: str | None = None) -> str:
        """What the user is told."""
        text = f"Approval required for {self.skill_id}"
        if self.approval_id:
            text += f" (approval id {self.approval_id})"
        text += f": {reason}" if reason else ""
        return f"{text}. Send a message to this task once it is decided."


def pending_in(parts: Iterable[Any]) -> Pending | None:
    """The approval that a message of the agent asks for; parts as JSON."""
    for part in parts:
        data = part.get("data") if isinstance(part, Mapping) else part.data
        found = data.get(APPROVAL) if isinstance(data, Mapping) else None
        if isinstance(found, Mapping):
            return Pending(
                found["skillId"], tuple(found["messages"]), found["turn"], found["inputDigest"], found.get("approvalId")
            )
    return None


def pending_before(history: Sequence[Message], turn: int) -> Pending | None:
    """The approval that the turn before this one ended with."""
    for message in reversed(history):
        if message.role is Role.agent:
            found = pending_in(message.parts)
            if found is not None and found.turn == turn - 1:
                return found
    return None


def digest_of(inputs: Mapping[str, Any]) -> str:
    """What tells an input from every other."""
    text = json.dumps(inputs, sort_keys=True, default=lambda value: bytes(value).hex())
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------------------------------------------------- fail closed


class NobodyApproves:
    """An approval handler that refuses: what needs an approval is not done when nobody could give it."""

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResult:
        del request
        return ApprovalResult(status="rejected", reason=NOBODY)

    async def check_approval(self, approval_id: str) -> ApprovalResult:
        del approval_id
        return ApprovalResult(status="rejected", reason=NOBODY)


def fail_closed(executor: Any) -> bool:
    """Let the executor refuse what needs an approval, if nobody is there to give one; apcore alone would just do it.

    False: it has no gate that could, so that its caller must refuse.
    """
    state = getattr(executor, "governance_state", None)
    if not callable(state):
        return False
    governance = state()
    if not governance.builtin_approval_gate_wired:
        return False
    if not governance.approval_handler_configured and not governance.policy_strict:
        logger.info("the executor has no approval handler: skills that need an approval are refused")
        executor.set_approval_handler(NobodyApproves())
    return True


# ------------------------------------------------------------------------------------------------ the caller decides


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user said about an approval: True, False, or None for something else."""

    approval_id: str
    approved: bool | None
    by: str = ""


answer_var: ContextVar[Answer | None] = ContextVar("apcore_approval_answer", default=None)
"""What was said to the task that runs now, about the approval that it waited for."""


def read_answer(message: Message) -> bool | None:
    """Whether a message approves: {"approved": true}, or one of a few words."""
    for part in message.parts:
        if isinstance(part.data, Mapping) and isinstance(part.data.get("approved"), bool):
            return bool(part.data["approved"])
    word = message.text.strip().strip(".!").lower()
    if word in _APPROVING:
        return True
    return False if word in _DENYING else None


class CallerApproves:
    """An approval handler that asks whoever sent the message: an answer of "approved" or "denied" decides.

    Executor(registry, approval_handler=CallerApproves())
    """

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResult:
        reason = request.description or None
        return ApprovalResult(status="pending", approval_id=new_id(), reason=reason)

    async def check_approval(self, approval_id: str) -> ApprovalResult:
        answer = answer_var.get()
        if answer is None or answer.approval_id != approval_id or answer.approved is None:
            return ApprovalResult(status="pending", approval_id=approval_id, reason="answer 'approved' or 'denied'")
        if answer.approved:
            return ApprovalResult(status="approved", approval_id=approval_id, approved_by=answer.by or None)
        return ApprovalResult(status="rejected", approval_id=approval_id, reason="denied by the caller")


def reason_of(error: ApprovalPendingError) -> str | None:
    """Why an approval is needed, as its handler says it."""
    reason = getattr(error.result, "reason", None)
    return reason if isinstance(reason, str) and reason else None
