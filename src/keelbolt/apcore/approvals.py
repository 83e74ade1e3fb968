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

from keelbolt.apcore.access import is_system
from keelbolt.apcore.library import ApprovalPendingError, ApprovalRequest, ApprovalResult, BuiltinApprovalGate
from keelbolt.protocol.types import Message, Role

logger = logging.getLogger("keelbolt.apcore")

APPROVAL = "approval"
ID_CHARACTERS = 32  # of an approval that we ask for ourselves
HOW = "answer 'approved' or 'denied'"
OWNER = "the agent's owner must approve calls of system modules, and the caller can't"
NOBODY = "this skill needs an approval, and this agent has nobody who could give it"

APPROVING = frozenset({"approved", "approve", "yes", "y", "ok", "allow", "allowed", "confirm", "confirmed"})
DENYING = frozenset({"denied", "deny", "no", "n", "rejected", "reject", "refused", "refuse", "disallow"})


@dataclass(frozen=True, slots=True)
class Pending:
    """An approval that a task waits for. ``messages`` are the ids of those that held the input, in their order.

    ``module_id`` is what the approval is for: the skill, or a module that it calls. ``approved`` are the approvals that
    this call was given before. ``by_module``: a module asked, not the approval gate, so that the answer is input.
    ``token`` is then the approval that the gate had for the call.
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
        """The message to the user; ``preview`` is what the call would do."""
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
    """The predicted changes and warnings, as sentences."""
    found = ""
    for title, lines in (
        ("Predicted changes", [change["summary"] for change in preview.get("changes", ())]),
        ("Warnings", preview.get("warnings", ())),
    ):
        if lines:
            found += f" {title}: {'; '.join(line.rstrip('.') for line in lines)}."
    return found


def pending_in(parts: Iterable[Any]) -> Pending | None:
    """The approval that a message of the agent asks for; parts as JSON."""
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
    """The approval that the turn before this one ended with."""
    for message in reversed(history):
        if message.role is Role.agent:
            found = pending_in(message.parts)
            if found is not None and found.turn == turn - 1:
                return found
    return None


def digest_of(inputs: Any) -> str:
    """What tells an input from every other."""
    text = json.dumps(
        inputs, sort_keys=True, default=lambda value: value.hex() if isinstance(value, bytes) else repr(value)
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------------------------------------------------- fail closed


SERVED = "_keelbolt.refuses_unapproved"  # where a Context says so
refuses_var: ContextVar[bool] = ContextVar("apcore_refuses_unapproved", default=False)
"""Whether the task that runs now is of an agent that does nothing without an approval."""


class NobodyApproves:
    """Stands where an executor has no approval handler: what a task needs an approval for is not done.

    Agents may share the executor, and one of them may allow what another refuses: each call is treated as its own agent
    has it. Calls that are made for no task run, as apcore has it where there is no handler.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.servers = 0

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResult:
        told = getattr(request.context, "data", None) or {}
        if told.get(SERVED, refuses_var.get()) or self._executor.governance_state().policy_strict:
            return ApprovalResult(status="rejected", reason=NOBODY)
        return ApprovalResult(status="approved")

    async def check_approval(self, approval_id: str) -> ApprovalResult:
        del approval_id
        return ApprovalResult(status="rejected", reason=NOBODY)


class Gate:
    """What an executor does about approvals that nobody could give: apcore alone would just go on.

    ``refuses`` False: it has no gate, so that whoever calls it must refuse.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._nobody: NobodyApproves | None = None
        state = getattr(executor, "governance_state", None)
        governance = state() if callable(state) else None
        self.refuses = governance is not None and bool(governance.builtin_approval_gate_wired)
        if not self.refuses:
            return
        found = self._handler()
        if found is None:
            logger.info("the executor has no approval handler: skills that need an approval are refused")
            executor.set_approval_handler(found := NobodyApproves(executor))
        if isinstance(found, NobodyApproves):
            self._nobody = found
            found.servers += 1

    def close(self) -> None:
        """Leave the executor as it was, once the last agent of it is gone."""
        if self._nobody is not None:
            self._nobody.servers -= 1
            if self._nobody.servers == 0 and self._handler() is self._nobody:
                self._executor.set_approval_handler(None)
            self._nobody = None

    def _handler(self) -> Any:
        gates = [step for step in self._executor.current_strategy.steps if isinstance(step, BuiltinApprovalGate)]
        return next((gate.handler for gate in gates if gate.handler is not None), None)


# ------------------------------------------------------------------------------------------------ the caller decides


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user said about an approval: True, False, or None for something else; and what was approved before."""

    approval_id: str
    approved: bool | None
    by: str = ""
    before: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """All approvals that this call has."""
        return (*self.before, self.approval_id) if self.approved else self.before


answer_var: ContextVar[Answer | None] = ContextVar("apcore_approval_answer", default=None)
"""What was said to the task that runs now, about the approval that it waited for."""


def read_answer(message: Message) -> bool | None:
    """Whether a message approves: {"approved": true}, or one of a few words."""
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
        """A call is known by its module and its arguments: a module that another one calls is asked for again, when
        that one is called again with the approval.
        """
        if is_system(request.module_id):
            return ApprovalResult(status="rejected", reason=OWNER)
        told = (getattr(request.context, "data", None) or {}).get("a2a") or {}
        approval_id = digest_of([told.get("taskId"), request.module_id, request.arguments])[:ID_CHARACTERS]
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
    """Why an approval is needed, as its handler says it."""
    reason = getattr(error.result, "reason", None)
    return reason if isinstance(reason, str) and reason else None
