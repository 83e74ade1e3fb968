"""The operations API shows callers their own data, and all data only to operators; generated from its routes."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest
import pytest_asyncio
from starlette.types import ASGIApp, Scope

from keelbolt.kernel import new_id
from keelbolt.operations.table import PREFIX, ROUTES, OpsRoute
from keelbolt.server.origins import at_this_machine
from tests.integration.server.alice import SECRET_WORDS, Alice, agent, alices_things, fresh, invented, started
from tests.integration.server.asgi import Headers, Reply, ask, call
from tests.integration.server.people import bearer

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN = {
    "brief",
    "report",
    "all",
    "sort",
    "everything",
    "last",
    "whole",
    "follow",
    "retain",
    "dryRun",
    "ifIdle",
    "state",
    "since",
    "until",
    "text",
    "q",
    "hours",
    "skill",
    "pageSize",
    "after",
    "limit",
    "reason",
    "kind",
    "payload",
    "seq",
    "queue",
    "answer",
    "value",
}
"""Parameters that name no object of an owner. A new parameter must be added here or to `reaches`."""

DIGEST = "0" * 64
STATE = dict.fromkeys(("session_id", "state_task_id", "trace_id", "memory_key", "artifact_id", "gate_token"), "none")
STATE |= dict.fromkeys(("thread_ref", "record_kind", "record_ref", "blob_digest", "sharer_ref", "pause_token"), "none")
STATE |= dict.fromkeys(("family", "data_ref", "log"), "none")
GOOD_BODIES = {
    "steer_task": b'{"kind":"inject","payload":{}}',
    "fork_task": b'{"seq":1}',
    "send_task": b'{"text":"hi"}',
    "erase_subject": b'{"kind":"task","id":"none"}',
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[ASGIApp]:
    async with agent() as server:
        yield server.app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alices(app: ASGIApp) -> dict[str, Alice]:
    return await alices_things(app)


def reaches(route: OpsRoute) -> list[str]:
    """Return the kinds of another caller's data that this route can reach."""
    names = {name for name, _ in route.query}
    found = ["task"] if "{task_id}" in route.path else []
    found += [name for name in ("context", "pageToken") if name in names]
    found += ["owner", "asked"] if {"tenant", "owner", "askedTenant"} <= names else []
    found += ["cursor"] if route.stream and "{task_id}" in route.path else []
    return found or ["nothing"]


CASES = [
    pytest.param(route, reach, id=f"{route.name} [{reach}]")
    for route in ROUTES
    for reach in reaches(route)
    if route.name != "whoami"  # it shows callers only their own names
]


async def test_every_parameter_is_known() -> None:
    """A new route or parameter must declare the data that it can reach."""
    for route in ROUTES:
        names = {name for name, _ in (*route.query, *route.body)}
        assert names <= PLAIN | {"context", "pageToken", "tenant", "owner", "askedTenant", "session", "task", "id"}, (
            route.name
        )
        assert route.operator or not names & {"session", "task", "id"}, route.name
        named = set(re.findall(r"{(\w+)}", route.path))
        assert named <= {"task_id", "config_id", "digest"} or (route.operator and named <= STATE.keys()), route.name
        assert not named & {"config_id", "digest"} or "task_id" in named, route.name


async def asked(app: ASGIApp, route: OpsRoute, reach: str, things: Alice, who: Headers, owner: str = "") -> Reply:
    """Request the data that ``things`` names at this route."""
    query = {"state": "waiting"} if route.name == "list_work" else {}
    if route.name == "data_subject":
        query = {"kind": "task", "id": "none"}
    if reach == "context":
        query["context"] = things.context
    elif reach == "pageToken":
        query["pageToken"] = things.page
    elif reach == "owner":
        query |= {"owner": owner, "tenant": "acme"}
    elif reach == "asked":
        query |= {"owner": owner, "askedTenant": "acme"}
    headers = [("content-type", "application/json"), ("host", "agent.example"), *who]
    if reach == "cursor":
        headers.append(("last-event-id", "1"))
    return await ask(
        app,
        route.method,
        PREFIX
        + route.path.format(task_id=things.task, config_id=quote(things.config, safe=""), digest=DIGEST, **STATE),
        headers=headers,
        query=urlencode(query),
        body=GOOD_BODIES.get(route.name, b"{}") if route.method == "POST" else b"",
        enough=(lambda body: b"\n\n" in body) if route.stream else None,
    )


