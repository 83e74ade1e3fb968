"""LangGraph's checkpointer on Keelbolt's storage."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from keelbolt.errors import InvalidValue
from keelbolt.kernel import Kernel, Scope
from keelbolt.kernel.connection import ConnectionOwner, KernelConnection
from keelbolt.langgraph import pruning
from keelbolt.langgraph.checkpoints import Checkpoints, History, Loaded, NewCheckpoint
from keelbolt.langgraph.families import SAVER_FAMILIES, partition_of
from keelbolt.langgraph.records import Lane, StoredCheckpoint, Typed

OnConflict = Literal["raise", "fork"]

_REPLAY = "__pregel_replay_state"  # in the config of a subgraph while its parent graph replays
_STUB = -2  # step of the empty checkpoint under which LangGraph stores writes of a first run

T = TypeVar("T")


class RequestedId(str):
    """The id of a checkpoint that the caller chose, so that a run which starts from it may branch off there.

    LangGraph passes the id that `get_tuple` returns on to `put`. The plain id does not show whether the caller
    requested this checkpoint or the last one.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str(self) == other  # if the other side is a subclass of str, its __eq__ decides, as with a plain str

    __hash__ = str.__hash__


class KeelboltSaver(ConnectionOwner, BaseCheckpointSaver[str]):
    """Stores the checkpoints of graphs on SQLite, PostgreSQL, Redis/Valkey or in memory.

        saver = KeelboltSaver("sqlite:///agent.db")
        graph = builder.compile(checkpointer=saver)

    ``storage`` is a URL, which is opened at the first call, or an open storage. Synchronous and asynchronous methods
    can be called from any thread and any event loop. A run that would fork its thread because another run has written
    to it meanwhile gets CheckpointConflict; with ``on_conflict="fork"`` it forks the thread. A run that starts at an
    older checkpoint by its ``checkpoint_id`` may always fork. ``close`` (or ``with``) closes a storage opened by URL.
    """

    def __init__(
        self,
        storage: str | Kernel,
        *,
        tenant: str = "default",
        on_conflict: OnConflict = "raise",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if on_conflict not in ("raise", "fork"):
            raise InvalidValue(f"on_conflict must be 'raise' or 'fork', not {on_conflict!r}")
        self._fork = on_conflict == "fork"
        self._partition = partition_of(tenant)
        self._connection = KernelConnection(storage, SAVER_FAMILIES)
        self._checkpoints = Checkpoints()

    # --------------------------------------------------------------------------------------------------------- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        new = self._new(config, checkpoint, metadata, new_versions)
        self._call_sync(partial(self._checkpoints.put, new=new))
        return _config(new.lane, new.id)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        new = self._new(config, checkpoint, metadata, new_versions)
        await self._call(partial(self._checkpoints.put, new=new))
        return _config(new.lane, new.id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._call_sync(self._new_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._call(self._new_writes(config, writes, task_id, task_path))

    # --------------------------------------------------------------------------------------------------------- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        lane, wanted = _lane(config), _asked(config)
        found = self._call_sync(partial(self._checkpoints.load, lane=lane, checkpoint=wanted))
        return self._tuple(found, addressed=wanted is not None) if found is not None else None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        lane, wanted = _lane(config), _asked(config)
        found = await self._call(partial(self._checkpoints.load, lane=lane, checkpoint=wanted))
        return self._tuple(found, addressed=wanted is not None) if found is not None else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangGraph's name)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page, cursor = self._call_sync(partial(self._page, config=config, before=before, cursor=cursor))
            matching = self._matching(page, filter)[:left]
            for start in range(0, len(matching), _FILL):
                some = matching[start : start + _FILL]
                for found in self._call_sync(partial(self._checkpoints.fill, wanted=some)):
                    yield self._tuple(found, addressed=True)
            left = None if left is None else left - len(matching)
            if cursor is None:
                return

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangGraph's name)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page, cursor = await self._call(partial(self._page, config=config, before=before, cursor=cursor))
            matching = self._matching(page, filter)[:left]
            for start in range(0, len(matching), _FILL):
                some = matching[start : start + _FILL]
                for found in await self._call(partial(self._checkpoints.fill, wanted=some)):
                    yield self._tuple(found, addressed=True)
            left = None if left is None else left - len(matching)
            if cursor is None:
                return

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        read = partial(self._checkpoints.history, lane=_lane(config), checkpoint=_asked(config), channels=channels)
        return self._histories(self._call_sync(read)) if channels else {}

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        read = partial(self._checkpoints.history, lane=_lane(config), checkpoint=_asked(config), channels=channels)
        return self._histories(await self._call(read)) if channels else {}

    # ----------------------------------------------------------------------------------------------- threads and runs

    def delete_thread(self, thread_id: str) -> None:
        self._call_sync(partial(self._delete, threads=[thread_id]))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._call(partial(self._delete, threads=[thread_id]))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._call_sync(partial(pruning.delete_runs, checkpoints=self._checkpoints, runs=run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._call(partial(pruning.delete_runs, checkpoints=self._checkpoints, runs=run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._call_sync(partial(pruning.copy_thread, source=source_thread_id, target=target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._call(partial(pruning.copy_thread, source=source_thread_id, target=target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._call_sync(self._pruning(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._call(self._pruning(thread_ids, strategy))

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002  (unused by LangGraph, too)
        number = 0 if current is None else current if isinstance(current, int) else int(current.split(".")[0])
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311  (tells two writers apart, no secret)

    # -------------------------------------------------------------------------------------------------- to the storage

    def _new(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> NewCheckpoint:
        values = checkpoint["channel_values"]
        rest = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        parent = get_checkpoint_id(config)
        kept = get_checkpoint_metadata(config, metadata)

        def dump(channel: str) -> Typed | None:
            return self.serde.dumps_typed(values[channel]) if channel in values else None

        if parent:
            forks = isinstance(parent, RequestedId)
        else:
            forks = metadata.get("source") == "fork" or _REPLAY in config["configurable"]
        return NewCheckpoint(
            lane=_lane(config),
            id=checkpoint["id"],
            parent=_asked(config),
            forks=forks or self._fork,
            run=str(kept["run_id"]) if kept.get("run_id") else None,
            checkpoint=self.serde.dumps_typed(rest),
            metadata=self.serde.dumps_typed(kept),
            versions=checkpoint["channel_versions"],
            values={channel: dump(channel) for channel in new_versions},
            dump=dump,
            deltas=tuple(metadata.get("counters_since_delta_snapshot") or ()),
            stub=metadata.get("step") == _STUB,
        )

    def _new_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Callable[[Scope], Any]:
        dumped = [
            (WRITES_IDX_MAP.get(channel, index), channel, self.serde.dumps_typed(value), task_path)
            for index, (channel, value) in enumerate(writes)
        ]
        checkpoint = str(config["configurable"]["checkpoint_id"])
        return partial(
            self._checkpoints.put_writes, lane=_lane(config), checkpoint=checkpoint, task=task_id, writes=dumped
        )

    async def _page(
        self, scope: Scope, config: RunnableConfig | None, before: RunnableConfig | None, cursor: str | None
    ) -> tuple[Sequence[StoredCheckpoint], str | None]:
        until = _asked(before) if before else None
        if config is None:
            return await self._checkpoints.page(scope, None, None, before=until, cursor=cursor)
        asked = config["configurable"]
        thread, namespace = str(asked["thread_id"]), asked.get("checkpoint_ns")
        lane = Lane(thread, namespace) if namespace is not None else None
        wanted = _asked(config)
        if wanted is None:
            return await self._checkpoints.page(scope, lane, thread, before=until, cursor=cursor)
        if until is not None and wanted >= until:
            return [], None
        found, _ = await self._checkpoints.page(scope, lane, thread, before=f"{wanted}\0", cursor=None)
        return [stored for stored in found if stored.id == wanted], None

    async def _delete(self, scope: Scope, threads: Sequence[str]) -> None:
        for thread in threads:
            await pruning.delete_thread(scope, thread)
        self._checkpoints.forget()

    def _pruning(self, threads: Sequence[str], strategy: str) -> Callable[[Scope], Any]:
        if strategy == "delete":
            return partial(self._delete, threads=threads)
        if strategy != "keep_latest":
            raise ValueError(f"strategy must be 'keep_latest' or 'delete', not {strategy!r}")

        async def prune(scope: Scope) -> None:
            for thread in threads:
                await pruning.prune(scope, self._checkpoints, thread)

        return prune

    async def _call(self, function: Callable[[Scope], Any]) -> Any:
        return await self._connection.call(lambda kernel: function(kernel.scoped(self._partition)))

    def _call_sync(self, function: Callable[[Scope], Any]) -> Any:
        return self._connection.call_sync(lambda kernel: function(kernel.scoped(self._partition)))

    # ------------------------------------------------------------------------------------------------ from the storage

    def _matching(self, found: Sequence[StoredCheckpoint], wanted: dict[str, Any] | None) -> Sequence[StoredCheckpoint]:
        if not wanted:
            return found
        matching = []
        for stored in found:
            metadata = self.serde.loads_typed(stored.metadata)
            if all(metadata.get(key) == value for key, value in wanted.items()):
                matching.append(stored)
        return matching

    def _tuple(self, found: Loaded, *, addressed: bool) -> CheckpointTuple:
        stored, load = found.stored, self.serde.loads_typed
        values = {channel: load(found.value(kept.value)) for channel, kept in stored.channels.items()}
        checkpoint = cast("Checkpoint", {**load(stored.checkpoint), "channel_values": values})
        return CheckpointTuple(
            config=_config(stored.lane, RequestedId(stored.id) if addressed else stored.id),
            checkpoint=checkpoint,
            metadata=load(stored.metadata),
            parent_config=_config(stored.lane, RequestedId(stored.parent)) if stored.parent else None,
            pending_writes=[(task, write.channel, load(found.value(write.value))) for task, write in found.writes],
        )

    def _histories(self, found: Mapping[str, History]) -> dict[str, DeltaChannelHistory]:
        load = self.serde.loads_typed
        result: dict[str, DeltaChannelHistory] = {}
        for channel, history in found.items():
            entry: DeltaChannelHistory = {
                "writes": [(task, channel, load(value)) for task, channel, value in history.writes]
            }
            if history.seed is not None:
                entry["seed"] = load(history.seed)
            result[channel] = entry
        return result


_FILL = 20  # checkpoints whose values are in memory at once


def _lane(config: RunnableConfig) -> Lane:
    asked = config["configurable"]
    return Lane(str(asked["thread_id"]), asked.get("checkpoint_ns", ""))


def _asked(config: RunnableConfig) -> str | None:
    """Return the id of the requested checkpoint as a plain string."""
    wanted = get_checkpoint_id(config)
    return str(wanted) if wanted else None


def _config(lane: Lane, checkpoint: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": lane.thread,
            "checkpoint_ns": lane.namespace,
            "checkpoint_id": checkpoint,
        }
    }
