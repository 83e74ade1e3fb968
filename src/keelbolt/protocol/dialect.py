"""Decodes requests in dialects of 0.3, as clients of apcore agents send them. Valid 0.3 is read as 0.3.

{"type": "text", …}                     a part by `type` instead of `kind`; files flat: uri or bytes, name, mimeType
{"message": …, "contextId": "c"}        the context beside the message instead of in it
{"message": …, "metadata": {"skillId"}} the skill beside the message; `decode` copies it into the message's metadata
message without messageId and `kind`    gets an id from the argument ``new_id``: this module is deterministic
input_required, auth_required           states with an underscore
{"taskId", "url", …}                    a flat push config; get and delete by `taskId` alone
tasks/list {"cursor", "limit"}          pages; `task_list` returns `nextCursor` beside the members of 1.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import to_json

from keelbolt.protocol import v03
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import DeletePushConfigRequest, Request, TaskPage
from keelbolt.protocol.types import Json
from keelbolt.protocol.v03_values import MEDIA_TYPE_MARK, Object
from keelbolt.protocol.validation import DEFAULT, Limits, checked, validate

MAX_LIMIT = 100


def decode(
    operation: Operation,
    params: Mapping[str, Json],
    *,
    limits: Limits = DEFAULT,
    new_id: Callable[[], str] | None = None,
) -> Request:
    """Decode a dialect request, like `v03.decode`. Without ``new_id`` a message needs its messageId."""
    given = dict(params)
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            given = _send(given, new_id)
        case Operation.create_push_config:
            given = _flat_config(given)
        case Operation.get_push_config | Operation.list_push_configs | Operation.delete_push_config:
            if given.get("id") is None and given.get("taskId") is not None:
                given["id"] = given["taskId"]
            given.pop("taskId", None)
            if operation is Operation.delete_push_config and not given.get("pushNotificationConfigId"):
                return _delete_all(given, limits)
        case Operation.list_tasks:
            given = _pages(given)
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            if given.get("id") is None and given.get("taskId") is not None:
                given["id"] = given["taskId"]
        case Operation.get_extended_card:
            pass
    return v03.decode(operation, given, limits=limits)


def _send(params: Object, new_id: Callable[[], str] | None) -> Object:
    message = params.get("message")
    if not isinstance(message, dict):
        return params
    message = dict(message)
    if isinstance(parts := message.get("parts"), list):
        message["parts"] = [_part(part) for part in parts]
    if message.get("contextId") is None and params.get("contextId") is not None:
        message["contextId"] = params["contextId"]
    if message.get("taskId") is None and params.get("taskId") is not None:
        message["taskId"] = params["taskId"]
    nameless = not message.get("messageId") and "message_id" not in message
    if nameless and "kind" not in message and new_id is not None:  # a message with `kind` is 0.3, which requires an id
        message["messageId"] = new_id()
    skill = params["metadata"].get("skillId") if isinstance(params.get("metadata"), dict) else None
    if skill is not None and isinstance(metadata := message.get("metadata") or {}, dict):
        message["metadata"] = {"skillId": skill, **metadata}
    return {**params, "message": message}


def _part(part: Json) -> Json:
    """Convert a part by `type`. Its media type, which 0.3 has for files only, goes into the metadata."""
    if not isinstance(part, dict) or "kind" in part or not isinstance(part.get("type"), str):
        return part
    kind = part["type"]
    found = {name: value for name, value in part.items() if name != "type"} | {"kind": kind}
    if kind == "file":
        if not isinstance(part.get("file"), dict):
            found["file"] = {name: part[name] for name in ("uri", "bytes", "name", "mimeType") if name in part}
    elif isinstance(media_type := part.get("mediaType"), str) and isinstance(part.get("metadata") or {}, dict):
        found["metadata"] = {**(part.get("metadata") or {}), MEDIA_TYPE_MARK: media_type}
    return found


def _flat_config(params: Object) -> Object:
    if "url" not in params or "pushNotificationConfig" in params or "config" in params:
        return params
    config: Object = {name: params[name] for name in ("url", "token", "authentication") if name in params}
    if (config_id := params.get("pushNotificationConfigId")) is not None:
        config["id"] = config_id
    task_id = params.get("taskId") if params.get("taskId") is not None else params.get("id")
    return {"taskId": task_id, "pushNotificationConfig": config, "tenant": params.get("tenant")}


def _delete_all(params: Object, limits: Limits) -> Request:
    """Decode a delete without a config id: delete all configs of the task."""
    if params.get("name") is not None:
        return v03.decode(Operation.delete_push_config, params, limits=limits)
    up = {"taskId": params.get("id"), "tenant": params.get("tenant")}
    return checked(validate(DeletePushConfigRequest, up), limits)


def _pages(params: Object) -> Object:
    found = dict(params)
    if (cursor := found.pop("cursor", None)) is not None and not found.get("pageToken"):
        found["pageToken"] = cursor
    limit = found.pop("limit", None)
    if limit is not None and found.get("pageSize") is None:
        found["pageSize"] = min(limit, MAX_LIMIT) if type(limit) is int else limit
    return found


def task_list(page: TaskPage) -> bytes:
    """Return the result of tasks/list, which 0.3 does not define: the members of 1.0 and `nextCursor`."""
    token = page.next_page_token
    return b'{"tasks":[%b],"nextCursor":%b,"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (
        b",".join(map(v03.task, page.tasks)),
        to_json(token or None),
        to_json(token),
        page.page_size,
        page.total_size,
    )


class _PlainList:
    """The codec for `tasks/list`, which 0.3 does not define."""

    task_list = staticmethod(task_list)


PLAIN_LIST: Any = _PlainList
