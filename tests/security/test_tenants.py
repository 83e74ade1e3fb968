"""Workers and modules see a tenant only if it is authenticated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apcore import Context, Registry
from pydantic import BaseModel

from keelbolt.apcore import ApcoreServer
from keelbolt.auth import ClaimMapping, JWTAuthenticator, Principal
from keelbolt.tasks import TaskContext
from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask, call
from tests.integration.server.people import Headers, authenticator, bearer

HOST = ("host", "localhost")
TENANTLESS = authenticator(claim_mapping=ClaimMapping(attrs_claims=["org"]))


async def tell(ctx: TaskContext) -> None:
    who = ctx.principal
    await ctx.complete_json({"owner": who.owner, "tenant": who.tenant, "asked": who.asked_tenant})


def message(**more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "who"}], **more}}


def answered(body: dict[str, Any]) -> Any:
    task = body.get("result", body)["task"]
    return task["artifacts"][0]["parts"][0]["data"]


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        (bearer("alice", None), {"owner": "alice", "tenant": "", "asked": "globex"}),
        ([], {"owner": "", "tenant": "", "asked": "globex"}),
    ],
    ids=["authenticated", "anonymous"],
)
async def test_a_worker_does_not_see_a_tenant_named_by_the_caller(headers: Headers, seen: dict[str, str]) -> None:
    async with agent(worker=tell, auth=TENANTLESS, require_auth=False) as server:
        by_field = await call(server.app, "SendMessage", {**message(), "tenant": "globex"}, headers=headers)
        assert answered(by_field.json) == seen
        path, content = "/globex/message:send", [("content-type", "application/json")]
        by_path = await ask(
            server.app, "POST", path, headers=[HOST, *content, *headers], body=json.dumps(message()).encode()
        )
        assert answered(by_path.json) == seen


async def test_an_authenticated_tenant_is_seen_and_stays() -> None:
    async with agent(worker=tell, auth=authenticator()) as server:
        reply = await call(server.app, "SendMessage", {**message(), "tenant": "acme"}, headers=bearer("alice"))
        assert answered(reply.json) == {"owner": "alice", "tenant": "acme", "asked": ""}


async def test_another_tenant_is_like_one_that_does_not_exist() -> None:
    """This holds if the task is the caller's own, and if the other tenant has a caller of the same name."""
    async with agent(auth=authenticator()) as server:
        own = (await call(server.app, "SendMessage", message(), headers=bearer("alice"))).json["result"]["task"]["id"]
        await call(server.app, "SendMessage", message(), headers=bearer("alice", "globex"))
        for method, params in (
            ("SendMessage", message()),
            ("ListTasks", {}),
            ("GetTask", {"id": own}),
            ("CancelTask", {"id": own}),
        ):
            replies = [
                await call(server.app, method, {**params, "tenant": tenant}, headers=bearer("alice"))
                for tenant in ("globex", "no-such-tenant")
            ]
            assert replies[0].json["error"]["message"] == "This caller has no such tenant."
            assert replies[0].body == replies[1].body
        reply = await ask(server.app, "GET", f"/globex/tasks/{own}", headers=[HOST, *bearer("alice")])
        assert reply.status == 404


class Nothing(BaseModel):
    pass


class Seen(BaseModel):
    attrs: dict[str, Any]


class WhoAmI:
    """Returns the attributes of the caller in apcore."""

    input_schema = Nothing
    output_schema = Seen
    description = "Who am I?"

    def execute(self, inputs: dict[str, Any], context: Context) -> dict[str, Any]:
        attrs = dict(context.identity.attrs) if context.identity is not None else {}
        return {"attrs": {name: attrs[name] for name in ("tenant", "org") if name in attrs}}


@pytest.mark.parametrize(
    ("auth", "headers", "tenant", "seen"),
    [
        (TENANTLESS, bearer("alice", None), "globex", {}),
        (authenticator(), bearer("alice", "acme"), "acme", {"tenant": "acme"}),
        (TENANTLESS, bearer("alice", None, org="acme"), "globex", {"org": "acme"}),
    ],
    ids=["asked", "vouched", "claim"],
)
async def test_a_module_does_not_see_a_tenant_named_by_the_caller(
    auth: JWTAuthenticator, headers: Headers, tenant: str, seen: Any
) -> None:
    registry = Registry()
    registry.register("who.ami", WhoAmI())
    async with ApcoreServer(registry, auth=auth) as server:
        sent = message(parts=[{"data": {}}], metadata={"skillId": "who.ami"})
        reply = await call(server.app, "SendMessage", {**sent, "tenant": tenant}, headers=headers)
        assert answered(reply.json)["attrs"] == seen


def test_a_principal_has_one_kind_of_tenant() -> None:
    with pytest.raises(ValueError, match="can't have an asked_tenant"):
        Principal("alice", "acme", asked_tenant="globex")
