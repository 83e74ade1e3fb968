"""apcore's system modules: available only to callers with a role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from apcore import APCore
from apcore.approval import ApprovalResult
from apcore.config import Config
from apcore.errors import ApprovalPendingError

from keelbolt.apcore import CallerApproves
from tests.integration.apcore.calling import output, send, state, status_data, status_text
from tests.integration.apcore.modules import Echo, Giving
from tests.integration.apcore.serving import serving
from tests.integration.apcore.test_section_10 import authenticator, token
from tests.integration.server.asgi import ask, call

SECRET = "the database refused bob with hunter2"
HEALTH = "system.health.module"
TOGGLE = "system.control.toggle_feature"
FLIP = {"module_id": "echo", "enabled": False, "reason": "test"}


class Meddler(Giving):
    """A module for all callers that calls a system module."""

    async def execute(self, inputs: dict[str, Any], context: Any) -> Any:
        return await context.executor.call_async(TOGGLE, FLIP, context)


CLIENTS: list[Any] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the event loop that apcore's client leaves open."""
    yield
    while CLIENTS:
        CLIENTS.pop().events.shutdown()


def project() -> Any:
    config = Config(data={"sys_modules": {"enabled": True, "events": {"enabled": True}}})
    client = APCore(config=config)
    CLIENTS.append(client)
    for name, module in {"echo": Echo(), "bad": Giving(RuntimeError(SECRET)), "meddler": Meddler()}.items():
        client.register(name, module)
    return client


def by(*roles: str) -> Any:
    return [("authorization", f"Bearer {token(sub='ann', roles=list(roles))}")]


async def skills(app: Any, path: str = "/.well-known/agent-card.json", headers: Any = ()) -> list[str]:
    card = (await ask(app, "GET", path, headers=[*headers, ("a2a-version", "1.0")])).json
    return [skill["id"] for skill in card["skills"]]


async def test_system_modules_are_registered() -> None:
    assert {HEALTH, TOGGLE} <= set(project().registry.list())


@pytest.mark.parametrize("auth", [None, authenticator()], ids=["open", "authenticated"])
async def test_callers_without_the_role_can_not_find_or_call_them(auth: Any) -> None:
    async with serving(project(), auth=auth, approval_handler=CallerApproves()) as app:
        headers = by("user") if auth else []
        assert await skills(app) == ["bad", "echo", "meddler"]
        if auth:
            assert await skills(app, "/extendedAgentCard", headers) == ["bad", "echo", "meddler"]
        for skill, given in ((HEALTH, {"module_id": "bad"}), (TOGGLE, FLIP), ("system.none.such", {})):
            error = (await send(app, given, skill=skill, headers=headers)).json["error"]
            assert (error["code"], error["message"]) == (-32601, f"Skill not found: {skill}")


async def test_the_role_gives_access_and_errors_are_hidden() -> None:
    async with serving(project(), auth=authenticator()) as app:
        assert HEALTH in await skills(app, "/extendedAgentCard", by("operator:all"))
        for _ in range(2):
            await send(app, {}, skill="bad", headers=by())
        task = (await send(app, {"module_id": "bad"}, skill=HEALTH, headers=by("operator:all"))).json["result"]["task"]
        found = output(task)
        assert [error["code"] for error in found["recent_errors"]] == ["MODULE_EXECUTE_ERROR"]
        summary = (await send(app, {}, skill="system.health.summary", headers=by("operator:all"))).json
        for text in (str(task), str(summary)):
            assert "hunter2" not in text
            assert "Internal error" in text


async def test_the_role_can_be_configured() -> None:
    async with serving(project(), auth=authenticator(), system_roles=["admin"]) as app:
        assert HEALTH in await skills(app, "/extendedAgentCard", by("admin"))
        assert HEALTH not in await skills(app, "/extendedAgentCard", by("operator:all"))


@pytest.mark.parametrize(("skill", "given"), [(TOGGLE, FLIP), ("meddler", {})])
async def test_a_caller_can_not_approve_for_the_owner(skill: str, given: Any) -> None:
    """Neither the role nor a module that calls a system module lets a caller approve."""
    async with serving(project(), auth=authenticator(), approval_handler=CallerApproves()) as app:
        task = (await send(app, given, skill=skill, headers=by("operator:all"))).json["result"]["task"]
        assert (state(task), status_data(task)["data"]["type"]) == ("rejected", "ApprovalDeniedError")
        assert "owner" in status_text(task)
        assert output((await send(app, {"text": "x"}, skill="echo", headers=by())).json["result"]["task"]) == {
            "text": "x"
        }


async def test_a_waiting_task_gives_no_access() -> None:
    """A message to a waiting task can't call a system module by its name."""
    client = project()
    client.register("asks", Giving(ApprovalPendingError(ApprovalResult(status="pending"), module_id="asks")))
    async with serving(client) as app:
        task = (await send(app, {}, skill="asks")).json["result"]["task"]
        assert state(task) == "input_required"
        again = (await send(app, {"module_id": "bad"}, skill=HEALTH, taskId=task["id"])).json
        assert "recent_errors" not in str(again)


async def test_system_modules_are_not_the_only_skill() -> None:
    client = APCore(config=Config(data={"sys_modules": {"enabled": True}}))
    client.register("echo", Echo())
    async with serving(client) as app:
        assert output((await send(app, {"text": "x"})).json["result"]["task"]) == {"text": "x"}
        assert (await call(app, "message/send", {})).json["error"]["code"] == -32602