@pytest.mark.parametrize(("route", "reach"), CASES)
async def test_data_of_another_owner_does_not_exist(
    app: ASGIApp, alices: dict[str, Alice], route: OpsRoute, reach: str
) -> None:
    for alice in alices.values():
        for named, housed in (("", "acme"), ("alice", ""), ("", "")):
            seen = []
            for things, whose in ((alice, "alice"), (invented(alice), "ecila")):
                who = bearer(named or fresh("m"), housed or fresh("t"))
                reply = await asked(app, route, reach, things, who, whose)
                assert SECRET_WORDS.encode() not in reply.body
                seen.append(reply.masked(whose, *things.words))
            assert seen[0] == seen[1]


@pytest.mark.parametrize("expired", [False, True], ids=["anonymous", "expired"])
@pytest.mark.parametrize(("route", "reach"), CASES)
async def test_anonymous_callers_get_only_a_challenge(
    app: ASGIApp, alices: dict[str, Alice], route: OpsRoute, reach: str, expired: bool
) -> None:
    who = bearer("alice", expires_in=-3600, roles=["operator:all"]) if expired else []
    seen = []
    for things, whose in ((alices["input"], "alice"), (invented(alices["input"]), "ecila")):
        reply = await asked(app, route, reach, things, who, whose)
        assert reply.status == 401
        assert (reply.header("www-authenticate") or "").startswith("Bearer")
        seen.append(reply.masked(whose, *things.words))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("route", [route for route in ROUTES if route.operator], ids=lambda route: route.name)
async def test_operator_routes_do_not_exist_for_others(app: ASGIApp, route: OpsRoute) -> None:
    """Operator routes respond like a path that does not exist; so do requests for other owners, known or not."""
    nothing = await ask(app, "GET", f"{PREFIX}/nothing", headers=bearer("mallory"))
    alice = Alice(new_id(), new_id(), new_id(), "", "")
    for roles in ([], ["user"], ["Operator"], ["operators"]):
        reply = await asked(app, route, "nothing", alice, bearer("mallory", roles=roles))
        assert reply.masked() == nothing.masked()
    shown = await asked(app, route, "nothing", alice, bearer("olga", roles=["operator:all"]))
    assert shown.status == 200 or (shown.status == 404 and b"there is no" in shown.body)


@pytest.mark.parametrize("owner", ["alice", "unknown"])
async def test_only_operators_act_for_others(app: ASGIApp, alices: dict[str, Alice], owner: str) -> None:
    nothing = await ask(app, "GET", f"{PREFIX}/nothing", headers=bearer("mallory"))
    query = urlencode({"owner": owner, "tenant": "acme"})
    refused = await ask(app, "GET", f"{PREFIX}/tasks", query=query, headers=bearer("mallory"))
    assert refused.masked() == nothing.masked()
    shown = await ask(app, "GET", f"{PREFIX}/tasks", query=query, headers=bearer("olga", roles=["operator:all"]))
    assert (len(shown.json["tasks"]) > 0) == (owner == "alice")


async def test_an_operators_page_token_grants_no_access(app: ASGIApp, alices: dict[str, Alice]) -> None:
    """A page token of another owner's tasks gives no access to a caller that may not see them."""
    query = {"owner": "alice", "tenant": "acme", "pageSize": "1"}
    operator = bearer("olga", roles=["operator:all"])
    page = await ask(app, "GET", f"{PREFIX}/tasks", query=urlencode(query), headers=operator)
    stolen = urlencode({"pageToken": page.json["nextPageToken"]})
    reply = await ask(app, "GET", f"{PREFIX}/tasks", query=stolen, headers=bearer("mallory"))
    assert reply.status == 400
    assert b'"tasks"' not in reply.body


LISTS = (("tasks", "tasks"), ("dead", "dead"), ("webhooks", "webhooks"))


@pytest.mark.parametrize(("path", "name"), LISTS)
async def test_all_shows_only_what_the_caller_may_see(
    app: ASGIApp, alices: dict[str, Alice], path: str, name: str
) -> None:
    """The list exists only for operators; for a tenant's operator it shows only that tenant."""
    nothing = await ask(app, "GET", f"{PREFIX}/nothing", headers=bearer("mallory"))
    query = urlencode({"all": "true", "pageSize": "100"})
    refused = await ask(app, "GET", f"{PREFIX}/{path}", query=query, headers=bearer("mallory", "acme"))
    assert refused.masked() == nothing.masked()
    everything = await ask(app, "GET", f"{PREFIX}/{path}", query=query, headers=bearer("o", roles=["operator:all"]))
    assert name == "dead" or any(each["partition"] == "acme/alice" for each in everything.json[name])
    tenant = bearer("o", "acme", roles=["operator"])
    of_tenant = await ask(app, "GET", f"{PREFIX}/{path}", query=query, headers=tenant)
    assert {each["partition"].partition("/")[0] for each in of_tenant.json[name]} <= {"acme"}
    forged = urlsafe_b64encode(b'["acme/alice",""]').decode()
    query = urlencode({"all": "true", "pageToken": forged})
    other = bearer("o", "other", roles=["operator"])
    assert (await ask(app, "GET", f"{PREFIX}/{path}", query=query, headers=other)).status == 400


