"""Runs an agent of the OpenAI Agents SDK with a model that returns the number of its input messages."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseOutputMessage, ResponseOutputText


class Counting(Model):
    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        given = options.get("input", args[1] if len(args) > 1 else [])
        text = f"{1 if isinstance(given, str) else len(given)} items"
        part = ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_args: Any, **_options: Any) -> Any:
        raise NotImplementedError


async def run(session: Any, text: str) -> str:
    set_tracing_disabled(disabled=True)
    agent = Agent(name="Counting", model=Counting())
    result = await Runner.run(agent, text, session=session)
    return str(result.final_output)


async def main(url: str, text: str) -> None:
    from keelbolt.openai_agents import KeelboltSession

    async with KeelboltSession("shared", url) as session:
        print(await run(session, text))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
