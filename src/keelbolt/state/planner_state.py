"""State of planners: pauses, and states under keys (memories of conversations and values of tools).

Each pause is taken once, by the first caller, before it expires. A pause taken with a lease stays stored: the caller
confirms it when the work is done. If the caller dies, the pause becomes available again when the lease expires.

States under keys do not expire.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from keelbolt.errors import CommitRefused, InvalidState, StateConflict, StateNotLoaded, StateNotSaved, StorageClosed
from keelbolt.kernel import (
    Absent,
    Delete,
    FieldIn,
    Insert,
    Operation,
    Put,
    Query,
    Record,
    Replace,
    Scope,
    Take,
    Version,
)
from keelbolt.kernel.requests import MAX_SECONDS
from keelbolt.state.codec import decode
from keelbolt.state.engine.connection import logger
from keelbolt.state.engine.writes import Saved
from keelbolt.state.families import MEMORY, PAUSE_LEASES, PAUSES
from keelbolt.state.names import name
from keelbolt.state.store_context import StoreContext

PAUSE_SECONDS = 3600.0
PAGE = 500
EXPIRED = "the lease expired before its block ended, so another caller may have taken the pause"


@dataclass(frozen=True, slots=True)
class WaitingPause:
    """A pause that can be taken. ``leased``: a caller has taken it with a lease and not confirmed it yet."""

    token: str
    payload: dict[str, Any]
    saved_at: datetime | None
    expires_at: datetime | None
    leased: bool


class PauseLease:
    """A pause taken with a lease: `confirm` it when the work is done, or `release` it for another caller.

    As an async context manager it confirms at the end, and releases if the block raises.
    """

    def __init__(self, pauses: Pauses, token: str, payload: dict[str, Any], lease: str, version: int) -> None:
        self.token = token
        self.payload = payload
        self._pauses = pauses
        self._lease = lease
        self._version = version

    async def confirm(self) -> bool:
        """Remove the pause. Return False if the lease has expired; another caller may have taken the pause."""
        return await self._pauses.end_lease(self.token, self._lease, Delete(PAUSES, name(self.token), self._version))

    async def release(self) -> bool:
        """Release the pause at once. Return False if the lease has expired."""
        return await self._pauses.end_lease(self.token, self._lease)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.release()
        elif not await self.confirm():
            raise StateConflict("take_planner_state", TimeoutError(EXPIRED))


class Pauses:
    """``save_planner_state``, ``load_planner_state``, ``take_planner_state`` and the lists of waiting pauses."""

    def __init__(self, desk: StoreContext, seconds: float = PAUSE_SECONDS) -> None:
        _check_seconds(seconds, "pause_seconds")
        self._desk = desk
        self._seconds = seconds

    def save(self, token: str, payload: dict[str, Any]) -> Saved:
        """Save a pause; saving it again replaces it and restarts its expiry."""
        if not isinstance(payload, dict):
            raise InvalidState(f"the payload of a pause must be a dict, not {type(payload).__name__}")
        body = self._desk.encode({"token": token, "payload": payload})
        pause = Put(PAUSES, name(token), body, self._times(), expires_in=self._seconds)
        return self._desk.save("save_planner_state", (pause,), len(body), key=token, vital=True)

    def _times(self) -> dict[str, int]:
        now = self._desk.tick()
        return {"saved": now, "expires": now + int(self._seconds * 1e6)}

    async def take(self, token: str) -> dict[str, Any] | None:
        """Remove the pause and return it; None if there is none or another caller has taken it.

        It is taken at most once. If the result arrives after the caller was cancelled or timed out, the pause is put
        back. If the process dies after it took the pause, the pause is lost; `lease` prevents that.
        """
        key = name(token)

        async def read(scope: Scope) -> bytes | None:
            try:
                receipt = await scope.commit(Take(PAUSES, key), Absent(PAUSE_LEASES, key))
            except CommitRefused:
                return None
            return receipt.taken(PAUSES, key).body

        body = await self._desk.load("load_planner_state", read, key=token, unclaimed=partial(self._put_back, key))
        if body is None:
            return None
        payload: dict[str, Any] = decode(body)["payload"]
        return payload

    async def lease(self, token: str, seconds: float) -> PauseLease | None:
        """Return the pause and block other callers until the lease expires; None if there is none or it is taken."""
        _check_seconds(seconds, "lease_seconds")
        key, lease = name(token), uuid4().hex

        async def take(scope: Scope) -> Record | None:
            while (record := await scope.get(PAUSES, key)) is not None:
                try:
                    await scope.commit(
                        Version(PAUSES, key, record.version),
                        Insert(PAUSE_LEASES, key, b"", {"lease": lease}, expires_in=seconds),
                    )
                except CommitRefused:
                    if await scope.get(PAUSE_LEASES, key) is not None:
                        return None
                    continue  # the pause was saved again or taken
                return record
            return None

        record = await self._desk.load("take_planner_state", take, key=token, changes=True)
        if record is None:
            return None
        return PauseLease(self, token, decode(record.body)["payload"], lease, record.version)

    async def end_lease(self, token: str, lease: str, *removed: Operation) -> bool:
        """End the lease if it is still this one, and remove its pause."""
        mine = FieldIn(PAUSE_LEASES, name(token), "lease", (lease,))
        over = Delete(PAUSE_LEASES, name(token))

        async def write(scope: Scope) -> bool:
            for operations in ((mine, over, *removed), (mine, over)):  # if the pause was saved again, it stays
                with contextlib.suppress(CommitRefused):
                    await scope.commit(*operations)
                    return True
            return False

        return await self._desk.load("take_planner_state", write, key=token, changes=True)

    async def list(self, limit: int) -> list[WaitingPause]:
        """Return the waiting pauses, the newest first."""

        async def read(scope: Scope) -> list[WaitingPause]:
            found: list[WaitingPause] = []
            cursor: str | None = None
            while len(found) < limit:
                page, cursor = await waiting_pauses(scope, limit=min(PAGE, limit - len(found)), cursor=cursor)
                found += page
                if cursor is None:
                    break
            return found

        return await self._desk.load("list_pauses", read)

    async def get(self, token: str) -> WaitingPause | None:
        """Return the waiting pause without taking it, or None."""
        return await self._desk.load("get_pause", partial(waiting_pause, token=token), key=token)

    async def cancel(self, token: str) -> bool:
        """Remove the pause and return whether it existed."""
        return await self._desk.load("cancel_pause", partial(cancel_pause, token=token), key=token, changes=True)

    def _put_back(self, key: str, body: bytes | None) -> None:
        if body is None:
            return

        async def write(scope: Scope) -> None:
            with contextlib.suppress(CommitRefused):  # saved again meanwhile
                await scope.commit(Insert(PAUSES, key, body, self._times(), self._seconds))

        try:
            self._desk.host.begin(self._desk.scoped(write), seconds=self._desk.timeout_seconds)
        except StorageClosed:
            logger.critical("a pause is lost: its caller timed out or was cancelled, and the store is closed")


async def waiting_pauses(
    scope: Scope, *, limit: int, cursor: str | None = None
) -> tuple[list[WaitingPause], str | None]:
    """Return a page of a tenant's waiting pauses, the newest first, and the cursor of the next page."""
    page = await scope.find(Query(PAUSES, order="saved", newest_first=True), limit=limit, cursor=cursor)
    leases = await scope.get_many(PAUSE_LEASES, [record.key for record in page.records]) if page.records else ()
    return [_waiting(record, lease) for record, lease in zip(page.records, leases, strict=True)], page.cursor


