"""Graphs for the tests: with parallel nodes, an interrupt, a subgraph and a counter of executions."""

from __future__ import annotations

import operator
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    document: str
    approved: bool


def build(checkpointer: Any, *, note: Any = None) -> Any:
    """plan → (search ∥ read) → inner(first → second) → approve (interrupt) → write; ``note`` is called per node."""

    def node(name: str, **changes: Any) -> Any:
        def run(state: State) -> dict[str, Any]:
            if note is not None:
                note(name)
            return {"log": [name], **changes}

        return run

    def approve(state: State) -> dict[str, Any]:
        if note is not None:
            note("approve")
        answer = interrupt({"question": "publish?"})
        return {"log": [f"approved {answer}"], "approved": answer == "yes"}

    inner = StateGraph(State)
    inner.add_node("first", node("first"))
    inner.add_node("second", node("second"))
    inner.add_edge(START, "first")
    inner.add_edge("first", "second")
    inner.add_edge("second", END)

    outer = StateGraph(State)
    outer.add_node("plan", node("plan", document="x" * 2000))
    outer.add_node("search", node("search"))
    outer.add_node("read", node("read"))
    outer.add_node("inner", inner.compile())
    outer.add_node("approve", approve)
    outer.add_node("write", node("write", document="y" * 3000))
    outer.add_edge(START, "plan")
    outer.add_edge("plan", "search")
    outer.add_edge("plan", "read")
    outer.add_edge(["search", "read"], "inner")
    outer.add_edge("inner", "approve")
    outer.add_edge("approve", "write")
    outer.add_edge("write", END)
    return outer.compile(checkpointer=checkpointer)


def main(url: str, thread: str, notes: str, kill_at: str) -> None:
    """Run or continue the graph of a thread to its end; kill this process when node number ``kill_at`` runs."""
    from keelbolt.langgraph import KeelboltSaver

    path = Path(notes)
    left = [int(kill_at)]

    def note(name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            time.sleep(0.5)  # LangGraph saves the writes of a node that runs in parallel in the background
            os.kill(os.getpid(), signal.SIGKILL)
        with path.open("a") as file:
            file.write(f"{name}\n")

    config: Any = {"configurable": {"thread_id": thread}}
    with KeelboltSaver(url) as saver:
        graph = build(saver, note=note)
        snapshot = graph.get_state(config)
        given: Any = {"log": ["begun"]} if not snapshot.values else None
        if snapshot.interrupts:
            given = Command(resume="yes")
        graph.invoke(given, config, durability="sync")
        if graph.get_state(config).interrupts:
            graph.invoke(Command(resume="yes"), config, durability="sync")
        print(repr(graph.get_state(config).values))


if __name__ == "__main__":
    main(*sys.argv[1:])
