"""Controls of tasks: validated, stored, sent for approval if the policy requires it, and then executed.

Every control is stored first. Repeats are recognised by the store's log, also in another process and after a restart.
The process that runs the task executes the control; other processes pass it on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from keelbolt.errors import CommitRefused, SteeringValidationError
from keelbolt.kernel import Put, Query, Record, Scope, Take, new_id
from keelbolt.state.codec import decode, encode
from keelbolt.state.events.steering import sanitize_steering_event, validate_steering_event
from keelbolt.state.families import CONTROLS, STEERING
from keelbolt.state.names import joined, name
from keelbolt.state.sessions.runner import SessionParts, TaskRunner
from keelbolt.state.sessions.tasks import is_over
from keelbolt.state.types.tasks import SteeringEvent, SteeringEventType, TaskStatus, UpdateType

DECISIONS = (SteeringEventType.APPROVE, SteeringEventType.REJECT)
DESTRUCTIVE = frozenset({SteeringEventType.CANCEL, SteeringEventType.REDIRECT})
APPROVED = ":approved"
MAX_CONTROLS = 1000
_STATUS = {
    SteeringEventType.PAUSE: (TaskStatus.PAUSED, "paused"),
    SteeringEventType.RESUME: (TaskStatus.RUNNING, "resumed"),
    SteeringEventType.CANCEL: (TaskStatus.CANCELLED, "cancel_requested"),
}


@dataclass(slots=True)
class ControlPolicy:
    """A destructive control that does not come from a user waits for approval."""

    require_confirmation: bool = True
    destructive_events: frozenset[SteeringEventType] | set[SteeringEventType] = DESTRUCTIVE

    def requires_confirmation(self, event: SteeringEvent) -> bool:
        """Return whether this control needs a confirmation."""
        if not self.require_confirmation or event.event_type not in self.destructive_events:
            return False
        return event.source != "user" and not event.payload.get("confirmed")


class Controls:
    """The steering of one session."""

    def __init__(self, parts: SessionParts, runner: TaskRunner, policy: ControlPolicy) -> None:
        self._parts = parts
        self._runner = runner
        self._policy = policy
        self._seen: dict[str, deque[str]] = {}
        self._pending: dict[str, SteeringEvent] = {}
        self._acting: set[asyncio.Task[bool]] = set()

    @property
    def pending(self) -> dict[str, SteeringEvent]:
        """The controls that wait for approval, by id, as a copy."""
        return dict(self._pending)

    async def steer(self, event: SteeringEvent) -> bool:
        """Validate, store and execute a control; return whether it was accepted."""
        if event.session_id != self._parts.session_id:
            return False
        event = sanitize_steering_event(event, max_payload_bytes=self._parts.limits.max_steering_payload_bytes)
        try:
            validate_steering_event(event)
        except SteeringValidationError:
            return False
        if await self._is_repeat(event):
            return False
        try:
            await self._parts.store.save_steering(event)
        except BaseException:
            self._seen[event.task_id].remove(event.event_id)  # the caller may repeat a control that was not stored
            raise
        if event.event_type in DECISIONS:
            decided = await self._decide(event)
            if decided is not None:
                return decided
        if self._policy.requires_confirmation(event):
            await self._ask(event)
            return False
        return await self.act(event)

    async def act(self, event: SteeringEvent) -> bool:
        """Execute the control here, or pass it to the process that runs the task."""
        tasks = self._parts.tasks
        if not tasks.runs_here(event.task_id):
            if await self._parts.runs.pass_on(event):
                return True
            await tasks.load(event.task_id)  # the process that ran the task has stored its end
        task = tasks.get(event.task_id)
        if task is None:
            return False
        if event.event_type == SteeringEventType.PRIORITIZE:
            return await self._prioritise(event)
        handled = False
        if event.event_type in _STATUS and not is_over(task):
            status, reason = _STATUS[SteeringEventType(event.event_type.value)]
            why = str(event.payload.get("reason") or "cancelled") if status == TaskStatus.CANCELLED else None
            if await tasks.change(event.task_id, status=status, error=why) is not None:
                handled = True
                self._parts.updates.report_status(task, reason)
            if status == TaskStatus.CANCELLED:
                self._stop(event)
                await self._cancel_children(event)
        return self._deliver(event) or handled

    def receive(self, event: SteeringEvent) -> None:
        """Start executing a control that another process passed on, unless it is a repeat."""
        if self._parts.tasks.runs_here(event.task_id) and not self._note(event):
            task = asyncio.get_running_loop().create_task(self.act(event), name="session-steered")
            self._acting.add(task)
            task.add_done_callback(self._acting.discard)

    def acting(self) -> list[asyncio.Task[bool]]:
        """Return the asyncio tasks that execute received controls."""
        return list(self._acting)

    # -------------------------------------------------------------------------------------------- repeats and approvals

    async def _is_repeat(self, event: SteeringEvent) -> bool:
        if self._note(event):
            return True
        stream, event_id = name(self._parts.session_id), name(event.event_id)
        try:
            found = await self._parts.storage.attempt(
                lambda scope: scope.seq_of(STEERING, stream, event_id), None, "steer"
            )
        except BaseException:
            self._seen[event.task_id].remove(event.event_id)
            raise
        return found is not None

    def _note(self, event: SteeringEvent) -> bool:
        limit = self._parts.limits.max_steering_events_per_task
        seen = self._seen.setdefault(event.task_id, deque(maxlen=limit or None))
        if event.event_id in seen:
            return True
        seen.append(event.event_id)
        return False

    async def _decide(self, event: SteeringEvent) -> bool | None:
        """Approve or reject a waiting patch or control; return None if none is known: then the task gets the event."""
        rejected = event.event_type == SteeringEventType.REJECT
        patch_id = event.payload.get("patch_id")
        if isinstance(patch_id, str):
            if rejected and await self._parts.context.reject(patch_id, trace_id=event.trace_id):
                return True
            if not rejected and await self._parts.context.approve(patch_id):
                return True
        token = event.payload.get("resume_token") or event.payload.get("event_id")
        if not isinstance(token, str):
            return False
        control = await self._take(token)
        if control is None:
            return None
        if rejected:
            body = f"Rejected {control.event_type.value.lower()} request."
            self._parts.updates.notify(control.task_id, "warning", "Action rejected", body, trace_id=control.trace_id)
            return False
        # The confirmed control needs its own id: the original one is in the log, so it would count as a repeat.
        confirmed = control.model_copy(
            update={
                "event_id": f"{control.event_id}{APPROVED}",
                "payload": {**control.payload, "confirmed": True},
                "source": "user",
            }
        )
        return await self.steer(confirmed)

    async def _ask(self, event: SteeringEvent) -> None:
        """Store a control and request an approval for it."""
        parts = self._parts
        fields = {"session": name(parts.session_id), "arrived": new_id()}
        write = Put(CONTROLS, joined(parts.session_id, event.event_id), encode(event.model_dump()), fields)
        await parts.storage.save("save_control", write, lives=(parts.storage.session(parts.session_id),))
        self._pending[event.event_id] = event
        content = {
            "kind": "approval_required",
            "resume_token": event.event_id,
            "prompt": f"Confirm {event.event_type.value.lower()}?",
            "options": ["approve", "reject"],
        }
        parts.updates.report(event.task_id, UpdateType.CHECKPOINT, content, trace_id=event.trace_id)

    async def _take(self, token: str) -> SteeringEvent | None:
        """Remove and return the control that waits under this token. Only one of several callers gets it."""
        key = joined(self._parts.session_id, token)

        async def take(scope: Scope) -> Record | None:
            try:
                return (await scope.commit(Take(CONTROLS, key))).taken(CONTROLS, key)
            except CommitRefused:
                return None

        record = await self._parts.storage.call(take)
        self._pending.pop(token, None)
        return None if record is None else self._parts.store.types.make("SteeringEvent", decode(record.body))

    async def load(self, scope: Scope) -> Sequence[SteeringEvent]:
        """Return the waiting controls; runs on the kernel's loop."""
        query = Query(CONTROLS, {"session": name(self._parts.session_id)}, order="arrived")
        page = await scope.find(query, limit=MAX_CONTROLS)
        return [self._parts.store.types.make("SteeringEvent", decode(record.body)) for record in page.records]

    def restore(self, waiting: Sequence[SteeringEvent]) -> None:
        """Use the waiting controls that `load` returned."""
        self._pending = {event.event_id: event for event in waiting}

    # -------------------------------------------------------------------------------------------------------- execution

    async def _prioritise(self, event: SteeringEvent) -> bool:
        task = await self._parts.tasks.change(event.task_id, priority=event.payload.get("priority"))
        if task is not None:
            self._parts.updates.report_status(task, "priority_changed")
        return task is not None

    def _stop(self, event: SteeringEvent) -> None:
        """Cancel a spawned task at once. An awaited task only gets it in its inbox, unless ``hard`` is set."""
        self._runner.stop(event.task_id, hard=bool(event.payload.get("hard")))

    def _deliver(self, event: SteeringEvent) -> bool:
        if not self._parts.tasks.deliver(event):
            return False
        content = {
            "status": "STEERING_RECEIVED",
            "event_type": event.event_type.value,
            "event_id": event.event_id,
        }
        self._parts.updates.report(event.task_id, UpdateType.STATUS_CHANGE, content, trace_id=event.trace_id)
        return True

    async def _cancel_children(self, event: SteeringEvent) -> None:
        parts, types = self._parts, self._parts.store.types
        reason = str(event.payload.get("reason") or "parent_cancelled")
        for child in parts.tasks.registry.to_cancel(event.task_id):
            payload = {"reason": reason, "confirmed": True, "propagated_from": event.task_id}
            propagated = sanitize_steering_event(
                types.SteeringEvent(
                    session_id=parts.session_id,
                    task_id=child.task_id,
                    event_type=types.SteeringEventType.CANCEL,
                    payload=payload,
                    source="system",
                ),
                max_payload_bytes=parts.limits.max_steering_payload_bytes,
            )
            await parts.store.save_steering(propagated)
            if not parts.tasks.runs_here(child.task_id) and await parts.runs.pass_on(propagated):
                continue
            parts.tasks.deliver(propagated)
            if await parts.tasks.change(child.task_id, status=TaskStatus.CANCELLED, error="cancelled") is not None:
                parts.updates.report_status(child, "parent_cancelled")
            self._stop(propagated)