LOCAL = [("host", "localhost:8000")]


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        (LOCAL, True),
        ([("host", "127.0.0.1:8000")], True),
        ([("host", "[::1]:8000")], True),
        ([*LOCAL, ("origin", "http://localhost:8000")], True),
        ([*LOCAL, ("origin", "https://page.example")], False),
        ([*LOCAL, ("origin", "null")], False),
        ([("host", "rebound.example:8000")], None),
        ([("host", "[:bad")], None),
        ([], False),
        ([*LOCAL, ("x-forwarded-for", "192.0.2.7")], False),
        ([*LOCAL, ("forwarded", "for=192.0.2.7")], False),
        ([*LOCAL, ("via", "1.1 proxy")], False),
        ([*LOCAL, ("x-forwarded-proto", "https")], False),  # the caller may choose the host that a proxy passes on
        ([*LOCAL, ("cf-connecting-ip", "192.0.2.7")], False),
        ([*LOCAL, ("host", "rebound.example")], None),
        ([*LOCAL, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], False),  # an image of a page
        ([*LOCAL, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], True),  # a link that is followed
        ([*LOCAL, ("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")], True),
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "192.0.2.7"])
async def test_without_authentication_only_this_machine_sees_operator_data(
    headers: Headers, seen: bool | None, address: str
) -> None:
    """With operators="loopback", local callers see it; callers behind a proxy and pages in a local browser do not."""
    server = agent()
    server._resolver = None
    server.settings = replace(server.settings, operators="loopback")
    async with server:

        async def from_address(scope: object, receive: object, send: object) -> None:
            await server.app({**scope, "client": (address, 1)}, receive, send)  # type: ignore[dict-item, arg-type]

        reply = await ask(from_address, "GET", f"{PREFIX}/partitions", headers=headers)
    assert reply.status == (421 if seen is None else 200 if seen and address != "192.0.2.7" else 404)


async def test_a_proxy_is_recognised_by_its_http_version() -> None:
    """nginx with only a target configured sends HTTP/1.0, its own address, and no header that names the client."""
    scope: Scope = {"client": ("127.0.0.1", 1), "headers": [(b"host", b"127.0.0.1:8000")], "http_version": "1.1"}
    assert at_this_machine(scope)
    assert not at_this_machine({**scope, "http_version": "1.0"})


async def test_without_authentication_no_caller_is_an_operator_by_default() -> None:
    """A local proxy that adds no header looks like a local user."""
    server = agent()
    server._resolver = None
    async with server:

        async def from_here(scope: object, receive: object, send: object) -> None:
            await server.app({**scope, "client": ("127.0.0.1", 1)}, receive, send)  # type: ignore[dict-item, arg-type]

        for route in ROUTES:
            if route.operator:
                assert (await ask(from_here, route.method, PREFIX + route.path, headers=LOCAL)).status == 404
        query = urlencode({"owner": "alice", "tenant": "acme"})
        assert (await ask(from_here, "GET", f"{PREFIX}/tasks", query=query, headers=LOCAL)).status == 404


async def test_alices_data_is_unchanged(app: ASGIApp, alices: dict[str, Alice]) -> None:
    states = {"completed": "COMPLETED", "input": "INPUT_REQUIRED", "working": "WORKING"}
    for state, alice in alices.items():
        task = (await call(app, "GetTask", {"id": alice.task}, headers=bearer("alice"))).json["result"]
        assert task["status"]["state"] == f"TASK_STATE_{states[state]}"
        inbox = await ask(app, "GET", f"{PREFIX}/tasks/{alice.task}/inbox", headers=bearer("alice"))
        assert inbox.json["head"] == 0


async def test_the_log_distinguishes_an_operator_from_the_owner() -> None:
    """An operator's action on another owner's task is recorded with the operator's name."""
    async with agent() as server:
        for state in ("working", "input"):
            task = await started(server.app, state, bearer("alice"))
            query = urlencode({"owner": "alice", "tenant": "acme"})
            who = [("content-type", "application/json"), *bearer("olga", roles=["operator:all"])]
            path = f"{PREFIX}/tasks/{task['id']}"
            reply = await ask(server.app, "POST", f"{path}/cancel", query=query, headers=who, body=b'{"reason":"old"}')
            assert reply.json["status"]["state"] == "TASK_STATE_CANCELED"
            log = await ask(server.app, "GET", f"{path}/log", headers=bearer("alice"))
            assert b'"source":"olga"' in log.body
            assert b'"source":"alice"' not in log.body
