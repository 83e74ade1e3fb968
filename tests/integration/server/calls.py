"""Requests as gRPC messages."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict

from keelbolt.kernel import new_id
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.protobuf.methods import METHODS_V03, METHODS_V1, Method
from keelbolt.protocol.versions import ProtocolVersion
from tests.integration.server.entries import HOOK, RequestFields

METHODS = (*METHODS_V1.values(), *METHODS_V03.values())


def request(method: Method, fields: RequestFields) -> bytes:
    """Return the request as a message of this method."""
    write = _old if method.version is ProtocolVersion.v0_3 else _new
    data: bytes = ParseDict(write(method.operation, fields), method.request()).SerializeToString()
    return data


def _new(operation: Operation, fields: RequestFields) -> dict[str, Any]:
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": fields.text}]}
            return {"message": message | {"taskId": fields.task, "contextId": fields.context, **_references(fields)}}
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            return {"id": fields.task}
        case Operation.list_tasks:
            return {"contextId": fields.context, "pageToken": fields.page}
        case Operation.create_push_config:
            return {"taskId": fields.task, "id": fields.config, "url": HOOK}
        case Operation.list_push_configs:
            return {"taskId": fields.task, "pageToken": fields.page}
        case Operation.get_extended_card:
            return {}
        case _:
            return {"taskId": fields.task, "id": fields.config}


def _old(operation: Operation, fields: RequestFields) -> dict[str, Any]:
    task = f"tasks/{fields.task}"
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            message = {"messageId": new_id(), "role": "ROLE_USER", "content": [{"text": fields.text}]}
            return {"request": message | {"taskId": fields.task, "contextId": fields.context}}
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            return {"name": task}
        case Operation.create_push_config:
            config = {"pushNotificationConfig": {"id": fields.config, "url": HOOK}}
            return {"parent": task, "configId": fields.config, "config": config}
        case Operation.list_push_configs:
            return {"parent": task, "pageToken": fields.page}
        case Operation.get_extended_card | Operation.list_tasks:
            return {}
        case _:
            return {"name": f"{task}/pushNotificationConfigs/{fields.config}"}


def _references(fields: RequestFields) -> dict[str, Any]:
    return {"referenceTaskIds": [fields.reference]} if fields.reference else {}
