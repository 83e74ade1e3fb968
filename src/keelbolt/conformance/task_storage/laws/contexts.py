"""One value is kept for each context."""

from __future__ import annotations

import asyncio
from typing import Any

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.task_storage.samples import loaded, new
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.errors import ConcurrencyError


@law("update_context")
async def an_unknown_context_is_none(storage: AnyStorage) -> None:
    """Loading a context without stored data returns None, also if the context has tasks."""
    await new(storage, context="talk")
    equal(await storage.load_context("talk"), None, "the context")


@law("update_context")
async def a_context_is_loaded(storage: AnyStorage) -> None:
    """The last update of a context is loaded."""
    for value in ({"a": [1, {"b": None}], "ü": "日本"}, {"c": 2}):
        await storage.update_context("talk", value)
        equal(await storage.load_context("talk"), value, "the context")


@law("update_context")
async def contexts_are_separate(storage: AnyStorage) -> None:
    """The data of one context is not visible in another."""
    await storage.update_context("one", {"n": 1})
    await storage.update_context("two", {"n": 2})
    equal(await storage.load_context("one"), {"n": 1}, "the first context")
    equal(await storage.load_context("three"), None, "a third context")


@law("update_context")
async def a_loaded_context_is_a_copy(storage: AnyStorage) -> None:
    """Changes that a caller makes to a context it loaded or passed are not stored."""
    given: dict[str, Any] = {"list": [1]}
    await storage.update_context("talk", given)
    given["list"].append(2)
    equal(await storage.load_context("talk"), {"list": [1]}, "the context after the given one was changed")
    mine: Any = await storage.load_context("talk")
    mine["list"].append(3)
    equal(await storage.load_context("talk"), {"list": [1]}, "the context after the loaded one was changed")


@law("update_context")
async def a_context_needs_no_task(storage: AnyStorage) -> None:
    """Contexts and tasks are independent: an update of one does not change the other."""
    task = await new(storage, context="talk")
    await storage.update_context("talk", {"a": 1})
    equal((await loaded(storage, task)).metadata, task.metadata, "the metadata of the task")
    await storage.update_task(task.id, task_metadata={"b": 2})
    equal(await storage.load_context("talk"), {"a": 1}, "the context")


@law("load_context_version")
async def a_context_has_a_version(storage: Any) -> None:
    """The version of a context is 0 at first, and each update returns a larger one."""
    equal(await storage.load_context_version("talk"), (None, 0), "the context at first")
    first = await storage.update_context("talk", {"a": 1}, version=0)
    equal(await storage.load_context_version("talk"), ({"a": 1}, first), "the context after the update")
    second = await storage.update_context("talk", {"a": 2}, version=first)
    expect(second > first > 0, f"the versions are {first} and {second}")


@law("load_context_version")
async def a_stale_context_is_refused(storage: Any) -> None:
    """An update that expects another version raises ConcurrencyError and stores nothing."""
    first = await storage.update_context("talk", {"a": 1})
    await storage.update_context("talk", {"a": 2})
    for stale in (0, first, 1000):
        with raises(ConcurrencyError):
            await storage.update_context("talk", {"a": 3}, version=stale)
    equal(await storage.load_context("talk"), {"a": 2}, "the context")


@law("load_context_version")
async def no_update_of_a_context_is_lost(storage: Any) -> None:
    """A counter that twenty callers increment by its version ends at twenty."""

    async def increment() -> None:
        while True:
            value, version = await storage.load_context_version("talk")
            await asyncio.sleep(0)  # let the others load, too
            try:
                await storage.update_context("talk", (value or 0) + 1, version=version)
            except ConcurrencyError:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(20)))
    equal(await storage.load_context("talk"), 20, "the counter")
