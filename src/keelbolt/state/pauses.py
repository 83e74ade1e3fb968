"""Pauses of planners: each is taken up once, by whoever comes first, before its time is over."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from keelbolt.errors import CommitRefused, InvalidState, StorageClosed
from keelbolt.state.codec import decode
from keelbolt.state.desk import Desk
from keelbolt.state.families import PAUSES
from keelbolt.state.names import name
from keelbolt.state.policy import logger
from keelbolt.state.saving import Saved
from keelbolt.storage import Insert, Kernel, Put, Scope, Take
from keelbolt.storage.requests import MAX_SECONDS

PAUSE_SECONDS = 3600.0


class Pauses:
    """``save_planner_state`` and ``load_planner_state``."""

    def __init__(self, desk: Desk, seconds: float = PAUSE_SECONDS) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_SECONDS:
            raise InvalidState(f"pause_seconds must be more than 0 and at most a hundred years, not {seconds!r}")
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
        """The pause, which is gone from now on; None: there is none.

        It is taken at most once. If the storage answers after the caller has gone (a time-out, a cancellation) the
        pause is put back; a process that dies after it took one takes it along.
        """
        key = name(token)

        async def read(scope: Scope) -> bytes | None:
            try:
                receipt = await scope.commit(Take(PAUSES, key))
            except CommitRefused:
                return None
            return receipt.taken(PAUSES, key).body

        body = await self._desk.load("load_planner_state", read, unclaimed=partial(self._put_back, key))
        if body is None:
            return None
        payload: dict[str, Any] = decode(body)["payload"]
        return payload

    def _put_back(self, key: str, body: bytes | None) -> None:
        if body is None:
            return

        async def write(kernel: Kernel) -> None:
            with contextlib.suppress(CommitRefused):  # it was saved anew
                await kernel.commit(self._desk.partition, Insert(PAUSES, key, body, expires_in=self._seconds))

        try:
            self._desk.host.begin(write, seconds=self._desk.timeout_seconds)
        except StorageClosed:
            logger.critical("a pause was taken when nobody waited for it any more, and is lost: the store is closed")
