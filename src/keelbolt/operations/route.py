"""The definition of a route of the operations API, and the OpenAPI document of a table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from keelbolt.errors import FieldViolation, InvalidParamsError
from keelbolt.names import suggestion

PREFIX = "/keelbolt/v1"

Method = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class OpsRoute:
    """``name`` is the handler. An ``operator`` route shows data without a tenant; its role is ``operator:all``."""

    name: str
    method: Method
    path: str
    summary: str
    query: tuple[tuple[str, str], ...] = ()  # name, description
    body: tuple[tuple[str, str], ...] = ()
    operator: bool = False
    stream: bool = False
    file: bool = False  # the response is not JSON

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", PREFIX + self.path))

    def check(self, query: Iterable[str], body: Iterable[str]) -> None:
        """Raise InvalidParamsError for names that the route does not have: a misspelt filter would match everything."""
        wrong = [
            FieldViolation(name[:100], f"there is no such {place}{suggestion(name[:100], dict(known))}")
            for place, given, known in (("query parameter", query, self.query), ("member of the body", body, self.body))
            for name in given
            if name not in dict(known)
        ]
        if wrong:
            raise InvalidParamsError(violations=wrong[:10])


PAGE = (("pageSize", "1 to 100 (default 50)"), ("pageToken", "from the page before"))


# ----------------------------------------------------------------------------------------------------- OpenAPI document


_PROBLEM = {
    "description": "The error",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def document(base: str, routes: Iterable[OpsRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Keelbolt operations", "version": "1", "description": "Operations that A2A does not define."},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {
            "schemas": {
                "Problem": {
                    "type": "object",
                    "properties": {
                        "error": {
                            "type": "object",
                            "properties": {
                                "code": {"type": "integer"},
                                "status": {"type": "string"},
                                "message": {"type": "string"},
                                "details": {"type": "array", "items": {"type": "object"}},
                            },
                        }
                    },
                }
            }
        },
    }


def _operation(route: OpsRoute) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}} for name, text in route.query
    ]
    content = "text/event-stream" if route.stream else "*/*" if route.file else "application/json"
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": {"200": {"description": "Done", "content": {content: {}}}, "default": _PROBLEM},
    }
    if route.operator:
        found["description"] = "For operators of all tenants."
    if route.body:
        members = {name: {"description": text} for name, text in route.body}
        schema = {"type": "object", "properties": members}
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found
