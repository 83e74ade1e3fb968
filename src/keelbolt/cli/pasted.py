"""Commands that people paste."""

from __future__ import annotations

import json
import secrets
from typing import Any


def run_tag() -> str:
    """What makes the ids of pasted messages new: no agent on this storage was sent them before."""
    return secrets.token_hex(3)


AS_BEARER = '-H "Authorization: Bearer $TOKEN" '
"""For agents that let in only who shows a token; whoever pastes it has one."""


def curl(address: str, method: str, message_id: str, part: dict[str, Any], option: str = "", **more: Any) -> str:
    """A call of an agent, over JSON-RPC; ``more`` belongs to the message."""
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [part], **more}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}})
    quoted = body.replace("'", "'\\''")
    return f"curl {option}{address}/ -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' -d '{quoted}'"
