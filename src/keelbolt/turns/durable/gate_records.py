"""A stored gate: its question and its settlement. Pure."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic_core import PydanticSerializationError, from_json, to_json

from keelbolt.errors import (
    InvalidInitialTurnGateValue,
    InvalidTurnGateResolution,
    TurnError,
    TurnGateAborted,
    TurnGateRejected,
    TurnGateTimeout,
    TurnStorageCorrupt,
    TurnStorageNotFound,
)
from keelbolt.kernel import Record, Scalar, Scope
from keelbolt.turns.durable.scope import PARTITIONS
from keelbolt.turns.events import GateResult, now
from keelbolt.turns.gates import Settlement, TurnGate
from keelbolt.turns.schemas import checker, json_schema

GateState = Literal["open", "settled"]
CLOCKS_DIFFER_SECONDS = 60.0  # wall clocks of machines may differ by this much

_SECRET_BYTES = 24
_ERRORS: dict[str, type[TurnError]] = {
    "aborted": TurnGateAborted,
    "rejected": TurnGateRejected,
    "timeout": TurnGateTimeout,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGate:
    """A gate for callers that may settle it. ``result`` is None while it is open.

    ``schema`` is the JSON Schema of the answer, if there is one. ``checked``: the answer is validated when it is
    given; otherwise the turn validates it, and an invalid answer reopens the gate. ``about`` is the value of "task" in
    the turn's stash, which identifies the gate's task for users.
    """

    token: str
    id: str
    turn_id: str
    tenant: str
    thread: str
    reason: str
    payload: Any
    schema: Mapping[str, Any] | None
    checked: bool
    about: Any
    created_at: datetime
    deadline: datetime | None
    result: GateResult | None = None
    value: Any = None
    error: str | None = None
    code: str | None = None
    settled_at: datetime | None = None
    version: int = 0
    key: str = ""

    @property
    def settled(self) -> bool:
        return self.result is not None

    @property
    def seconds_left(self) -> float | None:
        """Time until the deadline, 0 or less if it is over; None: the gate has no deadline.

        A gate whose creation is in the future was created before the wall clock was set back. Its deadline is over: the
        engine's clock, which does not jump, made its work item ready.
        """
        if self.deadline is None:
            return None
        at = now()
        set_back = (self.created_at - at).total_seconds() > CLOCKS_DIFFER_SECONDS
        return 0.0 if set_back else (self.deadline - at).total_seconds()

    @property
    def task_id(self) -> str | None:
        """The task that asks the gate's question, in a served agent."""
        found = self.about.get("taskId") if isinstance(self.about, Mapping) else None
        return found if isinstance(found, str) else None

    def same_question(self, other: StoredGate) -> bool:
        return to_json([self.reason, self.payload, self.schema]) == to_json([other.reason, other.payload, other.schema])

    def check(self, value: Any) -> None:
        """Raise InvalidTurnGateResolution if the value is not a valid answer."""
        try:
            to_json(value)
        except PydanticSerializationError as wrong:
            raise InvalidTurnGateResolution(
                f"gate {self.id}: the answer must be JSON, because it is stored ({wrong})"
            ) from None
        if self.checked and self.schema is not None:
            try:
                checker(self.schema)(value)
            except (TypeError, ValueError) as wrong:
                raise InvalidTurnGateResolution(f"gate {self.id}: {wrong}; the gate stays open") from wrong

    def settled_by(self, settlement: Settlement) -> StoredGate:
        error = settlement.error
        return replace(
            self,
            result=settlement.result,
            value=settlement.value,
            error=None if error is None else str(error) or type(error).__name__,
            code=getattr(error, "code", None),
            settled_at=settlement.settled_at,
        )

    def reopened(self) -> StoredGate:
        return replace(self, result=None, value=None, error=None, code=None, settled_at=None)

    def settlement(self) -> Settlement:
        assert self.result is not None
        error = None
        if self.result != "resolved":
            error = _ERRORS.get(self.result, TurnError)(self.error, code=self.code)
        assert self.settled_at is not None
        return Settlement(self.result, self.value, error, self.settled_at)

    def body(self) -> bytes:
        try:
            return to_json({name: getattr(self, name) for name in _KEPT})
        except PydanticSerializationError as wrong:
            raise InvalidTurnGateResolution(
                f"gate {self.id}: its values must be JSON, because they are stored ({wrong})"
            ) from None

    def fields(self, owner: str, turn: str) -> dict[str, Scalar]:
        return {
            "secret": read_token(self.token)[1],
            "state": "settled" if self.settled else "open",
            "at": int(self.created_at.timestamp() * 1_000_000),
            "owner": owner,
            "turn": turn,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the gate as JSON for API clients."""
        return {
            "token": self.token,
            "id": self.id,
            "turnId": self.turn_id,
            "tenant": self.tenant,
            "thread": self.thread,
            "reason": self.reason,
            "payload": self.payload,
            "schema": self.schema,
            "about": self.about,
            "state": "settled" if self.settled else "open",
            "result": self.result,
            "value": self.value,
            "error": self.error,
            "createdAt": self.created_at.isoformat(),
            "deadline": None if self.deadline is None else self.deadline.isoformat(),
            "settledAt": None if self.settled_at is None else self.settled_at.isoformat(),
        }


_TIMES = ("created_at", "deadline", "settled_at")
_KEPT = tuple(name for name in StoredGate.__dataclass_fields__ if name not in ("version", "key"))


def new_gate(gate: TurnGate, *, scope: Scope, tenant: str, thread: str, about: Any) -> StoredGate:
    """Return the stored form of this gate, with an unguessable token."""
    try:
        to_json([gate.payload, about])
    except PydanticSerializationError as wrong:
        raise InvalidInitialTurnGateValue(f"the payload of a stored gate must be JSON ({wrong})") from None
    schema = None if gate.schema is None else json_schema(gate.schema)
    return StoredGate(
        token=make_token(scope),
        id=gate.id,
        turn_id=gate.turn_id,
        tenant=tenant,
        thread=thread,
        reason=gate.reason,
        payload=gate.payload,
        schema=schema,
        checked=schema is not None and _understood(schema),
        about=about,
        created_at=gate.created_at,
        deadline=None if gate.timeout_ms is None else gate.created_at + timedelta(milliseconds=gate.timeout_ms),
    )


def read_gate(record: Record) -> StoredGate:
    try:
        body = from_json(record.body)
        for name in _TIMES:
            if body[name] is not None:
                body[name] = datetime.fromisoformat(body[name]).astimezone(UTC)
        return StoredGate(**body, version=record.version, key=record.key)
    except (ValueError, KeyError, TypeError) as wrong:
        raise TurnStorageCorrupt("a stored gate can't be read; restore a backup", cause=wrong) from wrong


def make_token(scope: Scope) -> str:
    """Return a token: the partition of the gate, and a secret."""
    place = base64.urlsafe_b64encode(scope.partition.removeprefix(PARTITIONS).encode()).decode().rstrip("=")
    return f"{place}.{secrets.token_urlsafe(_SECRET_BYTES)}"


def read_token(token: object) -> tuple[str, str]:
    """Return the partition and the secret of a token; raise TurnStorageNotFound if it is malformed."""
    if isinstance(token, str) and token.isascii() and len(token) < 500:
        place, _, secret = token.partition(".")
        try:
            found = base64.urlsafe_b64decode(place + "=" * (-len(place) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError):
            found = ""
        if found and found.isascii() and found.isprintable() and secret:
            return PARTITIONS + found, secret
    raise TurnStorageNotFound("no gate has this token")


def _understood(schema: Mapping[str, Any]) -> bool:
    try:
        checker(schema)
    except ValueError:
        return False
    return True
