"""The OpenAPI document of the operations API, generated from its table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from keelbolt.operations.route import PREFIX, OpsRoute

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
