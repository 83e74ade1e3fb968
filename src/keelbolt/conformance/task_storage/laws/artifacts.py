"""Artifacts are written: each in the place of the one before, or behind it."""

from __future__ import annotations

from keelbolt.conformance.expect import equal
from keelbolt.conformance.task_storage.samples import artifact, loaded, made, new
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.protocol.types import Artifact, Part
from keelbolt.tasks.storage import ArtifactWrite


@law()
async def an_artifact_is_added(storage: AnyStorage) -> None:
    """An artifact with a new id is added after the others."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1"))])
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("b", "2", "3"))])
    now = made(await loaded(storage, task))
    equal(now, {"a": ["1"], "b": ["2", "3"]}, "the artifacts")
    equal(list(now), ["a", "b"], "the order of the artifacts")


@law()
async def a_write_without_append_replaces(storage: AnyStorage) -> None:
    """An artifact with a known id replaces the stored one at its position."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1", "2"))])
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "3"))])
    equal(made(await loaded(storage, task)), {"a": ["3"]}, "the artifacts")


@law()
async def a_write_with_append_adds_parts(storage: AnyStorage) -> None:
    """With append, the parts are added after the stored ones, in order."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1"))])
    for text in ("2", "3"):
        await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", text), append=True)])
    equal(made(await loaded(storage, task)), {"a": ["1", "2", "3"]}, "the artifacts")


@law()
async def an_append_with_a_new_id_creates_the_artifact(storage: AnyStorage) -> None:
    """With append and a new id, the artifact is created."""
    task = await new(storage)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "1"), append=True)])
    equal(made(await loaded(storage, task)), {"a": ["1"]}, "the artifacts")


@law()
async def append_and_replace_mix_in_one_update(storage: AnyStorage) -> None:
    """One update can append to one artifact and replace another."""
    task = await new(storage)
    before = [ArtifactWrite(artifact("a", "1")), ArtifactWrite(artifact("b", "1"))]
    await storage.update_task(task.id, artifacts=before)
    writes = [
        ArtifactWrite(artifact("a", "2"), append=True),
        ArtifactWrite(artifact("b", "2")),
        ArtifactWrite(artifact("c", "2")),
    ]
    await storage.update_task(task.id, artifacts=writes)
    equal(made(await loaded(storage, task)), {"a": ["1", "2"], "b": ["2"], "c": ["2"]}, "the artifacts")


@law()
async def writes_of_one_artifact_apply_in_order(storage: AnyStorage) -> None:
    """Several writes of one artifact in one update take effect in their order."""
    task = await new(storage)
    writes = [
        ArtifactWrite(artifact("a", "1")),
        ArtifactWrite(artifact("a", "2"), append=True),
        ArtifactWrite(artifact("a", "3"), append=True),
    ]
    await storage.update_task(task.id, artifacts=writes)
    equal(made(await loaded(storage, task)), {"a": ["1", "2", "3"]}, "the artifacts")


@law()
async def an_artifact_is_stored_unchanged(storage: AnyStorage) -> None:
    """Name, description, metadata, extensions and every kind of part are loaded as they were written."""
    task = await new(storage)
    given = Artifact(
        artifact_id="a",
        name="report.pdf",
        description="What was found",
        metadata={"pages": 3},
        extensions=["https://example.com/x"],
        parts=[
            Part(text="text", metadata={"a": 1}),
            Part(raw=bytes(range(256)), media_type="application/octet-stream", filename="x.bin"),
            Part(url="https://example.com/file"),
            Part(data={"deep": [{"er": None}]}),
        ],
    )
    await storage.update_task(task.id, artifacts=[ArtifactWrite(given)])
    equal((await loaded(storage, task)).artifacts, [given], "the stored artifact")


@law()
async def an_artifact_changed_later_changes_no_task(storage: AnyStorage) -> None:
    """Changes that a caller makes to its artifact after the call are not stored."""
    task = await new(storage)
    given = artifact("a", "1")
    await storage.update_task(task.id, artifacts=[ArtifactWrite(given)])
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "2"), append=True)])
    equal(len(given.parts), 1, "the number of parts of the caller's artifact")
    given.parts.clear()
    equal(made(await loaded(storage, task)), {"a": ["1", "2"]}, "the stored artifact")


@law()
async def many_appends_keep_their_order(storage: AnyStorage) -> None:
    """Six hundred appended chunks are all stored, in order."""
    task = await new(storage)
    for number in range(600):
        await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", str(number)), append=True)])
    equal(made(await loaded(storage, task)), {"a": [str(number) for number in range(600)]}, "the artifact")
