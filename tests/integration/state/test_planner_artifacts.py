"""Tools of penguiflow's planner with Keelbolt's artifacts: discovery, scopes, and ctx.kv without expiry."""

from __future__ import annotations

import json
from typing import Any

from penguiflow.artifacts import NoOpArtifactStore, ScopedArtifacts
from penguiflow.catalog import build_catalog, tool
from penguiflow.node import Node
from penguiflow.planner import ReactPlanner
from penguiflow.registry import ModelRegistry
from pydantic import BaseModel

from keelbolt.state import ArtifactRetentionConfig, ArtifactScope, StateStore
from keelbolt.state.artifacts import ArtifactStore

LONG = "x" * 20_000  # long enough for ctx.kv to store it as an artifact
WHEN = 1_800_000_000.0


class Words(BaseModel):
    text: str


@tool(desc="Keeps a file and a value.")  # type: ignore[untyped-decorator]
async def keep(args: Words, ctx: Any) -> Words:
    assert isinstance(ctx.artifacts, ScopedArtifacts)
    ref = await ctx.artifacts.upload(args.text.encode(), filename="a.txt", namespace="keep")
    await ctx.kv.set("long", LONG, namespace="tools")
    return Words(text=ref.id)


@tool(desc="Reads the value.")  # type: ignore[untyped-decorator]
async def read(args: Words, ctx: Any) -> Words:
    found = await ctx.kv.get("long", namespace="tools")
    data = await ctx.artifacts.download(args.text)
    return Words(text=f"{len(found or '')} {data!r}")


class Model:
    """A model that calls one tool and answers with its result."""

    def __init__(self, name: str, text: str) -> None:
        self.steps: list[dict[str, Any]] = [
            {"next_node": name, "args": {"text": text}},
            {"next_node": "final_response", "args": {"raw_answer": "done"}},
        ]

    async def complete(self, **_asked: Any) -> tuple[str, float]:
        return json.dumps({"thought": "", **self.steps.pop(0)}), 0.0


class Store(StateStore):
    """A store whose artifacts have a manual clock."""

    now = WHEN

    @property
    def artifact_store(self) -> ArtifactStore:
        retention = ArtifactRetentionConfig(ttl_seconds=60)
        return ArtifactStore(self.desk, retention=retention, clock=lambda: self.now)


async def run(store: StateStore, name: str, text: str, session: str = "s") -> str:
    registry = ModelRegistry()
    for tool_name in ("keep", "read"):
        registry.register(tool_name, Words, Words)
    catalog = build_catalog([Node(keep, name="keep"), Node(read, name="read")], registry)
    planner = ReactPlanner(llm_client=Model(name, text), catalog=catalog, state_store=store)
    assert not isinstance(planner.artifact_store, NoOpArtifactStore)
    context = {"tenant_id": "t", "user_id": "u", "session_id": session, "task_id": "task", "trace_id": f"trace-{name}"}
    result = await planner.run("go", tool_context=context)
    observed = result.metadata["steps"][0]["observation"]
    return str(observed["text"])


async def test_tools_store_artifacts_and_values(url: str) -> None:
    async with Store(url) as store:
        artifact = await run(store, "keep", "hello")
        assert await run(store, "read", artifact) == "20000 b'hello'"
        assert await run(store, "read", artifact, "other") == "0 None"
        kept = await store.artifact_store.list(scope=ArtifactScope(session_id="s"))
        assert sorted(str(ref.namespace) for ref in kept) == ["keep", "session_kv"]
        store.now = WHEN + 10**9
        assert await run(store, "read", artifact) == "20000 None"
