"""A summariser that uses a language model client."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from keelbolt.state.memory.conversation import Summarizer

INSTRUCTIONS = (
    "You keep the memory of a conversation. Merge the previous summary and the new turns into one summary that keeps "
    "the user's goals, decisions, facts, names, open questions and artifact references, and leaves out small talk. "
    'Answer with JSON: {"summary": "<session_summary>…</session_summary>"}'
)

RESPONSE_FORMAT: Mapping[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "short_term_memory_summary",
        "schema": {
            "type": "object",
            "properties": {"summary": {"type": "string"}},
            "required": ["summary"],
            "additionalProperties": False,
        },
    },
}


class SummarizerClient(Protocol):
    """A planner's LLM client. It returns text, or a pair of text and cost."""

    async def complete(
        self, *, messages: Sequence[Mapping[str, str]], response_format: Mapping[str, Any] | None = None
    ) -> Any: ...


def summarizer_of(client: SummarizerClient) -> Summarizer:
    """Return a summariser that uses this client."""

    async def summarize(request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await client.complete(
            messages=[
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": json.dumps(dict(request), ensure_ascii=False)},
            ],
            response_format=RESPONSE_FORMAT,
        )
        text = answer[0] if isinstance(answer, tuple) else answer
        summary = str(json.loads(text)["summary"]).strip()
        if "<session_summary>" not in summary:
            summary = f"<session_summary>\n{summary}\n</session_summary>"
        return {"summary": summary}

    return summarize
