"""The SDK's session on Keelbolt's storage: every change is one commit, safe against concurrent processes."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from agents import SessionSettings, TResponseInputItem
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

from keelbolt.errors import CommitRefused, InvalidValue, SecretKeyMissing, StorageBusy, StorageCorrupt
from keelbolt.kernel import Delete, Insert, Kernel, Operation, Put, Query, Record, Replace, Scalar, Scope, Take
from keelbolt.kernel.connection import AsyncConnectionOwner, KernelConnection
from keelbolt.openai_agents.families import FAMILIES, ITEMS, PLAIN, SEALED, SESSIONS, partition_of
from keelbolt.state.names import joined, name
from keelbolt.webhooks.sealing import Sealer, opened

ATTEMPTS = 100  # of a change that conflicts with others of the same session
PAGE = 500  # items read at once, or written by one commit when a whole session is cleared or copied

T = TypeVar("T")


class KeelboltSession(AsyncConnectionOwner):
    """The items of one conversation, on SQLite, PostgreSQL, Redis/Valkey or in memory.

        session = KeelboltSession("user-123", "sqlite:///agent.db")
        result = await Runner.run(agent, "Hello", session=session)

    ``storage`` is a URL, which is opened at the first call, or an open storage; sessions of one process share it.
    ``add_items`` stores all items or none, next to each other; concurrent callers of ``pop_item`` get different items.
    With ``ttl_seconds`` an item expires this long after it was added. With ``secret_key`` (at least 32 characters;
    several separated by commas: the first encrypts, all decrypt) items are stored encrypted.
    """

    def __init__(
        self,
        session_id: str,
        storage: str | Kernel | KernelConnection,
        *,
        tenant: str = "default",
        ttl_seconds: float | None = None,
        secret_key: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        if ttl_seconds is not None and not ttl_seconds > 0:
            raise InvalidValue(f"ttl_seconds must be a positive number, not {ttl_seconds!r}")
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self._ttl = ttl_seconds
        self._secret = secret_key
        self._sealer = Sealer.of(secret_key) if secret_key is not None else None
        self._tenant = tenant
        self._key = name(session_id)
        self._connection = KernelConnection(storage, FAMILIES)

    # -------------------------------------------------------------------------------------------- the SDK's protocol

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest ``limit`` items, or all of them, oldest first."""
        wanted = resolve_session_limit(limit, self.session_settings)
        if wanted == 0:
            return []
        found: Sequence[Record] = await self._call(partial(self._read, limit=wanted if wanted and wanted > 0 else None))
        return [self._load(record) for record in reversed(found)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all of them or none."""
        if not items:
            return
        bodies = [json.dumps(item).encode() for item in items]  # encode before anything is stored
        await self._call(partial(self._add, bodies=bodies))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; None if there is none."""
        found = await self._call(self._pop)
        return self._load(found) if found is not None else None

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._call(self._clear)

    # ---------------------------------------------------------------------------------------------------- extensions

    async def fork(self, session_id: str) -> KeelboltSession:
        """Copy the items into another, independent session. Raise InvalidValue if that session has items."""
        target = KeelboltSession(
            session_id,
            self._connection,
            tenant=self._tenant,
            ttl_seconds=self._ttl,
            secret_key=self._secret,
            session_settings=self.session_settings,
        )
        if await target.get_items(1):
            raise InvalidValue(f"the session {session_id!r} already has items; fork into a new session")
        everything = [self._load(record) for record in reversed(await self._call(partial(self._read, limit=None)))]
        for start in range(0, len(everything), PAGE):
            await target.add_items(everything[start : start + PAGE])
        return target

    # ------------------------------------------------------------------------------------------- in the kernel's loop

    async def _call(self, function: Callable[[Scope], Awaitable[T]]) -> T:
        return await self._connection.call(lambda kernel: function(kernel.scoped(partition_of(self._tenant))))

    async def _read(self, scope: Scope, limit: int | None) -> list[Record]:
        """Return the newest items, newest first."""
        query = Query(ITEMS, equal={"session": self._key}, order="number", newest_first=True)
        return [record async for record in scope.scan(query, limit=limit, page=PAGE)]

    async def _add(self, scope: Scope, bodies: Sequence[bytes]) -> None:
        async def change(session: Record | None) -> tuple[list[Operation], None]:
            if session is not None:
                number = int(session.fields["items"] or 0)
            else:  # a new session, or one that expired before its items without expiry
                number = max([int(record.fields["number"] or 0) for record in await self._read(scope, 1)], default=0)
            inserts: list[Operation] = []
            for body in bodies:
                number += 1
                key = joined(self.session_id, f"{number:016}")
                fields: dict[str, Scalar] = {"session": self._key, "number": number, "expires": self._expires()}
                inserts.append(Insert(ITEMS, key, self._sealed(body, key), fields, expires_in=self._ttl))
            return [self._session(session, number), *inserts], None

        await self._changed(scope, change)

    async def _pop(self, scope: Scope) -> Record | None:
        async def change(session: Record | None) -> tuple[list[Operation], Record | None]:
            newest = await self._read(scope, 1)
            if not newest:
                return [], None
            items = session.fields["items"] if session is not None else newest[0].fields["number"]
            return [self._session(session, int(items or 0)), Take(ITEMS, newest[0].key)], newest[0]

        return await self._changed(scope, change)

    async def _clear(self, scope: Scope) -> None:
        """Remove the newest items first, so that after an interruption the beginning of the conversation is left."""

        async def change(session: Record | None) -> tuple[list[Operation], bool]:
            doomed: list[Operation] = [Delete(ITEMS, record.key) for record in await self._read(scope, PAGE)]
            more = len(doomed) == PAGE
            if session is None:
                return doomed, more
            return [self._session(session, int(session.fields["items"] or 0)), *doomed], more

        while await self._changed(scope, change):
            pass

    async def _changed(
        self, scope: Scope, change: Callable[[Record | None], Awaitable[tuple[list[Operation], T]]]
    ) -> T:
        """Commit a change of the current session; retry if another change came first."""
        for attempt in range(ATTEMPTS):
            operations, result = await change(await scope.get(SESSIONS, self._key))
            if not operations:
                return result
            try:
                await scope.commit(*operations)
            except CommitRefused:
                await asyncio.sleep(random.random() * min(0.001 * 2**attempt, 0.05))  # noqa: S311
                continue
            return result
        raise StorageBusy(
            f"other writers changed the session {self.session_id!r} during {ATTEMPTS} attempts; try again"
        )

    def _session(self, session: Record | None, items: int) -> Put | Insert | Replace:
        fields = {"items": items, "updated": time.time_ns() // 1000, "expires": self._expires()}
        body = self.session_id.encode("utf-8", "surrogatepass")
        if session is None:
            return Insert(SESSIONS, self._key, body, fields, expires_in=self._ttl)
        return Replace(SESSIONS, self._key, session.version, body, fields, expires_in=self._ttl)

    def _expires(self) -> int | None:
        return None if self._ttl is None else int((time.time() + self._ttl) * 1_000_000)

    # ---------------------------------------------------------------------------------------------------- encryption

    def _sealed(self, body: bytes, key: str) -> bytes:
        if self._sealer is None:
            return PLAIN + body
        return SEALED + self._sealer.seal(body, f"{ITEMS}/{key}").encode()

    def _load(self, record: Record) -> Any:
        kind, body = record.body[:1], record.body[1:]
        if kind == SEALED:
            try:
                body = opened(self._sealer, body.decode(), f"{ITEMS}/{record.key}")
            except SecretKeyMissing:
                raise SecretKeyMissing(
                    f"the session {self.session_id!r} is encrypted with another key; pass that key in secret_key"
                ) from None
        elif kind != PLAIN:
            raise StorageCorrupt
        return json.loads(body)
