"""Every entry point of the agent, read from its routing tables, and a request for each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import ASGIApp

from keelbolt.kernel import new_id
from keelbolt.protocol.operations import METHODS, Operation
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.server.rest import ROUTES, route
from tests.integration.server.asgi import Headers, Reply, ask, rpc

HOOK = "https://hook.example/"


@dataclass(frozen=True, slots=True)
class RequestFields:
    """Parameters of a request, for any operation; empty ones are not sent."""

    task: str = ""
    context: str = ""
    config: str = ""
    page: str = ""
    reference: str = ""
    after: str = ""
    tenant: str = ""
    text: str = "Hello"


@dataclass(frozen=True, slots=True)
class Entry:
    """A JSON-RPC method, or a route: HTTP method and path, with {id}, {task} and {config} in it."""

    operation: Operation
    version: ProtocolVersion
    method: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}".strip()

    @property
    def tenant(self) -> bool:
        """Return whether the path contains the tenant."""
        return self.path.startswith("/{tenant}")

    def request(self, fields: RequestFields) -> dict[str, Any]:
        """Return the arguments of `ask`."""
        params = (
            _params_v1(self.operation, fields)
            if self.version is ProtocolVersion.v1_0
            else _params_v03(self.operation, fields)
        )
        headers = [("content-type", "application/json"), ("a2a-version", self.version.value)]
        if fields.after and not self.tenant:
            headers.append(("last-event-id", fields.after))
        if not self.path:
            return {"method": "POST", "path": "/", "body": rpc(self.method, params), "headers": headers}
        names = {"id": fields.task, "task": fields.task, "config": fields.config, "tenant": fields.tenant}
        path = self.path.format(**{name: quote(value, safe="") or "-" for name, value in names.items()})
        if self.tenant:
            params.pop("tenant", None)
        found: dict[str, Any] = {"method": self.method, "path": path, "headers": headers}
        if fields.after and self.tenant:  # the query is the alternative to the header
            found["query"] = urlencode({"afterSeq": fields.after})
        elif self.method != "POST":
            found["query"] = urlencode({name: value for name, value in params.items() if isinstance(value, str)})
        if self.method == "POST":
            found["body"] = json.dumps(params).encode()
        return found


def _routes() -> Iterator[Entry]:
    for methods, pattern, operation in ROUTES:
        for method in methods.split():
            for path in _spelled(pattern):
                for version, before in (
                    (ProtocolVersion.v1_0, ""),
                    (ProtocolVersion.v0_3, "/v1"),
                    (ProtocolVersion.v1_0, "/{tenant}"),
                ):
                    if route(method, f"{before}{path}") is not None:  # not every path exists in both versions
                        yield Entry(operation, version, method, f"{before}{path}")


def _spelled(pattern: str) -> list[str]:
    """Expand a pattern to the paths that it matches."""
    path = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", pattern)
    if choice := re.search(r"\(\?:([^)]*)\)", path):
        return [path.replace(choice[0], word) for word in choice[1].split("|")]
    assert re.fullmatch(r"[\w/:{}]+", path), f"no way to write {pattern}: teach this function"
    return [path]


ENTRIES: tuple[Entry, ...] = (
    *(Entry(operation, version, name) for name, (operation, version) in METHODS.items()),
    *_routes(),
)


def _params_v1(operation: Operation, fields: RequestFields) -> dict[str, Any]:
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            found: dict[str, Any] = {"message": _message(fields, {"text": fields.text}, role="ROLE_USER")}
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            found = {"id": fields.task}
        case Operation.list_tasks:
            found = {"contextId": fields.context, "pageToken": fields.page}
        case Operation.create_push_config:
            found = {"taskId": fields.task, "id": fields.config, "url": HOOK}
        case Operation.get_push_config | Operation.delete_push_config:
            found = {"taskId": fields.task, "id": fields.config}
        case Operation.list_push_configs:
            found = {"taskId": fields.task, "pageToken": fields.page}
        case _:
            found = {}
    return _with_tenant(found, fields)


def _params_v03(operation: Operation, fields: RequestFields) -> dict[str, Any]:
    match operation:
        case Operation.send_message | Operation.send_streaming_message:
            part = {"kind": "text", "text": fields.text}
            found: dict[str, Any] = {"message": {"kind": "message", **_message(fields, part, role="user")}}
        case Operation.get_task | Operation.cancel_task | Operation.subscribe_to_task:
            found = {"id": fields.task}
        case Operation.list_tasks:
            found = {"contextId": fields.context, "pageToken": fields.page}
        case Operation.create_push_config:
            found = {"taskId": fields.task, "pushNotificationConfig": {"id": fields.config, "url": HOOK}}
        case Operation.get_push_config | Operation.delete_push_config:
            found = {"id": fields.task, "pushNotificationConfigId": fields.config}
        case Operation.list_push_configs:
            found = {"id": fields.task, "pageToken": fields.page}
        case _:
            found = {}
    return _with_tenant(found, fields)


def _message(fields: RequestFields, part: dict[str, Any], *, role: str) -> dict[str, Any]:
    found: dict[str, Any] = {"messageId": new_id(), "role": role, "parts": [part]}
    found |= {name: value for name, value in (("taskId", fields.task), ("contextId", fields.context)) if value}
    if fields.reference:
        found["referenceTaskIds"] = [fields.reference]
    return found


def _with_tenant(params: dict[str, Any], fields: RequestFields) -> dict[str, Any]:
    return {name: value for name, value in {**params, "tenant": fields.tenant}.items() if value}


async def send_fields(app: ASGIApp, entry: Entry, fields: RequestFields, headers: Headers = (), **more: Any) -> Reply:
    """Send the request."""
    request = entry.request(fields)
    request["headers"] = [*request["headers"], *headers]
    if entry.operation.streams:
        more.setdefault("enough", lambda body: b"\n\n" in body)
    return await ask(app, request.pop("method"), request.pop("path"), **request, **more)
