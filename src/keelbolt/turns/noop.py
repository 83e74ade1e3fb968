"""A storage that stores nothing, for prototypes and tests."""

from __future__ import annotations

from typing import Any

from keelbolt.turns.callbacks import StorageCallbacks
from keelbolt.turns.context import TurnContext
from keelbolt.turns.memory_bytes import InMemorySpoolStore, in_memory_media_reader
from keelbolt.turns.readers import ByteSource, MediaReader, SpoolReader


def noop_storage() -> StorageCallbacks:
    """Return all 27 callbacks. Fetches return nothing and writes are dropped; bytes stay in memory, since they are
    read.

    runner = TurnRunner(executor_callback=execute, **noop_storage() | {"store_message_callback": store})
    """
    spool = InMemorySpoolStore()  # shared by all calls: bytes stored under an id must be found under it

    async def fetch(_ctx: TurnContext) -> list[Any]:
        return []

    async def forget(_ctx: TurnContext, _value: Any) -> None:
        return None

    async def media(_ctx: TurnContext, _id: str, data: ByteSource) -> MediaReader:
        return await in_memory_media_reader(data)

    async def text(_ctx: TurnContext, key: str, data: ByteSource) -> SpoolReader:
        return await spool.write(key, data)

    return {
        "fetch_memories_callback": fetch,
        "fetch_messages_callback": fetch,
        "fetch_thoughts_callback": fetch,
        "fetch_tool_calls_callback": fetch,
        "fetch_tools_callback": fetch,
        "fetch_retrievables_callback": fetch,
        "refresh_standing_instructions_callback": fetch,
        "store_message_callback": forget,
        "mutate_message_callback": forget,
        "delete_message_callback": forget,
        "store_memory_callback": forget,
        "mutate_memory_callback": forget,
        "delete_memory_callback": forget,
        "store_thought_callback": forget,
        "mutate_thought_callback": forget,
        "delete_thought_callback": forget,
        "store_tool_call_callback": forget,
        "mutate_tool_call_callback": forget,
        "delete_tool_call_callback": forget,
        "store_retrievable_callback": forget,
        "mutate_retrievable_callback": forget,
        "delete_retrievable_callback": forget,
        "store_standing_instruction_callback": forget,
        "mutate_standing_instruction_callback": forget,
        "delete_standing_instruction_callback": forget,
        "store_media_bytes_callback": media,
        "store_retrievable_bytes_callback": text,
    }
