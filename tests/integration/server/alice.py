"""Alice's tasks in every state, on an agent with authentication; tests check which data other callers can see."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import count
from typing import Any

from starlette.types import ASGIApp

from keelbolt.kernel import new_id
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import Headers, call
from tests.integration.server.people import authenticator, bearer

SECRET_WORDS = "alice-secret-words"
STATES = ("completed", "input", "working")

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Alice:
    """Alice's data, or invented data that does not exist."""

    task: str
    context: str
    config: str
    page: str
    configs_page: str

    @property
    def words(self) -> tuple[str, ...]:
        """Return the texts, longest first, since one may contain another."""
        return self.page, self.configs_page, self.task, self.context, self.config


def invented(alice: Alice) -> Alice:
    """Return data of the same shape that does not exist."""
    pages = [secrets.token_urlsafe(len(page))[: len(page)] for page in (alice.page, alice.configs_page)]
    return Alice(new_id(), new_id(), new_id(), *pages)


def fresh(kind: str) -> str:
    """Return a new name."""
    return f"{kind}{next(_numbers):06}"


class Agent:
    """A worker whose outcome depends on the first word of its message."""

    async def __call__(self, ctx: TaskContext) -> None:
        match ctx.user_text.split()[0]:
            case "input":
                await ctx.request_input(f"More? {SECRET_WORDS}")
            case "working":
                await ctx.send_status(SECRET_WORDS)
                await ctx.sleep(3600)
            case _:
                await ctx.complete("Done.")


def card() -> AgentCardConfig:
    capabilities = CapabilitiesConfig(streaming=True, push_notifications=True, extended_agent_card=True)
    return AgentCardConfig(name="Agent", description="Ends as asked.", capabilities=capabilities)


def agent(**more: Any) -> A2AServer:
    return A2AServer(
        worker=Agent(),
        agent_card=card(),
        auth=authenticator(),
        extended_card=lambda caller: card().model_copy(update={"name": caller.principal.owner[:3]}),
        **more,
    )


async def started(app: ASGIApp, state: str, headers: Headers) -> dict[str, Any]:
    """Create a task of this caller."""
    message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": f"{state} {SECRET_WORDS}"}]}
    params = {"message": message, "configuration": {"returnImmediately": state == "working"}}
    task: dict[str, Any] = (await call(app, "SendMessage", params, headers=headers)).json["result"]["task"]
    return task


def hook(task_id: str) -> dict[str, Any]:
    return {"taskId": task_id, "url": f"https://{SECRET_WORDS}.example/", "token": SECRET_WORDS}


async def alices_things(app: ASGIApp) -> dict[str, Alice]:
    """Create a task in each state, each with push configs and page tokens."""
    headers = bearer("alice")
    found: dict[str, Alice] = {}
    for state in STATES:
        await started(app, state, headers)
        task = await started(app, state, headers)
        configs = [
            (await call(app, "CreateTaskPushNotificationConfig", hook(task["id"]), headers=headers)).json["result"]
            for _ in range(2)
        ]
        page = await call(app, "ListTasks", {"pageSize": 1}, headers=headers)
        configs_page = await call(
            app, "ListTaskPushNotificationConfigs", {"taskId": task["id"], "pageSize": 1}, headers=headers
        )
        found[state] = Alice(
            task["id"],
            task["contextId"],
            configs[0]["id"],
            page.json["result"]["nextPageToken"],
            configs_page.json["result"]["nextPageToken"],
        )
    return found
