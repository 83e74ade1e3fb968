"""The data of other callers that each operation could reach; the access tests of all bindings use this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from keelbolt.protocol.operations import Operation
from tests.integration.server.alice import Alice
from tests.integration.server.entries import RequestFields

Change = Callable[[Alice, RequestFields], RequestFields]


@dataclass(frozen=True, slots=True)
class Row:
    """Ways to request alice's data; ``own``: together with a task of the caller's own."""

    reach: Change
    own: bool = False


TASK = Row(lambda alice, fields: replace(fields, task=alice.task))
TASK_AND_CONFIG = Row(lambda alice, fields: replace(fields, task=alice.task, config=alice.config))
CONFIG = Row(lambda alice, fields: replace(fields, config=alice.config), own=True)
CONTEXT = Row(lambda alice, fields: replace(fields, context=alice.context))
CONTEXT_OF_TASK = Row(lambda alice, fields: replace(fields, context=alice.context), own=True)
BOTH = Row(lambda alice, fields: replace(fields, task=alice.task, context=alice.context))
REFERENCE = Row(lambda alice, fields: replace(fields, reference=alice.task))
PAGE = Row(lambda alice, fields: replace(fields, page=alice.page))
CONFIGS_PAGE = Row(lambda alice, fields: replace(fields, page=alice.configs_page), own=True)
CURSOR = Row(lambda alice, fields: replace(fields, task=alice.task, after="1"))

MATRIX: dict[Operation, dict[str, Row]] = {
    Operation.send_message: {
        "task": TASK,
        "context": CONTEXT,
        "task and context": BOTH,
        "context of an own task": CONTEXT_OF_TASK,
        "reference": REFERENCE,
    },
    Operation.send_streaming_message: {
        "task": TASK,
        "context": CONTEXT,
        "task and context": BOTH,
        "context of an own task": CONTEXT_OF_TASK,
        "reference": REFERENCE,
        "cursor": CURSOR,
    },
    Operation.get_task: {"task": TASK},
    Operation.list_tasks: {"context": CONTEXT, "page": PAGE},
    Operation.cancel_task: {"task": TASK},
    Operation.subscribe_to_task: {"task": TASK, "cursor": CURSOR},
    Operation.create_push_config: {"task": TASK, "task and config": TASK_AND_CONFIG, "config": CONFIG},
    Operation.get_push_config: {"task": TASK, "task and config": TASK_AND_CONFIG, "config": CONFIG},
    Operation.list_push_configs: {"task": TASK, "page": CONFIGS_PAGE},
    Operation.delete_push_config: {"task": TASK, "task and config": TASK_AND_CONFIG, "config": CONFIG},
    Operation.get_extended_card: {"nothing": Row(lambda _alice, fields: fields)},
}
"""What can be reached for, by operation. An operation without a line fails every test of its entries."""
