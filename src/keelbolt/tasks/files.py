"""Files of a task: blobs that are kept as long as the task. Their owner downloads them from the server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic_core import from_json, to_json

from keelbolt.errors import BlobNotFound
from keelbolt.kernel import Attach, BlobReader, Fence, Put, Scope
from keelbolt.kernel.blobs import BlobSource
from keelbolt.tasks.families import FILES, file_holder

LINK = b'"url":"/keelbolt/v1/tasks/'  # start of the JSON of a link to any task file
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
        """The path of the file on the server."""
        return f"/keelbolt/v1/tasks/{self.task_id}/files/{self.digest}"


def with_addresses(json: bytes, base: str) -> bytes:
    """Replace the path of each task file in the member ``url`` by its full address, in the JSON of a task or event.

    ``base`` is the address of the server. Storage keeps paths, because the address of a server may change.
    """
    if json.find(LINK) < 0 or not base:  # `in` takes twice as long as `find`
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
    """Store a file with its task. The same bytes give the same file."""
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
    """Return a file of this task and its bytes, or None if the task has no such file."""
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
