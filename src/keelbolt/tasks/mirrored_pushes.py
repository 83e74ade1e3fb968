"""Push configs of a mirrored task, for a storage that keeps them too. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic_core import from_json, to_json

from keelbolt.kernel import Delete, Insert, Operation, Put, Replace
from keelbolt.tasks.families import PUSH_CONFIGS, PUSH_CURSORS
from keelbolt.tasks.pushes import push_ids, push_key


@runtime_checkable
class KeepsPushConfigs(Protocol):
    """A storage that also keeps the push configs of tasks."""

    async def keep_push_config(self, task_id: str, config_id: str, config: Any) -> None:
        """Store this config (JSON), replacing the one with the same id; None deletes it."""

    async def load_push_configs(self, task_id: str) -> Mapping[str, Any]:
        """Return the configs of a task, by id."""


def pushes_written(operations: Sequence[Operation]) -> Iterator[tuple[str, str, Any]]:
    """Yield the configs that a commit writes: task id, config id, and the config (None: it is deleted)."""
    for operation in operations:
        if isinstance(operation, Put | Insert | Replace | Delete) and operation.collection == PUSH_CONFIGS:
            body = None if isinstance(operation, Delete) else from_json(operation.body)
            yield *push_ids(operation.key), body


def pushes_adopted(task_id: str, configs: Mapping[str, Any], seq: int) -> list[Operation]:
    """Return the operations that restore the configs of a stored task; they receive the events after seq ``seq``."""
    cursor = to_json({"seq": seq, "late": True})
    operations: list[Operation] = []
    for config_id, config in configs.items():
        key = push_key(task_id, config_id)
        operations.append(Put(PUSH_CONFIGS, key, to_json(config), {"task": task_id}))
        operations.append(Put(PUSH_CURSORS, key, cursor))
    return operations
