"""The files of tasks, for the owner of the task."""

from __future__ import annotations

import re

from keelbolt.errors import MethodNotFoundError
from keelbolt.kernel import BlobReader
from keelbolt.operations.call import OpsCall
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.files import TaskFile, open_file

_DIGEST = re.compile(r"[0-9a-f]{64}")


class FileOperations:
    """The handler of the route for files; its response is not JSON."""

    def __init__(self, engine: TaskEngine) -> None:
        self._tasks = engine.tasks

    async def read_file(self, call: OpsCall) -> tuple[TaskFile, BlobReader]:
        digest = call.names["digest"]
        found = None
        if _DIGEST.fullmatch(digest):
            found = await open_file(self._tasks.scope(call.principal), call.task_id, digest)
        if found is None:
            raise MethodNotFoundError("there is no such file")
        return found
