"""Agent of apcore-a2a 0.8.5 with two modules. Arguments: public URL, port."""

import asyncio
import sys

import uvicorn
from apcore import Registry
from apcore_a2a import async_serve
from pydantic import BaseModel

url, port = sys.argv[1], int(sys.argv[2])


class In(BaseModel):
    text: str = ""
    count: float = 0
    pause: float = 0.0


class Out(BaseModel):
    text: str = ""


class Echo:
    """Repeats its input."""

    description = "Says it again"
    input_schema = In
    output_schema = Out

    async def execute(self, inputs, context):
        if inputs.get("text") == "fail":
            raise RuntimeError("It does not work.")
        if inputs.get("text") == "wait":
            await asyncio.sleep(600)
        return {"text": f"You said: {inputs.get('text')}"}


class Count:
    """Counts."""

    description = "Counts"
    input_schema = In
    output_schema = Out

    async def execute(self, inputs, context):
        return {"text": "0"}

    async def stream(self, inputs, context):
        for number in range(int(inputs["count"])):
            yield {f"n{number}": number}
            await asyncio.sleep(inputs.get("pause", 0.0))


registry = Registry()
registry.register("echo", Echo())
registry.register("count", Count())


async def main():
    app = await async_serve(registry, name="apcore_a2a", url=url, push_notifications=True)
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()


asyncio.run(main())
