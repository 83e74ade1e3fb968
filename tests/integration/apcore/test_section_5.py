"""Section 5 of the design of apcore agents: its methods and paths, in its format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apcore import ModuleAnnotations

from keelbolt.apcore import CallerApproves
from keelbolt.protocol.types import Task
from tests.integration.apcore.modules import Count, Deploy, Echo, Giving, Sleeper, Total, executor_of, registry_of
from tests.integration.apcore.serving import serving
from tests.integration.apcore.test_section_7 import data, send_params, text
from tests.integration.apcore.test_section_10 import authenticator, bearer
from tests.integration.server.asgi import ask, call


async def answer(app: Any, method: str, params: Any) -> Any:
    reply = (await call(app, method, params)).json
    return reply.get("result", reply.get("error"))


@pytest.mark.parametrize(
    ("params", "code", "words"),
    [
        ({}, -32602, "message"),
        ({"message": {"role": "agent", "parts": [text("x")]}}, -32602, "role"),
        ({"message": {"role": "user", "parts": []}}, -32602, "part"),
        ({"message": {"role": "user", "parts": [{"text": "x"}, {"nothing": 1}]}}, -32602, "parts"),
        (send_params(text("x")), -32602, "Missing required parameter: metadata.skillId"),
        (send_params(text("x"), skill="nothing"), -32601, "Skill not found: nothing"),
        (send_params(text("x"), skill="x" * 5000), -32601, "Skill not found"),
        (send_params(text("no JSON"), skill="total"), -32602, "Invalid JSON in TextPart"),
        (send_params(data({"numbers": "x"}), skill="total"), -32602, "Invalid params"),
    ],
)
async def test_section_5_1_1_errors_are_explained(params: Any, code: int, words: str) -> None:
    async with serving(registry_of(echo=Echo(), total=Total())) as app:
        error = await answer(app, "message/send", params)
        assert error["code"] == code
        assert words in error["message"]
        assert len(error["message"]) <= 500
        assert error["data"]["type"]


async def test_section_5_1_1_a_context_id_is_any_text() -> None:
    """The protocol has no rule for context ids; they are returned unchanged, in JSON."""
    async with serving(registry_of(echo=Echo())) as app:
        for name in ("5e4e8b3e-0f0c-4a36-8f0e-6d9a2f5b8c11", "not a uuid <script>"):
            task = await answer(app, "message/send", send_params(text("x"), skill="echo", context=name))
            assert task["contextId"] == name


async def test_section_5_1_1_a_file_by_url() -> None:
    async with serving(registry_of(gives=Giving(lambda inputs: inputs))) as app:
        part = {"type": "file", "uri": "https://files.example/a.pdf", "name": "a.pdf", "mimeType": "application/pdf"}
        task = await answer(app, "message/send", send_params(part, skill="gives"))
        found = task["artifacts"][0]["parts"][0]["data"]
        assert found == {"uri": part["uri"], "name": "a.pdf", "mimeType": "application/pdf"}


async def test_section_5_1_2_a_plain_module_streams_its_status_and_its_result() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        reply = await call(app, "message/stream", send_params(text("x"), skill="echo"))
        assert (reply.header("content-type") or "").startswith("text/event-stream")
        kinds = [event["result"]["kind"] for event in reply.events]
        assert kinds[0] == "task"
        assert kinds.count("artifact-update") == 1
        last = reply.events[-1]["result"]
        assert (last["final"], last["status"]["state"]) == (True, "completed")


async def test_section_5_1_2_errors_precede_streams() -> None:
    async with serving(registry_of(echo=Echo(), count=Count())) as app:
        error = (await call(app, "message/stream", send_params(text("x"), skill="nothing"))).json["error"]
        assert error["code"] == -32601


async def test_section_5_1_3_and_5_1_4_tasks_are_got_and_listed() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        made = [
            await answer(app, "message/send", send_params(text(str(n)), skill="echo", context="talk")) for n in range(3)
        ]
        got = await answer(app, "tasks/get", {"id": made[0]["id"]})
        assert (got["id"], got["artifacts"]) == (made[0]["id"], made[0]["artifacts"])
        assert (await answer(app, "tasks/get", {"id": "nothing"}))["code"] == -32001
        assert (await answer(app, "tasks/get", {}))["code"] == -32602
        page = await answer(app, "tasks/list", {"contextId": "talk", "limit": 2})
        assert len(page["tasks"]) == 2
        rest = await answer(app, "tasks/list", {"contextId": "talk", "limit": 2, "cursor": page["nextCursor"]})
        assert len(rest["tasks"]) == 1
        assert rest["nextCursor"] is None
        assert (await answer(app, "tasks/list", {"cursor": "made up"}))["code"] == -32602
        assert len((await answer(app, "tasks/list", {"limit": 5000}))["tasks"]) == 3


async def test_section_5_1_5_a_task_is_cancelled_once() -> None:
    sleeper = Sleeper()
    async with serving(registry_of(sleep=sleeper)) as app:
        params = send_params(data({}), skill="sleep") | {"configuration": {"blocking": False}}
        task = await answer(app, "message/send", params)
        await sleeper.began.wait()
        cancelled = await answer(app, "tasks/cancel", {"id": task["id"]})
        assert cancelled["status"]["state"] == "canceled"
        assert cancelled["status"]["message"]["parts"] == [{"kind": "text", "text": "Canceled by client"}]
        again = await answer(app, "tasks/cancel", {"id": task["id"]})
        assert again["code"] == -32002
        assert (await answer(app, "tasks/cancel", {"id": "nothing"}))["code"] == -32001


async def test_section_5_1_5_a_waiting_task_is_cancelled_in_the_same_way() -> None:
    executor = executor_of(registry_of(deploy=Deploy()), approval_handler=CallerApproves())
    async with serving(executor) as app:
        task = await answer(app, "message/send", send_params(text("x"), skill="deploy"))
        assert task["status"]["state"] == "input-required"
        cancelled = await answer(app, "tasks/cancel", {"id": task["id"]})
        assert cancelled["status"]["message"]["parts"] == [{"kind": "text", "text": "Canceled by client"}]


async def test_section_5_1_6_resubscribing_returns_the_current_state() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        task = await answer(app, "message/send", send_params(text("x"), skill="echo"))
        reply = await call(app, "tasks/resubscribe", {"id": task["id"]})
        [event] = reply.events
        assert event["result"]["status"]["state"] == "completed"
        error = (await call(app, "tasks/resubscribe", {"id": "nothing"})).json["error"]
        assert error["code"] == -32001


async def test_section_5_1_7_and_5_1_8_and_5_1_9_webhooks_are_set_got_and_deleted() -> None:
    async with serving(registry_of(echo=Echo()), push_notifications=True) as app:
        task = await answer(app, "message/send", send_params(text("x"), skill="echo"))
        where = {"taskId": task["id"], "url": "https://hooks.example.com/a2a"}
        made = await answer(app, "tasks/pushNotificationConfig/set", where)
        assert made["pushNotificationConfig"]["url"] == where["url"]
        got = await answer(app, "tasks/pushNotificationConfig/get", {"taskId": task["id"]})
        assert got["pushNotificationConfig"]["url"] == where["url"]
        reply = (await call(app, "tasks/pushNotificationConfig/delete", {"taskId": task["id"]})).json
        assert "error" not in reply
        assert "result" in reply
        gone = await answer(app, "tasks/pushNotificationConfig/get", {"taskId": task["id"]})
        assert gone["code"] == -32001
        assert (await answer(app, "tasks/pushNotificationConfig/set", {"url": where["url"]}))["code"] == -32602
        assert (await answer(app, "tasks/pushNotificationConfig/set", {"taskId": task["id"]}))["code"] == -32602


async def test_section_5_2_the_card() -> None:
    async with serving(registry_of(image__resize=Echo())) as app:
        reply = await ask(app, "GET", "/.well-known/agent.json")
        assert (reply.status, reply.header("content-type")) == (200, "application/json")
        assert "max-age=300" in (reply.header("cache-control") or "")
        [skill] = reply.json["skills"]
        assert (skill["id"], skill["name"]) == ("image.resize", "Image Resize")
        assert skill["inputModes"] == ["application/json", "text/plain"]
        assert reply.json["capabilities"]["streaming"] is True
        assert (await ask(app, "GET", "/agent/authenticatedExtendedCard")).status == 404


async def test_section_5_2_the_extended_card() -> None:
    class Approved(Echo):
        annotations = ModuleAnnotations(requires_approval=True)

    async with serving(registry_of(echo=Echo(), approved=Approved()), auth=authenticator()) as app:
        path = "/agent/authenticatedExtendedCard"
        assert (await ask(app, "GET", path)).status == 401
        reply = await ask(app, "GET", path, headers=bearer())
        assert [skill["id"] for skill in reply.json["skills"]] == ["approved", "echo"]
        public = (await ask(app, "GET", "/.well-known/agent-card.json")).json
        assert [skill["id"] for skill in public["skills"]] == ["echo"]


async def test_section_5_3_tasks_have_the_format_of_the_protocol() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        reply = await call(app, "SendMessage", {"message": _new("hello")})
        task = Task.model_validate(reply.json["result"]["task"])
        assert task.artifacts[0].parts[0].data == {"text": "hello"}


def _new(words: str) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": words}], "metadata": {"skillId": "echo"}}


# ---------------------------------------------------------------------------------------------------- section 6: tasks


async def test_section_6_1_a_task_has_its_members() -> None:
    async with serving(registry_of(echo=Echo())) as app:
        task = await answer(app, "message/send", send_params(text("x"), skill="echo", context="talk"))
        assert task["kind"] == "task"
        assert task["contextId"] == "talk"
        assert task["metadata"]["skillId"] == "echo"
        assert task["status"]["timestamp"].endswith("Z")
        [artifact] = task["artifacts"]
        assert artifact["artifactId"]
        assert [message["role"] for message in task["history"]] == ["user"]


async def test_section_6_2_and_6_3_states_follow_each_other() -> None:
    """The states are submitted, working and one terminal state; the metadata has their times."""
    given = {"echo": Echo(), "bad": Giving(RuntimeError("x")), "sleep": Sleeper()}
    async with serving(registry_of(**given), execution_timeout=0.2) as app:
        for skill, end in (("echo", "completed"), ("bad", "failed"), ("sleep", "failed")):
            part = text("x") if skill == "echo" else data({"deaf": True})
            task = await answer(app, "message/send", send_params(part, skill=skill))
            states = [step["state"] for step in task["metadata"]["stateTransitionHistory"]]
            assert states == ["submitted", "working", end]
            assert ("Execution timed out" in json.dumps(task["status"])) is (skill == "sleep")
            late = await answer(app, "message/send", {"message": {**_late(), "taskId": task["id"]}})
            assert late["code"] == -32004


def _late() -> dict[str, Any]:
    return {"kind": "message", "messageId": "late", "role": "user", "parts": [{"kind": "text", "text": "more"}]}
