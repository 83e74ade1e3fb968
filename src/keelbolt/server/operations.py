"""Serves the operations API: finds the route, authenticates the caller, calls the handler, sends its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from keelbolt.auth import Principal
from keelbolt.errors import BadCursor, InvalidRequestError, InvalidTaskRequest, MethodNotFoundError
from keelbolt.operations.call import OpsCall, Reach, acting, reach_of
from keelbolt.operations.data import DataOperations
from keelbolt.operations.dead import DeadOperations
from keelbolt.operations.files import FileOperations
from keelbolt.operations.gates import GateOperations
from keelbolt.operations.inspection import InspectionOperations
from keelbolt.operations.openapi import document
from keelbolt.operations.state import StateOperations
from keelbolt.operations.system import SystemOperations
from keelbolt.operations.table import PREFIX, ROUTES, OpsRoute
from keelbolt.operations.tasks import TaskOperations
from keelbolt.operations.turns import TurnOperations
from keelbolt.operations.webhooks import WebhookOperations
from keelbolt.protocol import strict_json
from keelbolt.protocol.errors import rest_v1
from keelbolt.server.cards import Cards
from keelbolt.server.failures import explain, failure_headers
from keelbolt.server.files import send_file
from keelbolt.server.gate import RequestGuard, query_of
from keelbolt.server.health import HealthRoutes
from keelbolt.server.http import ClientGone, check_content_type, parsed, read_body, respond
from keelbolt.server.local import at_this_machine
from keelbolt.server.service import AgentService
from keelbolt.server.sse import Streams


class OperationsApi:
    """Serves all paths under /keelbolt/v1/."""

    def __init__(
        self,
        gate: RequestGuard,
        service: AgentService,
        cards: Cards,
        streams: Streams,
        health: HealthRoutes,
        *,
        local: bool,
    ) -> None:
        self._gate = gate
        self._cards = cards
        self._streams = streams
        self._limits = service.settings.limits
        self._operator_roles = service.settings.operator_roles
        self._local = local  # loopback clients are operators
        self._routes = [(route, route.pattern) for route in ROUTES]
        self._handlers = (
            TaskOperations(service.engine, service.send_as),
            DeadOperations(service.engine),
            WebhookOperations(service.engine, service.push),
            DataOperations(service.engine),
            InspectionOperations(service.engine),
            FileOperations(service.engine),
            SystemOperations(service.engine, health.about, authenticates=gate.authenticates),
            StateOperations(service.engine),
            GateOperations(service.engine),
            TurnOperations(service.engine),
        )

    def takes(self, path: str) -> bool:
        return path.startswith(f"{PREFIX}/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        try:
            principal = await self._gate.principal(scope)
            route, names = self._find(scope["method"], path)
            call = await self._call(scope, receive, route, names, principal)
            if route.name == "openapi":
                await respond(send, 200, to_json(document(call.base, ROUTES)))
            elif route.stream:
                await self._streams.serve(
                    receive,
                    send,
                    self._handler(route)(call),
                    frame=lambda data: data,
                    failed=lambda error: rest_v1(explain(error)),
                    who=principal,
                )
            elif route.file:
                await send_file(scope, receive, send, *await self._handler(route)(call))
            else:
                await respond(send, 200, await self._handler(route)(call))
        except ClientGone:
            return
        except BadCursor:
            await self._fail(send, InvalidTaskRequest("the page token is invalid or belongs to another list"))
        except Exception as error:  # noqa: BLE001 - every failure gets a response
            await self._fail(send, error)

    async def _fail(self, send: Send, error: Exception) -> None:
        failure = explain(error)
        await respond(send, failure.row.http, rest_v1(failure), headers=failure_headers(error))

    def _find(self, method: str, path: str) -> tuple[OpsRoute, dict[str, str]]:
        """Return the route of a decoded path, and its path parameters."""
        for route, pattern in self._routes:
            if route.method == method and (match := pattern.fullmatch(path)):
                return route, match.groupdict()
        raise MethodNotFoundError("there is nothing at this path")

    async def _call(
        self, scope: Scope, receive: Receive, route: OpsRoute, names: dict[str, str], principal: Principal
    ) -> OpsCall:
        query = query_of(scope)
        body: Any = {}
        if route.method == "POST":
            check_content_type(scope)
            text = await read_body(scope, receive, self._limits.body_bytes, self._limits.body_seconds)
            if text.strip():
                body = await parsed(len(text), lambda: strict_json.read(text, limits=self._limits))
            if not isinstance(body, dict):
                raise InvalidRequestError("the body must be a JSON object")
        local = self._local and at_this_machine(scope)
        reach: Reach = "all" if local else reach_of(principal, self._operator_roles)
        whose = acting(principal, query, reach=reach, needs_all=route.operator)
        route.check(query, body)
        after = self._gate.caller(principal, scope, query).after
        return OpsCall(
            whose,
            names,
            query,
            body,
            after,
            self._cards.base(scope),
            principal.owner,
            reach,
            principal,
            everywhere=query.get("all") == "true",
        )

    def _handler(self, route: OpsRoute) -> Callable[[OpsCall], Any]:
        for handlers in self._handlers:
            if (handler := getattr(handlers, route.name, None)) is not None:
                found: Callable[[OpsCall], Any] = handler
                return found
        raise MethodNotFoundError("there is nothing at this path")
