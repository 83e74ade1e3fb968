"""A user of the framework adapters: LangGraph threads, OpenAI Agents sessions and ADK sessions, shared by processes."""

from __future__ import annotations

import asyncio
import operator
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import Session
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.graph import END, START, StateGraph

from keelbolt.errors import CheckpointConflict, KeelboltError
from keelbolt.google_adk import KeelboltSessionService
from keelbolt.langgraph import KeelboltSaver
from keelbolt.openai_agents import KeelboltSession
from tests.chaos.history import History, pace, rotating

APP, USER = "chaos", "ann"
ITEMS = 3  # of one add_items
PAUSE_SECONDS = 0.05


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


class NotingSaver(KeelboltSaver):
    """Records each acknowledged checkpoint and pending write."""

    def __init__(self, url: str, history: History) -> None:
        super().__init__(url)
        self._history = history

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place = config["configurable"]
        asked = self._history.ask("checkpoint", thread=place["thread_id"], id=checkpoint["id"])
        saved = await super().aput(config, checkpoint, metadata, new_versions)
        self._history.answer(asked, "checkpoint")
        return saved

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        place = config["configurable"]
        about = {"thread": place["thread_id"], "checkpoint": place["checkpoint_id"], "task": task_id}
        asked = self._history.ask("writes", **about)
        await super().aput_writes(config, writes, task_id, task_path)
        self._history.answer(asked, "writes")


def graph_on(saver: KeelboltSaver) -> Any:
    """(left ∥ right) → join; each node adds its name to the log."""

    def node(name: str) -> Any:
        async def run(_state: State) -> State:
            await asyncio.sleep(random.uniform(0, 0.01))
            return {"log": [name]}

        return run

    builder = StateGraph(State)
    for name in ("left", "right", "join"):
        builder.add_node(name, node(name))
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    builder.add_edge(["left", "right"], "join")
    builder.add_edge("join", END)
    return builder.compile(checkpointer=saver)


class FrameworkUser:
    """Works on threads and sessions that all users share."""

    def __init__(self, history: History, url: str, seed: int) -> None:
        self._history = history
        self._url = url
        self._dice = random.Random(seed)
        self._graph = graph_on(NotingSaver(url, history))
        self._adk = KeelboltSessionService(url)
        self._number = 0

    async def run(self) -> None:
        """Run until the process ends."""
        kinds = {self.graph: 4, self.resume: 1, self.add: 5, self.pop: 3, self.items: 1, self.append: 4}
        while True:
            what = self._dice.choices(list(kinds), list(kinds.values()))[0]
            try:
                await what()
            except (KeelboltError, TimeoutError):
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.sleep(pace() * self._dice.uniform(0, 0.05))

    def _next(self) -> str:
        self._number += 1
        return f"{self._history.id}-{self._number}"

    # ---------------------------------------------------------------------------------------------------- LangGraph

    async def graph(self) -> None:
        """Run a graph on a thread that other processes use, too."""
        await self._run_graph({"log": [self._next()]})

    async def resume(self) -> None:
        """Resume a run whose process may be dead."""
        await self._run_graph(None)

    async def _run_graph(self, given: State | None) -> None:
        thread = rotating(f"graph-{self._dice.randrange(2)}")
        name = given["log"][0] if given else None
        config = {"configurable": {"thread_id": thread}}
        if given is None and not (await self._graph.aget_state(config)).next:
            return
        asked = self._history.ask("graph", thread=thread, name=name)
        try:
            await self._graph.ainvoke(given, config, durability="sync")
        except CheckpointConflict:
            self._history.answer(asked, "graph", done=False)
        else:
            self._history.answer(asked, "graph", done=True)

    # ------------------------------------------------------------------------------------------------ OpenAI Agents

    def _session(self) -> KeelboltSession:
        return KeelboltSession(rotating("conversation"), self._url)

    async def add(self) -> None:
        """Add items; all or none are stored, next to each other."""
        name = self._next()
        async with self._session() as session:
            asked = self._history.ask("add", session=session.session_id, name=name)
            await session.add_items([{"role": "user", "content": f"{name}.{at}"} for at in range(ITEMS)])
            self._history.answer(asked, "add")

    async def pop(self) -> None:
        """Pop the newest item; only one caller gets it."""
        async with self._session() as session:
            asked = self._history.ask("pop", session=session.session_id)
            item: Any = await session.pop_item()
            self._history.answer(asked, "pop", item=item["content"] if item else None)

    async def items(self) -> None:
        """Read all items, in their order."""
        async with self._session() as session:
            asked = self._history.ask("items", session=session.session_id)
            found: list[Any] = list(await session.get_items())
            self._history.answer(asked, "items", items=[item["content"] for item in found])

    # ------------------------------------------------------------------------------------------------------- ADK

    async def append(self) -> None:
        """Append an event and the state that it changes, in one commit."""
        where, name = rotating("adk"), self._next()
        session = await self._open(where)
        event = Event(author="agent", invocation_id=name, actions=EventActions(state_delta={name: True}))
        asked = self._history.ask("append", session=where, name=name)
        try:
            await self._adk.append_event(session, event)
        except StaleSessionError:
            self._history.answer(asked, "append", done=False)
        else:
            self._history.answer(asked, "append", done=True)

    async def _open(self, where: str) -> Session:
        while True:
            found = await self._adk.get_session(app_name=APP, user_id=USER, session_id=where)
            if found is not None:
                return found
            try:
                return await self._adk.create_session(app_name=APP, user_id=USER, session_id=where)
            except AlreadyExistsError:
                continue


def run(url: str, folder: str, seed: str) -> None:
    """Run until the process ends."""
    asyncio.run(FrameworkUser(History(Path(folder), "framework"), url, int(seed)).run())
