"""Sample modules, and agents that serve them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from apcore import Context, Executor, ModuleAnnotations, Registry
from apcore.config import Config
from apcore.module import ModuleExample
from pydantic import BaseModel

from keelbolt.apcore.card import AgentCardBuilder
from keelbolt.apcore.catalog import SkillCatalog
from keelbolt.apcore.worker import ApcoreWorker
from keelbolt.server import A2AServer
from keelbolt.tasks.settings import TaskSettings


class Text(BaseModel):
    text: str


class Numbers(BaseModel):
    numbers: list[int]
    factor: int = 1


class Until(BaseModel):
    to: int


class Anything(BaseModel):
    model_config: ClassVar[Any] = {"extra": "allow"}


class Echo:
    """Returns its input."""

    input_schema = Text
    output_schema = Text
    description = "Says it again"
    tags: ClassVar[list[str]] = ["text"]
    examples: ClassVar[list[ModuleExample]] = [ModuleExample("Hello", {"text": "hi"}, {"text": "hi"})]

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        return {"text": inputs["text"]}


class Total:
    """Adds numbers, in a thread."""

    input_schema = Numbers
    output_schema = Anything
    description = "Adds numbers"

    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        assert all(type(number) is int for number in inputs["numbers"])
        return {"total": sum(inputs["numbers"]) * inputs.get("factor", 1), "count": len(inputs["numbers"])}


class Count:
    """Counts, one number at a time."""

    input_schema: Any = Until
    output_schema = Anything
    description = "Counts"
    annotations = ModuleAnnotations(streaming=True)

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        return {"last": inputs["to"]}

    async def stream(self, inputs: dict[str, Any], context: Context[Any]) -> AsyncIterator[dict[str, Any]]:
        for number in range(1, inputs["to"] + 1):
            yield {"number": number}
            await asyncio.sleep(0)


class Whoami:
    """Returns the contents of its context."""

    input_schema = Anything
    output_schema = Anything
    description = "Says who calls"

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        who = context.identity
        return {
            "id": who.id if who else None,
            "type": who.type if who else None,
            "roles": list(who.roles) if who else [],
            "left": (context.global_deadline or 0) - time.time(),
            "a2a": context.data["a2a"],
        }


class Sleeper:
    """Waits until it is cancelled, and records that."""

    input_schema = Anything
    output_schema = Anything
    description = "Waits"

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.began = asyncio.Event()

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        self.began.set()
        while inputs.get("deaf") or not context.cancel_token.is_cancelled:  # noqa: ASYNC110 - as modules do
            await asyncio.sleep(0.005)
        self.cancelled.set()
        context.cancel_token.check()
        return {}


class Deploy:
    """Deploys after an approval."""

    input_schema = Text
    output_schema = Anything
    description = "Deploys a service"
    annotations = ModuleAnnotations(requires_approval=True, destructive=True)
    deployed: ClassVar[list[str]] = []

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        assert "_approval_token" not in inputs
        self.deployed.append(inputs["text"])
        return {"deployed": inputs["text"]}


class Giving:
    """Returns or raises the outcome that the test passed."""

    input_schema = Anything
    output_schema: Any = None
    description = "Gives what it was given"

    def __init__(self, outcome: Any = None) -> None:
        self.outcome = outcome

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> Any:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome(inputs) if callable(self.outcome) else self.outcome


def registry_of(**modules: Any) -> Registry:
    """Return a registry with these modules; a double underscore becomes a dot."""
    registry = Registry()
    for name, module in modules.items():
        registry.register(name.replace("__", "."), module)
    return registry


def executor_of(registry: Registry, **options: Any) -> Executor:
    unlimited = Config(data={"executor": {"default_timeout": 0, "global_timeout": 0}})
    return Executor(registry, config=options.pop("config", unlimited), **options)


def agent_of(executor: Executor, *, storage: str = "memory:", **options: Any) -> A2AServer:
    """Start an agent of these modules on the plain server."""
    catalog = SkillCatalog(executor.registry)
    named = ("execution_timeout", "default_skill", "allow_unapproved")
    worker = ApcoreWorker(catalog, executor, **{name: options.pop(name) for name in named if name in options})
    builder = AgentCardBuilder(
        catalog, name="Modules", version="1.2.3", access=worker.access, authenticated="auth" in options
    )
    server = A2AServer(
        worker=worker,
        admission=worker.admission,
        agent_card=builder.build(),
        extended_card=builder.extended if "auth" in options else None,
        storage=storage,
        task_settings=options.pop("task_settings", None) or TaskSettings.of(cancel_seconds=0.2),
        **options,
    )
    catalog.on_change(lambda: server.replace_card(builder.build))
    return server
