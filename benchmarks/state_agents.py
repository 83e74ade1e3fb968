"""penguiflow's own flow and planner as users of a store: five nodes, and an answer in five hundred chunks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

NODES = 5
CHUNKS = 500
CHUNK_SECONDS = 0.002  # 500 tokens per second: faster than real models


@contextlib.asynccontextmanager
async def flow_on(store: Any) -> AsyncIterator[Any]:
    """Return a running flow of five nodes that pass a message on."""
    import penguiflow

    async def passes(message: Any, _ctx: Any) -> Any:
        return message

    policy = penguiflow.NodePolicy(validate="none")
    nodes = [penguiflow.Node(passes, name=f"node-{number}", policy=policy) for number in range(NODES)]
    ways = [node.to(*nodes[number + 1 : number + 2]) for number, node in enumerate(nodes)]
    flow = penguiflow.create(*ways, state_store=store)
    flow.run()
    try:
        yield flow
    finally:
        await flow.stop()


async def messages(flow: Any, count: int) -> None:
    """Send this many messages through the flow, one after another."""
    import penguiflow

    headers = penguiflow.Headers(tenant="bench")
    for number in range(count):
        await flow.emit(penguiflow.Message(payload={"n": number}, headers=headers))
        await flow.fetch()


def streaming_planner(store: Any) -> Any:
    """Return a planner whose model calls no tool and answers in chunks, with a pause before each."""
    from penguiflow.catalog import build_catalog
    from penguiflow.planner import ReactPlanner
    from penguiflow.planner.llm import _LiteLLMJSONClient
    from penguiflow.registry import ModelRegistry

    class Model(_LiteLLMJSONClient):  # type: ignore[misc]  # the planner streams from its own clients only
        def __init__(self) -> None:
            pass

        async def complete(self, **request: Any) -> tuple[str, float]:
            step = {"thought": "", "next_node": "final_response", "args": {"answer": "word" * CHUNKS}}
            text = json.dumps(step)
            for start in range(0, len(text), 4):
                await asyncio.sleep(CHUNK_SECONDS)
                request["on_stream_chunk"](text[start : start + 4], False)
            request["on_stream_chunk"]("", True)
            return text, 0.0

    catalog = build_catalog([], ModelRegistry())
    return ReactPlanner(
        llm_client=Model(),
        catalog=catalog,
        state_store=store,
        stream_final_response=True,
        event_callback=lambda _event: None,
    )


async def streamed(store: Any, trace: str) -> float:
    """Return the seconds of a streamed answer, until it is stored completely."""
    planner = streaming_planner(store)
    context = {"tenant_id": "t", "user_id": "u", "session_id": "session", "trace_id": trace}
    began = time.perf_counter()
    await planner.run("q", tool_context=context)
    if store is not None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        await store.flush()
    return time.perf_counter() - began
