"""The agent on the wire: A2A 0.3 and 1.0 over JSON-RPC and REST, from one ASGI application."""

from __future__ import annotations

from keelbolt.server.app import A2AServer
from keelbolt.server.dispatch import IncomingRequest, Middleware, pass_headers

__all__ = ["A2AServer", "IncomingRequest", "Middleware", "pass_headers"]
