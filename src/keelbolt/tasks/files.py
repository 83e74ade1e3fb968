"""Files of a task: blobs that it holds, for as long as it is kept. Their owner gets them from the server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic_core import from_json, to_json

from keelbolt.errors import BlobNotFound
from keelbolt.storage import Attach, BlobReader, Fence, Put, Scope
from keelbolt.storage.blobs import BlobSource
from keelbolt.tasks.families import FILES, file_holder

LINK = b'"url":"/keelbolt/v1/tasks/'  # how the JSON of a link to any of our files begins
_LINKS = re.compile(rb'"url":"(?=/keelbolt/v1/tasks/[^"/]+/files/[0-9a-f]{64}")')


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file that a task holds; ``digest`` is the SHA-256 of its bytes."""

    task_id: str
    digest: str
    size: int
    media_type: str | None = None
    filename: str | None = None

    @property
    def path(self) -> str:
        """Where the server has it, below its own address."""
        return f"/keelbolt/v1/tasks/{self.task_id}/files/{self.digest}"


def with_addresses(json: bytes, base: str) -> bytes:
    """The JSON of a task, message or event, in which every member ``url`` that is the path of a file is its address.

    ``base`` is the address of the server. Storage keeps paths: a server may move.
    """
    if json.find(LINK) < 0 or not base:  # `in` takes twice as long
        return json
    return _LINKS.sub(lambda _: b'"url":%b' % to_json(base)[:-1], json)


async def keep_file(
    scope: Scope,
    task_id: str,
    source: BlobSource,
    *fence: Fence,
    media_type: str | None = None,
    filename: str | None = None,
) -> TaskFile:
    """Keep a file with its task. The same bytes again are the same file."""
    blob = await scope.stage_blob(source)
    file = TaskFile(task_id, blob.digest, blob.size, media_type, filename)
    body = to_json({"size": file.size, "mediaType": media_type, "filename": filename})
    await scope.commit(
        *fence,
        Attach(blob.digest, file_holder(task_id)),
        Put(FILES, _key(task_id, blob.digest), body, {"task": task_id}),
    )
    return file


async def open_file(scope: Scope, task_id: str, digest: str) -> tuple[TaskFile, BlobReader] | None:
    """A file of this task and its bytes; None: the task has no such file."""
    found = await scope.get(FILES, _key(task_id, digest))
    if found is None:
        return None
    body = from_json(found.body)
    file = TaskFile(task_id, digest, body["size"], body["mediaType"], body["filename"])
    try:
        return file, await scope.open_blob(digest)
    except BlobNotFound:  # the task was erased meanwhile
        return None


def _key(task_id: str, digest: str) -> str:
    return f"{task_id}/{digest}"
