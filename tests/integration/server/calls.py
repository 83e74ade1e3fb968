"""Requests as gRPC messages."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict

from keelbolt.kernel import new_id
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1, Method
from keelbolt.protocol.versions import ProtocolVersion
from tests.integration.server.entries import HOOK, Wish

METHODS = (*METHODS_V1.values(), *METHODS_V03.values())


def request(method: Method, wish: Wish) -> bytes:
    """Return the request as a message of this method."""
    write = _old if method.version is ProtocolVersion.v0_3 else _new
    data: bytes = ParseDict(write(method.operation, wish), method.request()).SerializeToString()
    return data


def _new(operation: Operation, wish: Wish) -> dict[str, Any]:
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": wish.text}]}
            return {"message": message | {"taskId": wish.task, "contextId": wish.context, **_references(wish)}}
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            return {"id": wish.task}
        case Operation.list_tasks:
            return {"contextId": wish.context, "pageToken": wish.page}
        case Operation.create_push_config:
            return {"taskId": wish.task, "id": wish.config, "url": HOOK}
        case Operation.list_push_configs:
            return {"taskId": wish.task, "pageToken": wish.page}
        case Operation.get_extended_card:
            return {}
        case _:
            return {"taskId": wish.task, "id": wish.config}


def _old(operation: Operation, wish: Wish) -> dict[str, Any]:
    task = f"tasks/{wish.task}"
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            message = {"messageId": new_id(), "role": "ROLE_USER", "content": [{"text": wish.text}]}
            return {"request": message | {"taskId": wish.task, "contextId": wish.context}}
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            return {"name": task}
        case Operation.create_push_config:
            config = {"pushNotificationConfig": {"id": wish.config, "url": HOOK}}
            return {"parent": task, "configId": wish.config, "config": config}
        case Operation.list_push_configs:
            return {"parent": task, "pageToken": wish.page}
        case Operation.get_extended_card | Operation.list_tasks:
            return {}
        case _:
            return {"name": f"{task}/pushNotificationConfigs/{wish.config}"}


def _references(wish: Wish) -> dict[str, Any]:
    return {"referenceTaskIds": [wish.reference]} if wish.reference else {}
