"""The turns of a campaign: a clerk that asks before it pays, with a scripted model, on the store of its agent.

The text of a message is ``turn <name>``. The model calls `pay`, whose gate asks the user; after the result it answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from keelbolt.testing.model import ScriptedModel, call
from keelbolt.turns import ModelRequest, TurnWorker, chat_executor, durable_storage, tool, turn_worker
from keelbolt.turns.chat.protocol import Delta
from tests.chaos.history import History


class NotingModel:
    """A scripted model that records each tool result."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._scripted = ScriptedModel(self._decide)

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Delta]:
        self._scripted.requests.clear()  # it keeps all requests, and a soak has many
        return self._scripted.stream(request)

    def _decide(self, request: ModelRequest) -> Any:
        asked = max(at for at, entry in enumerate(request.messages) if entry.text.startswith("turn "))
        name = request.messages[asked].text.split()[1]
        results = [entry for entry in request.messages[asked:] if entry.role == "tool"]
        if not results:
            return call("pay", item=name)
        self._history.note("result", turn=name, paid=not results[-1].is_error)
        return "It is not paid." if results[-1].is_error else "It is paid."


def clerk(url: str, history: History) -> TurnWorker:
    """The worker of the turns."""

    @tool(needs_approval="May I pay for {item}?")
    async def pay(item: str, call_id: str) -> str:
        """Pay."""
        history.note("paid", turn=item, call=call_id)
        return f"paid under {call_id}"

    storage = durable_storage(url)
    runner = storage.runner(executor_callback=chat_executor(NotingModel(history), tools=[pay]))
    return turn_worker(runner, storage, system_prompt="Pay.")
