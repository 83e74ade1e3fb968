"""Attack: a tenant's operator reads, cancels and erases tasks of another tenant, and sees the whole system."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp

from keelbolt.auth import Principal, TokenAuthenticator
from keelbolt.errors import InvalidValue
from keelbolt.operations.call import SYSTEM_OPERATOR as SYSTEM
from keelbolt.operations.table import PREFIX, ROUTES
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from tests.integration.server.asgi import Headers, Reply, ask, call
from tests.integration.server.people import authenticator, bearer

JSON = ("content-type", "application/json")

OWNERS = (("alice", "acme"), ("bob", "acme"), ("carol", "globex"))
ODD_TENANTS = ("acme/", "acme//bob", "acm", "acme2", "%61cme", "ACME", "globex", "")


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(ctx.user_text)


@contextlib.asynccontextmanager
async def agent(*, roles: str | None = None) -> AsyncIterator[tuple[ASGIApp, dict[str, str]]]:
    """An agent with one task of each owner."""
    environment = {} if roles is None else {"KEELBOLT_OPERATOR_ROLES": roles}
    card = AgentCardConfig(
        name="A", description="Has tenants.", capabilities=CapabilitiesConfig(push_notifications=True)
    )
    server = A2AServer(worker=echo, agent_card=card, auth=authenticator(), settings=ServerSettings.of(environment))
    async with server:
        found = {}
        for owner, tenant in OWNERS:
            message = {"messageId": f"m-{owner}", "role": "ROLE_USER", "parts": [{"text": f"secret of {owner}"}]}
            sent = await call(server.app, "SendMessage", {"message": message}, headers=bearer(owner, tenant))
            found[owner] = sent.json["result"]["task"]["id"]
        yield server.app, found


async def asked(app: ASGIApp, who: Headers, method: str, path: str, **query: str) -> Reply:
    from urllib.parse import urlencode

    text = urlencode(query)
    return await ask(app, method, PREFIX + path, query=text, headers=[*who, JSON], body=b"{}")


def operator(tenant: str = "acme", role: str = "operator") -> Headers:
    return bearer("olga", tenant, roles=[role])


async def test_an_operator_sees_its_own_tenant() -> None:
    async with agent() as (app, tasks):
        for query in ({"owner": "bob"}, {"owner": "bob", "tenant": "acme"}):
            shown = await asked(app, operator(), "GET", f"/tasks/{tasks['bob']}", **query)
            assert b"secret of bob" in shown.body
        listed = await asked(app, operator(), "GET", "/partitions")
        assert listed.json == {"partitions": ["acme/alice", "acme/bob"]}
        assert (await asked(app, operator(), "DELETE", f"/tasks/{tasks['bob']}", owner="bob")).status == 200


@pytest.mark.parametrize("tenant", ODD_TENANTS)
async def test_an_operator_sees_no_other_tenant(tenant: str) -> None:
    """Every route with a tenant responds as for a tenant that does not exist."""
    async with agent() as (app, tasks):
        for route in ROUTES:
            if route.operator or "tenant" not in dict(route.query):
                continue
            path = route.path.replace("{task_id}", tasks["carol"])
            path = path.replace("{config_id}", "c").replace("{digest}", "0" * 64)
            for name in ("tenant", "askedTenant"):
                if not tenant and name == "askedTenant":
                    continue
                reply = await asked(app, operator(), route.method, path, owner="carol", **{name: tenant})
                assert reply.status == 404, (route.name, tenant)
                assert b"carol" not in reply.body
        mine = await asked(app, bearer("carol", "globex"), "GET", f"/tasks/{tasks['carol']}")
        assert b"secret of carol" in mine.body, "nothing was erased or cancelled"


async def test_an_operator_without_a_tenant_sees_no_tenant_with_a_long_name() -> None:
    """The name of a partition that gets too long is shortened, also within the name of its tenant."""
    owner = Principal("名" * 12, "会" * 15)
    olga, otto = (Principal(name, roles=frozenset({role})) for name, role in (("olga", "operator"), ("otto", SYSTEM)))
    keys = {"key-of-the-owner": owner, "key-of-operator-olga": olga, "key-of-operator-otto": otto}
    headers = {principal: [("authorization", f"Bearer {key}")] for key, principal in keys.items()}
    card = AgentCardConfig(name="A", description="Has tenants.")
    async with A2AServer(worker=echo, agent_card=card, auth=TokenAuthenticator.of(keys)) as server:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "secret"}]}
        sent = await call(server.app, "SendMessage", {"message": message}, headers=headers[owner])
        task_id = sent.json["result"]["task"]["id"]
        for principal, status in ((olga, 404), (otto, 200)):
            who, named = headers[principal], {"tenant": owner.tenant, "owner": owner.owner}
            assert (await asked(server.app, who, "GET", f"/tasks/{task_id}", **named)).status == status
            listed = await asked(server.app, who, "GET", "/tasks", all="true")
            assert (task_id.encode() in listed.body) == (status == 200)


async def test_the_whole_system_is_for_operators_of_all_tenants() -> None:
    async with agent() as (app, _):
        for route in ROUTES:
            if route.operator:
                path = route.path.replace("{", "").replace("}", "")
                for tenant in ("acme", ""):
                    reply = await asked(app, operator(), route.method, path, tenant=tenant)
                    assert reply.status == 404, route.name
                    assert json.loads(reply.body)["error"]["message"].endswith("there is nothing at this path")
        assert (await asked(app, operator(role="operator:all"), "GET", "/system")).status == 200


async def test_an_operator_of_all_tenants_sees_all() -> None:
    async with agent() as (app, tasks):
        olga = operator(role="operator:all")
        for owner, tenant in OWNERS:
            shown = await asked(app, olga, "GET", f"/tasks/{tasks[owner]}", owner=owner, tenant=tenant)
            assert f"secret of {owner}".encode() in shown.body
        listed = await asked(app, olga, "GET", "/partitions")
        assert listed.json == {"partitions": ["acme/alice", "acme/bob", "globex/carol"]}
        who = (await asked(app, olga, "GET", "/whoami")).json
        assert (who["operator"], who["allTenants"]) == (True, True)
        who = (await asked(app, operator(), "GET", "/whoami")).json
        assert (who["operator"], who["allTenants"]) == (True, False)


SWITCHED: list[tuple[str, dict[str, int]]] = [
    ("", {"operator": 404, "operator:all": 404}),
    ("operator", {"operator": 200, "operator:all": 404}),
    ("operator:all", {"operator": 404, "operator:all": 200}),
    ("operator, operator:all", {"operator": 200, "operator:all": 200}),
]


@pytest.mark.parametrize(("roles", "statuses"), SWITCHED)
async def test_both_roles_can_be_switched_off(roles: str, statuses: dict[str, int]) -> None:
    async with agent(roles=roles) as (app, tasks):
        for role, status in statuses.items():
            shown = await asked(app, operator(role=role), "GET", f"/tasks/{tasks['bob']}", owner="bob", tenant="acme")
            assert shown.status == status, role


@pytest.mark.parametrize("roles", [["Operator"], ["operators"], ["operator:*"], ["operator:acme"], ["admin"], []])
async def test_no_other_role_is_an_operator(roles: list[str]) -> None:
    async with agent() as (app, tasks):
        who: Any = bearer("olga", roles=roles)
        assert (await asked(app, who, "GET", f"/tasks/{tasks['bob']}", owner="bob")).status == 404
        assert (await asked(app, who, "GET", "/partitions")).status == 404


def test_a_role_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="operator_roles"):
        ServerSettings.of({"KEELBOLT_OPERATOR_ROLES": "admin"})
    with pytest.raises(InvalidValue, match="operator_roles"):
        ServerSettings(operator_roles="operator")
