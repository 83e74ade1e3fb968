"""The registry that the apcore benchmark measures, and its applications: Keelbolt's, and apcore-a2a if available."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from starlette.types import ASGIApp

from keelbolt.apcore import ApcoreServer
from keelbolt.apcore.library import Config, Executor, Registry

SKILL = "text.echo"
INPUT = {"text": "Hello", "count": 3}


class Text(BaseModel):
    """The input and output of the module."""

    text: str
    count: int = 1


class Echo:
    """A module without work, so that only the overhead is measured."""

    input_schema = Text
    output_schema = Text
    description = "Says it again"

    async def execute(self, inputs: dict[str, Any], _context: Any) -> dict[str, Any]:
        return {"text": inputs["text"], "count": inputs.get("count", 1)}


def executor() -> Executor:
    registry = Registry()
    registry.register(SKILL, Echo())
    return Executor(registry, config=Config(data={"executor": {"default_timeout": 0, "global_timeout": 0}}))


def application(kind: str, url: str) -> ASGIApp:
    """Return the application of this kind: ``modules`` (Keelbolt's) or ``apcore-a2a``."""
    if kind == "modules":
        return ApcoreServer(executor(), storage=url).app
    assert peer_found()
    from apcore_a2a import async_serve  # type: ignore[import-not-found]

    sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it logs every call there
    app: ASGIApp = asyncio.run(async_serve(executor(), name="Echo", version="1.0.0", url="http://localhost"))
    return app


def peer_found() -> bool:
    """Return whether apcore-a2a is available: installed, or in the environment that ``tests/peers.sh`` creates.

    Packages that both environments have, including the HTTP parser and event loop, are taken from this environment.
    """
    lib = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = Path(sys.prefix, "peers", "apcore_a2a", "lib", lib, "site-packages")
    if importlib.util.find_spec("apcore_a2a") is None and place.is_dir():
        sys.path.append(str(place))
    return importlib.util.find_spec("apcore_a2a") is not None


def call(message_id: str, *, text_only: bool = False) -> bytes:
    """Return a JSON-RPC call of the module. apcore-a2a refuses integers of a data part, but accepts them in a text."""
    part: dict[str, Any] = {"text": json.dumps(INPUT)} if text_only else {"data": INPUT}
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [part], "metadata": {"skillId": SKILL}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).encode()
