"""Agents of modules as `async_serve` creates them, and extensions directories for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp

from keelbolt.apcore import ApcoreServer, async_serve
from tests.integration.apcore.calling import state
from tests.integration.server.asgi import call

MODULE = """
from pydantic import BaseModel

class Text(BaseModel):
    text: str

class Echo:
    input_schema = Text
    output_schema = Text
    description = "Says it again"

    async def execute(self, inputs, context):
        return {"text": inputs["text"]}
"""


@contextlib.asynccontextmanager
async def serving(given: object, **options: Any) -> AsyncIterator[Starlette]:
    """The application of `async_serve`, started."""
    app = await async_serve(given, **options)
    async with app.router.lifespan_context(app):
        yield app


def server_of(app: Starlette) -> ApcoreServer:
    server: ApcoreServer = app.state.server
    return server


def extensions(root: Path, **files: str) -> Path:
    """Create a directory with these modules; a double underscore becomes a directory."""
    for name, text in files.items():
        file = root.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


async def until(app: ASGIApp, task_id: str, wanted: str) -> None:
    """Wait until a task is in this state."""
    async with asyncio.timeout(20):
        while True:
            if state((await call(app, "GetTask", {"id": task_id})).json["result"]) == wanted:
                return
            await asyncio.sleep(0.01)
