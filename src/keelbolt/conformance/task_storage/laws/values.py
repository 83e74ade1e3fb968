"""What is written comes back."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.task_storage.samples import artifact, loaded, made, message, new, said
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.protocol.types import Message, Part, Role
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
