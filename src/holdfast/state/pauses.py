"""Pauses of planners: each is taken up once, by whoever comes first, before its time is over."""

from __future__ import annotations

from typing import Any

from holdfast.errors import CommitRefused, InvalidState
from holdfast.state.codec import decode
from holdfast.state.desk import Desk
from holdfast.state.families import PAUSES
from holdfast.state.names import name
from holdfast.state.saving import Saved
from holdfast.storage import Put, Scope, Take

PAUSE_SECONDS = 3600.0


class Pauses:
    """``save_planner_state`` and ``load_planner_state``."""

    def __init__(self, desk: Desk, seconds: float = PAUSE_SECONDS) -> None:
        self._desk = desk
        self._seconds = seconds

    def save(self, token: str, payload: dict[str, Any]) -> Saved:
        """Keep a pause; saving it again replaces it and begins its time anew."""
        if not isinstance(payload, dict):
            raise InvalidState(f"the payload of a pause must be a dict, not a {type(payload).__name__}")
        body = self._desk.encode({"token": token, "payload": payload})
        pause = Put(PAUSES, name(token), body, expires_in=self._seconds)
        return self._desk.save("save_planner_state", (pause,), len(body), vital=True)

    async def take(self, token: str) -> dict[str, Any] | None:
        """The pause, which is gone from now on; None: there is none."""
        key = name(token)

        async def read(scope: Scope) -> dict[str, Any] | None:
            try:
                receipt = await scope.commit(Take(PAUSES, key))
            except CommitRefused:
                return None
            payload: dict[str, Any] = decode(receipt.taken(PAUSES, key).body)["payload"]
            return payload

        return await self._desk.load("load_planner_state", read, None)
