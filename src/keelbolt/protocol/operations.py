"""The operations of A2A, and their names in both versions."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from keelbolt.protocol.versions import ProtocolVersion


class Operation(StrEnum):
    """An operation, by its name in A2A 1.0: the JSON-RPC method and the gRPC method alike."""

    send_message = "SendMessage"
    send_streaming_message = "SendStreamingMessage"
    get_task = "GetTask"
    list_tasks = "ListTasks"
    cancel_task = "CancelTask"
    subscribe_to_task = "SubscribeToTask"
    create_push_config = "CreateTaskPushNotificationConfig"
    get_push_config = "GetTaskPushNotificationConfig"
    list_push_configs = "ListTaskPushNotificationConfigs"
    delete_push_config = "DeleteTaskPushNotificationConfig"
    get_extended_card = "GetExtendedAgentCard"

    @property
    def streams(self) -> bool:
        """Whether the response is a stream of events."""
        return self in STREAMING


STREAMING = frozenset({Operation.send_streaming_message, Operation.subscribe_to_task})

METHODS_V03 = MappingProxyType(
    {
        "message/send": Operation.send_message,
        "message/stream": Operation.send_streaming_message,
        "tasks/get": Operation.get_task,
        "tasks/list": Operation.list_tasks,  # not in 0.3 itself, but some of its clients call it
        "tasks/cancel": Operation.cancel_task,
        "tasks/resubscribe": Operation.subscribe_to_task,
        "tasks/pushNotificationConfig/set": Operation.create_push_config,
        "tasks/pushNotificationConfig/get": Operation.get_push_config,
        "tasks/pushNotificationConfig/list": Operation.list_push_configs,
        "tasks/pushNotificationConfig/delete": Operation.delete_push_config,
        "agent/getAuthenticatedExtendedCard": Operation.get_extended_card,
    }
)
"""The JSON-RPC methods of 0.3."""

METHODS_V1 = MappingProxyType({operation.value: operation for operation in Operation})
"""The JSON-RPC methods of 1.0."""

METHODS = MappingProxyType(
    {name: (operation, ProtocolVersion.v0_3) for name, operation in METHODS_V03.items()}
    | {name: (operation, ProtocolVersion.v1_0) for name, operation in METHODS_V1.items()}
)
"""The methods of both versions, each with its version; no name is in both."""

NAMES_V03 = MappingProxyType({operation: name for name, operation in METHODS_V03.items()})
"""The names of 0.3 by operation, for clients."""
