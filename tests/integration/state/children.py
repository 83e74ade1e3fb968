"""Programs for other processes: ``python -m tests.integration.state.children NAME URL …``."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path

from keelbolt.errors import StateNotSaved
from keelbolt.state import StateStore
from tests.integration.state.things import event, planned, task, trajectory, update

ROOT = Path(__file__).parents[3]


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs one of these programs."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.state.children", name, *arguments],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(name: str, *arguments: str) -> str:
    """Run such a process to its end; return its output."""
    process = start(name, *arguments)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def leaves(url: str) -> None:
    """Save without a loop, without awaiting, without closing, and end."""
    store = StateStore(url)
    for number in range(40):
        store.save_event(event(float(number)))
        store.save_update(update(number))
        store.save_planner_event("trace", planned(number))
    store.save_task(task())
    store.save_trajectory("trace", "session", trajectory())
    store.save_planner_state("token", {"kept": True})


def acknowledges(url: str, ending: str, behind: str = "") -> None:
    """Save one item of each kind at a time, print its number when it is acknowledged, and end without closing."""
    asyncio.run(_acknowledge(StateStore(url, write_behind=bool(behind)), ending))


async def _acknowledge(store: StateStore, ending: str) -> None:
    for number in range(10_000 if ending == "killed" else 20):
        await store.save_event(event(float(number)))
        await store.save_update(update(number))
        await store.save_planner_event("trace", planned(number))
        await store.save_trajectory(f"trace-{number}", "session", trajectory())
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
    if ending == "os._exit":
        os._exit(0)
    await asyncio.sleep(60)  # until a signal arrives


def forked(url: str, behind: str = "") -> None:
    """Save in a child of multiprocessing with an inherited store."""
    store = StateStore(url, write_behind=bool(behind))
    child = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(_wait(store.save_event(event()))))
    child.start()
    child.join()
    sys.exit(child.exitcode)


def unreachable(url: str) -> None:
    """Save events with write-behind to an unreachable storage: the next call raises, and so does the exit."""
    asyncio.run(_unreachable(StateStore(url, write_behind=True, timeout_seconds=2.0)))


async def _unreachable(store: StateStore) -> None:
    await store.save_event(event())
    with contextlib.suppress(StateNotSaved):
        for number in range(200):
            await asyncio.sleep(0.02)
            await store.save_event(event(float(number)))
        sys.stdout.write("never raised")


def loops(url: str) -> None:
    """Use one store in two event loops, one after the other, and in a thread between them."""
    store = StateStore(url, types="own")

    async def save(number: int) -> None:
        await store.save_event(event(float(number)))
        await store.save_task(task(number))
        assert len(await store.list_tasks("session")) == number

    asyncio.run(save(1))
    asyncio.run(save(2))
    asyncio.run(asyncio.to_thread(asyncio.run, save(3)))
    sys.stdout.write(str(len(asyncio.run(_history(store)))))


async def _history(store: StateStore) -> list[object]:
    return list(await store.load_history("trace"))


def forks(url: str) -> None:
    """Use a store before and after fork(), in both processes."""
    store = StateStore(url)
    asyncio.run(_wait(store.save_memory_state("parent", {"n": 1})))
    child = os.fork()
    if child == 0:
        with contextlib.suppress(StateNotSaved):  # an SQLite file can't be opened on both sides of a fork()
            asyncio.run(_wait(store.save_memory_state("child", {"n": 2})))
        os._exit(0)
    asyncio.run(_wait(store.save_memory_state("parent", {"n": 2})))
    assert os.waitpid(child, 0)[1] == 0


async def _wait(saving: Awaitable[None]) -> None:
    await saving


def gone(url: str, policy: str, spool: str = "") -> None:
    """Save to an unreachable storage, and end."""
    store = StateStore(url, policy=policy, spool=spool or None, exit_seconds=1.0)  # type: ignore[arg-type]
    for number in range(5):
        store.save_event(event(float(number)))
    store.save_planner_state("token", {"kept": True})
    sys.stdout.write("done")


def takes(url: str, count: str) -> None:
    """Wait for a line, then take every available pause."""
    asyncio.run(_take(StateStore(url), int(count)))


async def _take(store: StateStore, count: int) -> None:
    await store.load_planner_state("none")  # open it first, so that both start at the same time
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(count):
        if await store.load_planner_state(f"token-{number}") is not None:
            sys.stdout.write(f"{number}\n")


def remembers(url: str, who: str, count: str) -> None:
    """Add turns to a conversation that another process adds to at the same time."""
    asyncio.run(_remember(StateStore(url), who, int(count)))


async def _remember(store: StateStore, who: str, count: int) -> None:
    from keelbolt.state.memory import ConversationTurn, MemoryBudget, ShortTermMemory, ShortTermMemoryConfig

    config = ShortTermMemoryConfig(
        strategy="truncation", budget=MemoryBudget(full_zone_turns=1000, total_max_tokens=1_000_000)
    )
    memory = ShortTermMemory(config)
    await memory.hydrate(store, "key")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(count):
        await memory.add_turn(ConversationTurn(f"{who}-{number}", "answer"))
        await memory.persist(store, "key")


def pauses(url: str) -> None:
    """Run a planner that asks the user and ends with its process."""
    from tests.integration.state.agents import CONTEXT, planner

    sys.stdout.write(asyncio.run(planner(StateStore(url), "ask").run("q", tool_context=dict(CONTEXT))).resume_token)


def resumes(url: str, token: str) -> None:
    """Resume the pause with a planner in another process."""
    from tests.integration.state.agents import planner

    try:
        asyncio.run(planner(StateStore(url)).resume(token, user_input="yes"))
    except KeyError:
        sys.stdout.write("too late")
    else:
        sys.stdout.write("finished")


def works(url: str, count: str) -> None:
    """Run a stateless worker: claim free jobs, and run a new flow for each."""
    asyncio.run(_work(StateStore(url), int(count)))


async def _work(store: StateStore, count: int) -> None:
    from tests.integration.state.agents import shout

    await store.load_planner_state("none")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(count):
        job = await store.load_planner_state(f"job-{number}")
        if job is not None:
            await store.save_memory_state(f"answer-{number}", {"answer": await shout(store, f"trace-{number}", **job)})
            sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