async def waiting_pause(scope: Scope, *, token: str) -> WaitingPause | None:
    """Return the pause of this token without taking it, or None."""
    record = await scope.get(PAUSES, name(token))
    return _waiting(record, await scope.get(PAUSE_LEASES, name(token))) if record is not None else None


async def cancel_pause(scope: Scope, *, token: str) -> bool:
    """Remove the pause of this token, leased or not, and return whether it existed."""
    try:
        await scope.commit(Take(PAUSES, name(token)), Delete(PAUSE_LEASES, name(token)))
    except CommitRefused:
        return False
    return True


def _waiting(record: Record, lease: Record | None) -> WaitingPause:
    stored = decode(record.body)
    saved, expires = (_moment(record.fields.get(field)) for field in ("saved", "expires"))
    return WaitingPause(stored["token"], stored["payload"], saved, expires, lease is not None)


def _moment(microseconds: object) -> datetime | None:
    return datetime.fromtimestamp(microseconds / 1e6, UTC) if isinstance(microseconds, int) else None


def _check_seconds(seconds: object, what: str) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_SECONDS:
        raise InvalidState(f"{what} must be more than 0 and at most 100 years, not {seconds!r}")


# --------------------------------------------------------------------------------------------------------- memory state


UNSURE = 10_000  # maximum number of remembered keys whose last load failed


class MemoryStates:
    """``save_memory_state``, ``load_memory_state`` and ``load_memory_version``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk
        self._unsure: OrderedDict[str, StateNotLoaded] = OrderedDict()

    def save(self, key: str, state: dict[str, Any], if_version: int | None = None) -> Saved:
        """Save a deep copy of the state. With ``if_version``, only over this version; otherwise raise StateConflict.

        Without a version the state is replaced, unless the last load of this key failed: the caller would overwrite a
        state that it could not read.
        """
        if not isinstance(state, dict):
            raise InvalidState(f"a memory state must be a dict, not {type(state).__name__}")
        body = self._desk.encode({"key": key, "state": state})
        fields = {"saved": self._desk.tick()}
        kept: Operation
        if if_version is None:
            if (failure := self._unsure.get(key)) is not None:
                raise StateNotSaved("save_memory_state", failure) from failure
            kept = Put(MEMORY, name(key), body, fields)
        elif isinstance(if_version, bool) or not isinstance(if_version, int) or if_version < 0:
            raise InvalidState(f"if_version must be a version that load_memory_version returned, not {if_version!r}")
        elif if_version == 0:
            kept = Insert(MEMORY, name(key), body, fields)
        else:
            kept = Replace(MEMORY, name(key), if_version, body, fields)
        lives, vital = (self._desk.memory(key),), if_version is not None
        return self._desk.save("save_memory_state", (kept,), len(body), key=key, vital=vital, lives=lives)

    async def load(self, key: str) -> tuple[dict[str, Any] | None, int]:
        """Return the state and its version; None and 0 if there is none."""

        async def read(scope: Scope) -> tuple[dict[str, Any] | None, int]:
            record, _ = await asyncio.gather(scope.get(MEMORY, name(key)), self._desk.memory(key).begin(scope))
            return (None, 0) if record is None else (decode(record.body)["state"], record.version)

        try:
            found = await self._desk.load("load_memory_state", read, key=key)
        except StateNotLoaded as error:
            self._unsure[key] = error
            if len(self._unsure) > UNSURE:
                self._unsure.popitem(last=False)
            raise
        self._unsure.pop(key, None)
        return found
