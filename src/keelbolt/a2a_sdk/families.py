"""The data that the SDK's stores keep beside the tasks: push configs, and a directory of tasks. Needs no SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator

from keelbolt.data.families import EVERYTHING, ByField, Face, Family, Subject, SubjectLocation
from keelbolt.kernel import Collection, Index, Kernel, Query
from keelbolt.tasks.families import FACE as TASKS_FACE
from keelbolt.tasks.families import TASKS

CONFIGS = "sdk_push_configs"  # task id/config id, in the partition of the task's owner
DIRECTORY = "sdk_directory"  # task id → its owner's partition; ``whose`` is the same value, indexed
PARTITION = "~a2a-sdk"  # of the directory


async def _locate(kernel: Kernel, subject: Subject) -> AsyncIterator[SubjectLocation]:
    """Find the configs in the partitions of the tasks, and the directory's entries in their own partition."""
    directory = kernel.scoped(PARTITION)
    async for target in TASKS_FACE.locate(kernel, subject):
        match target.kind:
            case "task":
                yield target
                found = await directory.get(DIRECTORY, target.ref)
                if found is not None and found.body.decode() == target.scope.partition:
                    yield SubjectLocation(directory, "task", target.ref)
            case "context":
                query = Query(TASKS, {"context": target.ref}, order="updated")
                async for record in target.scope.scan(query):
                    yield SubjectLocation(target.scope, "task", record.key)
                    if await directory.get(DIRECTORY, record.key) is not None:
                        yield SubjectLocation(directory, "task", record.key)
            case _:
                yield SubjectLocation(target.scope, EVERYTHING)
                yield SubjectLocation(directory, "owner", target.scope.partition)


FACE = Face(
    name="a2a_sdk",
    kinds=("task", "context", "user", "tenant"),
    locate=_locate,
    more=(PARTITION,),
    families=(
        Family(
            title="SDK push configs",
            collection=Collection(
                CONFIGS, fields={"task": str}, indexes=(Index("task", equal=("task",)), Index("key"))
            ),
            found_by={"task": ByField("task")},
            hides=("token", "credentials", "sealed"),
        ),
        Family(
            title="SDK tasks",
            collection=Collection(
                DIRECTORY, fields={"whose": str}, indexes=(Index("whose", equal=("whose",)), Index("key"))
            ),
            subject="task",
            found_by={"owner": ByField("whose")},
        ),
    ),
)
FAMILIES = tuple(family.collection for family in FACE.families)
