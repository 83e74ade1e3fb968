"""Example commands for users to paste."""

from __future__ import annotations

import json
import secrets
from typing import Any


def run_tag() -> str:
    """Return a random tag that makes the ids of pasted messages unique on this storage."""
    return secrets.token_hex(3)


AS_BEARER = '-H "Authorization: Bearer $TOKEN" '
"""For agents that require a token; the user sets TOKEN."""


def curl(address: str, method: str, message_id: str, part: dict[str, Any], option: str = "", **more: Any) -> str:
    """Return a curl command that calls an agent over JSON-RPC; ``more`` are members of the message."""
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [part], **more}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}})
    quoted = body.replace("'", "'\\''")
    return f"curl {option}{address}/ -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' -d '{quoted}'"
