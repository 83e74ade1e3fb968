"""A language model with scripted answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias

from keelbolt.turns.chat.protocol import CallRequest, Delta, ModelRequest, TextDelta

Said: TypeAlias = "str | Delta | BaseException | Sequence[str | Delta | BaseException]"
Script: TypeAlias = "Sequence[Said] | Callable[[ModelRequest], Said]"


def call(name: str, **arguments: Any) -> CallRequest:
    """Build a tool call: ``call("pay", amount=5)``."""
    return CallRequest(name, json.dumps(arguments))


class ScriptedModel:
    """A model for tests of agents: no network, the same answers every time.

        ScriptedModel([call("price", item="kettle"), "It costs 30."])
        ScriptedModel(lambda request: f"You said {request.messages[-1].text}")

    A list is used in order, one entry per generation. An entry is text (streamed word by word), a call, an error to
    raise, or a list of these. A function gets each request and returns an entry, so that it gives the same answer when
    a generation is repeated after a crash. ``requests`` are the requests received so far.
    """

    def __init__(self, script: Script, *, delay_seconds: float = 0.0) -> None:
        self._script = script
        self._delay = delay_seconds
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        number = len(self.requests)
        self.requests.append(request)
        if callable(self._script):
            said: Said = self._script(request)
        else:
            if number >= len(self._script):
                raise AssertionError(f"the script has {len(self._script)} entries, but the model was called once more")
            said = self._script[number]
        entries = [said] if isinstance(said, str) or not isinstance(said, Sequence) else said
        for entry in entries:
            if isinstance(entry, BaseException):
                raise entry
            if not isinstance(entry, str):
                yield entry
                continue
            for word in re.findall(r"\S+\s*|\s+", entry):
                await asyncio.sleep(self._delay)
                yield TextDelta(word)
