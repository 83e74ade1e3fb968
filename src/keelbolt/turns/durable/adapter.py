"""`durable_storage`: the 27 callbacks over any engine of the kernel."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, cast

from keelbolt.errors import InvalidValue, SchemaTooNew, StorageClosed, TurnStorageSchema
from keelbolt.kernel import Kernel, Scope, open_storage
from keelbolt.kernel.contract import LEASE_SECONDS
from keelbolt.outbound.download import DownloadRules
from keelbolt.turns.callbacks import FetchPolicy, StorageCallbacks
from keelbolt.turns.codec import KINDS, PLURALS, ArtifactTypes, Kind, Resolvers, TurnCodec
from keelbolt.turns.dispatch import Executor
from keelbolt.turns.durable import retention
from keelbolt.turns.durable.blobs import Blobs, BytesAddress, Conduit, TurnBlobs
from keelbolt.turns.durable.families import FAMILIES, TurnAddress, WriteAddress
from keelbolt.turns.durable.gates import DurableGates
from keelbolt.turns.durable.leased import Again, LeasedTurns
from keelbolt.turns.durable.readers import EAGER_BYTES, URL_TAG, RemoteMediaReader
from keelbolt.turns.durable.records import Duplicates, check_format, upgrade
from keelbolt.turns.durable.retention import SweptTurns
from keelbolt.turns.durable.scope import (
    Reach,
    ScopeOf,
    TurnLike,
    TurnScope,
    as_scope,
    name,
    scope_in_stash,
    tenant_scope,
    under,
)
from keelbolt.turns.durable.store import DurableProgress, TurnStore, WritePolicy
from keelbolt.turns.durable.unit import current
from keelbolt.turns.primitives import Message
from keelbolt.turns.readers import Descriptor, MediaReader, answer
from keelbolt.turns.runner import TurnRunner, TurnRunnerChanges

Callback = Callable[..., Awaitable[Any]]
REAP_SECONDS = 3600.0


def durable_storage(
    storage: str | Kernel,
    *,
    scope: ScopeOf = scope_in_stash,
    fetch: FetchPolicy | None = None,
    duplicates: Duplicates = "refuse",
    upsert: bool = False,
    memories: Reach = "agent",
    standing_instructions: Reach = "agent",
    tools: Sequence[Any] | Callable[[Any], Any] = (),
    resolvers: Resolvers | None = None,
    artifacts: ArtifactTypes | None = None,
    remote_media: DownloadRules | None = None,
    eager_bytes: int = EAGER_BYTES,
    clock: Callable[[], float] = time.time,
) -> DurableStorage:
    """Return a storage for turns at this URL (or in an open kernel), to be used as an async context manager.

        async with durable_storage("sqlite:///agent.db") as storage:
            runner = TurnRunner(executor_callback=execute, **storage.callbacks(), unit_of_work=storage.unit_of_work)

    ``scope`` returns the tenant and thread of a turn; by default the stash has them under "scope". ``tools`` is the
    result of fetch_tools. ``resolvers`` open readers with custom descriptors, ``artifacts`` names custom subclasses of
    SpooledArtifact. ``remote_media`` limits which files at URLs may be read; by default those at public addresses, up
    to 50 MiB. Texts of up to ``eager_bytes`` are read as a whole when a line is requested. `WritePolicy` describes the
    other arguments.
    """
    if isinstance(eager_bytes, bool) or not isinstance(eager_bytes, int) or eager_bytes < 0:
        raise InvalidValue(f"eager_bytes must be an integer of at least 0, not {eager_bytes!r}")
    opening = resolvers if resolvers is not None else Resolvers()
    if not opening.knows(Descriptor(tag=URL_TAG, locator=None), media=True):
        opening.media(URL_TAG, partial(RemoteMediaReader.at, remote_media or DownloadRules()))
    policy = WritePolicy(fetch or FetchPolicy(), duplicates, upsert, memories, standing_instructions)
    return DurableStorage(
        storage,
        scope=scope,
        policy=policy,
        tools=tools,
        codec=TurnCodec(opening, artifacts),
        eager_bytes=eager_bytes,
        clock=clock,
    )


class DurableStorage:
    """Created by `durable_storage`. Several processes may use the same storage at once."""

    def __init__(
        self,
        storage: str | Kernel,
        *,
        scope: ScopeOf,
        policy: WritePolicy,
        tools: Sequence[Any] | Callable[[Any], Any],
        codec: TurnCodec,
        eager_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._own = isinstance(storage, str)
        self.kernel = open_storage(storage, declare=FAMILIES) if isinstance(storage, str) else storage
        self._scope = scope
        self._tools = tools
        self._clock = clock
        blobs = Blobs(self._now, eager_bytes=eager_bytes)
        self._store = TurnStore(self.kernel, codec, blobs, policy, self._now)
        self.blobs = TurnBlobs(blobs, self._shelf)
        self.gates = DurableGates(self.kernel, self.place)
        self.progress = DurableProgress(self.place, self._now)
        self._open = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the storage and upgrade an older format; raise TurnStorageSchema if the format is newer."""
        if not self._own:
            await self.kernel.declare(*FAMILIES)
        else:
            try:
                await self.kernel.open()
            except SchemaTooNew as newer:
                raise TurnStorageSchema(str(newer), cause=newer) from newer
        try:
            await upgrade(self.kernel)
        except BaseException:
            await self.close()
            raise
        self._open = True

    async def close(self) -> None:
        """Close the storage, if it was opened here."""
        self._open = False
        if self._own:
            await self.kernel.close()

    async def migrate(self) -> list[int]:
        """Upgrade an older format, as `open` does; return the formats that were reached."""
        await check_format(self.kernel)
        return await upgrade(self.kernel)

    # --------------------------------------------------------------------------------------------------- callbacks

    def callbacks(self) -> StorageCallbacks:
        """Return the callbacks for a TurnRunner by name: the 27, and the optional one for groups of tool calls."""
        found: dict[str, Callback] = {}
        for kind in KINDS:
            found[fetch_name(kind)] = self._fetching(kind)
            found[f"store_{kind}_callback"] = self._changing(self._store.store, kind)
            found[f"mutate_{kind}_callback"] = self._changing(self._store.mutate, kind)
            found[f"delete_{kind}_callback"] = self._changing(self._store.delete, kind)
        found["fetch_tools_callback"] = self._fetch_tools
        found["store_media_bytes_callback"] = self._conduit("media")
        found["store_retrievable_bytes_callback"] = self._conduit("retrievable")
        found["replace_tool_call_group_callback"] = self._replace_tool_calls
        return cast("StorageCallbacks", found)

    def runner(self, *, executor_callback: Executor, **changes: Unpack[TurnRunnerChanges]) -> TurnRunner:
        """Return a TurnRunner on this storage, with its callbacks, unit of work, gate store and progress store.

            runner = storage.runner(executor_callback=execute, tools=[add])

        A callback given here replaces the storage's own, and is not part of the unit of work.
        """
        ours = {"unit_of_work": self.unit_of_work, "gate_store": self.gates, "progress_store": self.progress}
        config: dict[str, Any] = {**self.callbacks(), **ours, **changes}
        return TurnRunner(executor_callback=executor_callback, **config)

    def leased(
        self, runner: TurnRunner, *, again: Again, lease_seconds: float = LEASE_SECONDS, concurrency: int = 10
    ) -> LeasedTurns:
        """Run turns under a lease: a turn whose process died is continued by another process that does the same.

            def again(left: LeftTurn) -> TurnInput:
                return TurnInput(system_prompt="Be kind.", scope=left.scope)

            async with storage.leased(runner, again=again) as turns:
                result = await turns.run(TurnInput(system_prompt="Be kind.", scope=scope, incoming=[message]))

        ``again`` returns the input of a turn that was left behind, or None to give it up; its id is kept, and its
        incoming messages are those that it stored. A process takes over at most ``concurrency`` turns at once.
        """
        if runner.progress_store is not self.progress:
            raise InvalidValue("this runner does not store its turns in this storage; create it with storage.runner(…)")
        return LeasedTurns(self, runner, again, lease_seconds=lease_seconds, concurrency=concurrency)

    def unit_of_work(self, ctx: TurnLike) -> AbstractAsyncContextManager[object]:
        """Commit the writes of this turn's callbacks together at the end of the block, or none if the block raises.

        Fetches see the writes afterwards. A callback that you replaced is not part of the unit.
        """
        return self._store.unit(self._where(ctx), ctx)

    async def messages_of(self, ctx: TurnLike) -> list[Message]:
        """Return the messages that this turn has stored, among the last 500 of its thread."""
        return await self._store.fetch_of_turn(self._where(ctx), "message")

    def media_at(self, url: str) -> MediaReader:
        """Return a reader of the file at this URL, under the rules ``remote_media``. It is stored as the URL."""
        reader: MediaReader = self._store.codec.resolvers.open(
            Descriptor(tag=URL_TAG, locator={"url": url}), media=True
        )
        return reader

    @property
    def is_open(self) -> bool:
        return self._open

    def _fetching(self, kind: Kind) -> Callback:
        async def fetch(ctx: TurnLike) -> list[Any]:
            return await self._store.fetch(self._where(ctx), kind)

        return _called(fetch, fetch_name(kind))

    def _changing(self, change: Callable[[WriteAddress, Kind, Any], Awaitable[None]], kind: Kind) -> Callback:
        async def write(ctx: TurnLike, value: Any) -> None:
            await change(self._where(ctx), kind, value)

        return _called(write, f"{change.__name__}_{kind}_callback")

    def _conduit(self, conduit: Conduit) -> Callback:
        async def write(ctx: TurnLike, id: str, data: Any) -> Any:  # noqa: A002 - the contract's name
            return await self._store.blobs.write(self._shelf(ctx, conduit), id, data)

        return _called(write, f"store_{conduit}_bytes_callback")

    async def _fetch_tools(self, ctx: TurnLike) -> list[Any]:
        if not callable(self._tools):
            return list(self._tools)
        return list(await answer(self._tools(ctx)))

    async def _replace_tool_calls(self, ctx: TurnLike, ids: Sequence[str], replacements: Sequence[Any]) -> None:
        await self._store.replace_tool_calls(self._where(ctx), ids, replacements)

    # ---------------------------------------------------------------------------------------------------- retention

    async def purge(self, *, older_than: float = 0.0, tenant: str | None = None) -> SweptTurns:
        """Remove records deleted more than ``older_than`` seconds ago, with their bytes; of one tenant or of all.

        Progress records and gates of turns are removed a day later.
        """
        until = self._until(older_than)
        return await self._everywhere(tenant, lambda at: retention.purge(at, until=until))

    async def reap(self, *, older_than: float = REAP_SECONDS, tenant: str | None = None) -> SweptTurns:
        """Release bytes written more than ``older_than`` seconds ago that no record refers to."""
        until = self._until(older_than)
        return await self._everywhere(tenant, lambda at: retention.reap(at, until=until))

    async def erase(self, tenant: str, *, thread: str | None = None) -> SweptTurns:
        """Remove all data of this tenant, or of one of its threads.

        Memories and standing instructions belong to the tenant, unless the policy assigns them to the thread. Bytes
        that no other record holds leave the disk with the next sweep of the storage.
        """
        return await retention.erase(
            tenant_scope(self.kernel, tenant), None if thread is None else name("thread", thread)
        )

    def export(self, tenant: str, *, thread: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield every live record of this tenant (or of one of its threads) as JSON, with descriptors of its bytes."""
        return retention.export(tenant_scope(self.kernel, tenant), _owners(thread))

    async def _everywhere(self, tenant: str | None, act: Callable[[Scope], Awaitable[SweptTurns]]) -> SweptTurns:
        removed = SweptTurns()
        for each in await retention.scopes(self.kernel, tenant):
            removed += await act(each)
        return removed

    # ------------------------------------------------------------------------------------------------------ private

    def _where(self, ctx: TurnLike) -> WriteAddress:
        if not self._open:
            raise StorageClosed("this storage is not open; use it within async with durable_storage(…)")
        unit = current.get()
        if unit is not None and unit.turn is ctx and unit.clocks is self._store.clocks and unit.open:
            return unit.where
        return self._store.where(as_scope(self._scope(ctx)), ctx.id, self.progress.run_of(ctx))

    def scope_of(self, ctx: TurnLike) -> TurnScope:
        """Return the tenant, thread and agent of this turn."""
        return as_scope(self._scope(ctx))

    def place(self, ctx: TurnLike) -> TurnAddress:
        """Return the address of this turn in the kernel."""
        where, scope = self._where(ctx), self.scope_of(ctx)
        owner = where.owners["message"]
        return TurnAddress(where.scope, owner, under(owner, ctx.id), where.run, scope.tenant, scope.thread)

    def _shelf(self, ctx: TurnLike, conduit: Conduit) -> BytesAddress:
        where = self._where(ctx)
        return BytesAddress(where.scope, where.owners["message"], conduit, where.turn)

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)

    def _until(self, older_than: float) -> int:
        if not older_than >= 0:
            raise InvalidValue(f"older_than must be a number of seconds of at least 0, not {older_than!r}")
        return self._now() - int(older_than * 1_000_000) + 1


def fetch_name(kind: Kind) -> str:
    verb = "refresh" if kind == "standing_instruction" else "fetch"
    return f"{verb}_{PLURALS[kind]}_callback"


def _called(function: Callback, name: str) -> Callback:
    function.__name__ = function.__qualname__ = name
    return function


def _owners(thread: str | None) -> Iterable[str] | None:
    return None if thread is None else [name("thread", thread)]
