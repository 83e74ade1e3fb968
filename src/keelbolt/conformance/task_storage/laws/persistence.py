"""Stored values are returned unchanged: of tasks, of contexts, and after a reopen."""

from __future__ import annotations

import asyncio
from typing import Any

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.task_storage.subject import (
    AnyStorage,
    TaskStoragePlace,
    artifact,
    bound,
    law,
    loaded,
    made,
    message,
    new,
    place_law,
    said,
)
from keelbolt.errors import ConcurrencyError, TaskTerminalStateError
from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.tasks.storage import ArtifactWrite

TEXTS = [
    "",
    " ",
    "äöü ß",
    "日本語",
    "👩‍👩‍👧",
    "\u202eright to left",
    "line\nline\ttab",
    "\x00\x01\x7f",
    "'; DROP TABLE",
    '"\\',
]


@law()
async def any_text_is_stored(storage: AnyStorage) -> None:
    """Every valid text is loaded character for character, in messages, artifacts and metadata."""
    task = await storage.create_task("talk", Message(message_id="m", role=Role.user, parts=[Part(text=TEXTS[3])]))
    for text in TEXTS:
        await storage.update_task(
            task.id, artifacts=[ArtifactWrite(artifact("a", text))], task_metadata={f"key {text}": text}
        )
        equal(made(await loaded(storage, task)), {"a": [text]}, "the artifact")
    equal((await loaded(storage, task)).metadata, {f"key {text}": text for text in TEXTS}, "the metadata")


@law()
async def any_json_is_stored(storage: AnyStorage) -> None:
    """Numbers, lists and nested objects are loaded with their types."""
    task = await new(storage)
    value = {"int": 1, "float": 1.5, "large": 2**53, "no": None, "yes": True, "list": [1, [2, {"a": {}}]], "": ""}
    await storage.update_task(task.id, task_metadata=value)
    equal((await loaded(storage, task)).metadata, value, "the metadata")


@law()
async def every_kind_of_part_is_stored(storage: AnyStorage) -> None:
    """Text, bytes, URL and data of the first message are loaded as they were written."""
    given = message().model_copy(
        update={
            "parts": [
                Part(text="text", media_type="text/markdown"),
                Part(raw=b"\x00\xff", filename="x"),
                Part(url="https://example.com/"),
                Part(data=[1, {"a": None}]),
            ],
            "metadata": {"a": {"b": []}},
            "extensions": ["https://example.com/x"],
            "reference_task_ids": ["other"],
        }
    )
    task = await loaded(storage, await storage.create_task("talk", given))
    wanted = given.model_copy(update={"task_id": task.id, "context_id": "talk"})
    equal(task.history, [wanted], "the history")


@law()
async def large_texts_are_stored(storage: AnyStorage) -> None:
    """A message of one megabyte is loaded completely."""
    text = "0123456789" * 100_000
    task = await new(storage, text)
    equal(said(await loaded(storage, task)), [text], "the large message")


@law()
async def names_of_contexts_are_any_text(storage: AnyStorage) -> None:
    """Contexts are distinguished by their whole names, case included."""
    names = ["talk", "Talk", "talk ", "töne", "a/b", "a:b", "%", "_", "x" * 200]
    tasks = [await storage.create_task(name, message(), idempotency_key="k") for name in names]
    equal(len({task.id for task in tasks}), len(names), "different tasks")
    equal([(await loaded(storage, task)).context_id for task in tasks], names, "the contexts")


# ------------------------------------------------------------------------------------------------------------- contexts


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


# ------------------------------------------------------------------------------------------------------------- reopened


@place_law("persistent")
async def tasks_survive(place: TaskStoragePlace) -> None:
    """A task is loaded completely after a reopen."""
    async with place.open() as storage:
        task = await new(storage, "1")
        await storage.update_task(
            task.id,
            TaskState.completed,
            status_message=bound(task, "Done"),
            messages=[bound(task, "2")],
            artifacts=[ArtifactWrite(artifact("a", "x"))],
            task_metadata={"a": 1},
        )
        before = await loaded(storage, task)
    async with place.open() as storage:
        after = await loaded(storage, task)
        equal((said(after), made(after)), (["1", "2"], {"a": ["x"]}), "history and artifacts")
        equal(after, before, "the task")


@place_law("persistent")
async def guards_survive(place: TaskStoragePlace) -> None:
    """Terminal states and versions are guarded after a reopen."""
    async with place.open() as storage:
        ended, running = await new(storage), await new(storage)
        await storage.update_task(ended.id, TaskState.canceled)
        stale = await storage.update_task(running.id, TaskState.working)
        version = await storage.update_task(running.id, task_metadata={"a": 1})
    async with place.open() as storage:
        with raises(TaskTerminalStateError):
            await storage.update_task(ended.id, TaskState.completed)
        with raises(ConcurrencyError):
            await storage.update_task(running.id, TaskState.completed, expected_version=stale)
        await storage.update_task(running.id, TaskState.completed, expected_version=version)


@place_law("persistent")
async def keys_survive(place: TaskStoragePlace) -> None:
    """An idempotency key returns its task after a reopen."""
    async with place.open() as storage:
        task = await storage.create_task("talk", message(), idempotency_key="key")
    async with place.open() as storage:
        again = await storage.create_task("talk", message(), idempotency_key="key")
        equal(again.id, task.id, "the id of the repeated task")
