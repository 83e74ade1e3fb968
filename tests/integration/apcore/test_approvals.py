"""Approvals: requested, given, refused, expired; after a restart; never skipped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from apcore.approval import ApprovalRequest, ApprovalResult
from apcore.errors import ApprovalPendingError
from apcore.module import Change, PreviewResult
from pydantic import BaseModel

from keelbolt.apcore.approvals import CallerApproves
from tests.integration.apcore.calling import error_of, message, output, send, state, status_data, status_text, task_of
from tests.integration.apcore.modules import Anything, Deploy, Echo, Giving, agent_of, executor_of, registry_of
from tests.integration.apcore.serving import until
from tests.integration.apcore.test_section_10 import authenticator, token
from tests.integration.server.asgi import call


class Approver:
    """An approval handler that decides later."""

    def __init__(self) -> None:
        self.status: Any = "pending"
        self.asked: list[dict[str, Any]] = []
        self.checked: list[str] = []

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResult:
        self.asked.append(dict(request.arguments))
        return ApprovalResult(status="pending", approval_id=f"req-{len(self.asked)}", reason="a deployment")

    async def check_approval(self, approval_id: str) -> ApprovalResult:
        self.checked.append(approval_id)
        return ApprovalResult(status=self.status, approval_id=approval_id, reason="by the approver")


@pytest.fixture(autouse=True)
def deployed() -> list[str]:
    Deploy.deployed.clear()  # deployments of other tests
    return Deploy.deployed


def agent(approver: Any, storage: str = "memory:", **options: Any) -> Any:
    executor = executor_of(registry_of(deploy__service=Deploy(), echo=Echo()), approval_handler=approver)
    return agent_of(executor, storage=storage, **options)


async def test_a_pending_approval_is_requested_and_given(deployed: list[str]) -> None:
    approver = Approver()
    async with agent(approver) as server:
        task = await task_of(server.app, "the website", skill="deploy.service")
        assert state(task) == "input_required"
        assert status_text(task).startswith("Approval required for deploy.service (approval id req-1): a deployment.")
        assert status_data(task)["approval"]["approvalId"] == "req-1"
        assert approver.asked == [{"text": "the website"}]
        again = await task_of(server.app, "and?", taskId=task["id"])
        assert state(again) == "input_required"
        assert status_data(again)["approval"]["approvalId"] == "req-1"
        approver.status = "approved"
        done = await task_of(server.app, "approved", taskId=task["id"])
        assert (done["id"], output(done)) == (task["id"], {"deployed": "the website"})
        assert (approver.checked, deployed, len(approver.asked)) == (["req-1", "req-1"], ["the website"], 1)


RETURNS = {"configuration": {"returnImmediately": True}}


class Calls:
    """Calls deploy.service after a while."""

    input_schema = Anything
    output_schema = Anything
    description = "Calls another module"

    def __init__(self) -> None:
        self.executor: Any = None
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()

    async def execute(self, inputs: dict[str, Any], context: Any) -> Any:
        self.began.set()
        await self.goes_on.wait()
        return await self.executor.call_async("deploy.service", {"text": "the website"}, context)


async def test_a_message_sent_before_the_question_approves_nothing(deployed: list[str]) -> None:
    calls = Calls()
    modules = registry_of(calls=calls, deploy__service=Deploy(), echo=Echo())
    calls.executor = executor_of(modules, approval_handler=CallerApproves())
    async with agent_of(calls.executor) as server:
        first = {"message": message({}, skill="calls"), **RETURNS}
        task = (await call(server.app, "SendMessage", first)).json["result"]["task"]
        await calls.began.wait()
        more = {"message": message("ok", skill="echo", taskId=task["id"]), **RETURNS}
        await call(server.app, "SendMessage", more)
        calls.goes_on.set()
        await until(server.app, task["id"], "input_required")
        task = (await call(server.app, "GetTask", {"id": task["id"]})).json["result"]
        assert status_text(task).startswith("Your last message was sent before this question")
        assert deployed == []
        done = await task_of(server.app, "approved", taskId=task["id"])
        assert (output(done), deployed) == ({"deployed": "the website"}, ["the website"])


@pytest.mark.parametrize("by", ["task", "context", "context and skill"])
async def test_an_approval_survives_the_process(by: str, tmp_path: Path, deployed: list[str]) -> None:
    storage = f"sqlite:///{tmp_path}/agent.db"
    approver = Approver()
    async with agent(approver, storage) as server:
        task = await task_of(server.app, {"text": "the website"}, skill="deploy.service")
    approver.status = "approved"
    async with agent(approver, storage) as server:  # only the file is shared
        where = {"taskId": task["id"]} if by == "task" else {"contextId": task["contextId"]}
        skill = "deploy.service" if "skill" in by else None
        done = await task_of(server.app, "approved", skill=skill, messageId="answer", **where)
        assert (done["id"], output(done)) == (task["id"], {"deployed": "the website"})
        repeated = await task_of(server.app, "approved", skill=skill, messageId="answer", **where)
        assert repeated["id"] == task["id"]
        page = (await call(server.app, "ListTasks", {"contextId": task["contextId"]})).json["result"]
        assert [each["id"] for each in page["tasks"]] == [task["id"]]
    assert (deployed, approver.checked) == (["the website"], ["req-1"])


async def test_another_skill_in_the_same_context_is_a_new_task() -> None:
    async with agent(Approver()) as server:
        task = await task_of(server.app, "the website", skill="deploy.service")
        other = await task_of(server.app, "hello", skill="echo", contextId=task["contextId"])
        assert output(other) == {"text": "hello"}
        assert other["id"] != task["id"]


async def test_the_conversation_of_apcore_agents(deployed: list[str]) -> None:
    """The messages have their format: the context next to the message, no task id, no skill in the second turn."""
    async with agent(CallerApproves()) as server:
        first = {
            "message": {"role": "user", "parts": [{"type": "text", "text": "the website"}]},
            "metadata": {"skillId": "deploy.service"},
        }
        task = (await call(server.app, "message/send", first)).json["result"]
        assert task["status"]["state"] == "input-required"
        second = {
            "message": {"role": "user", "parts": [{"type": "text", "text": "approved"}]},
            "contextId": task["contextId"],
        }
        done = (await call(server.app, "message/send", second)).json["result"]
        assert (done["id"], done["status"]["state"]) == (task["id"], "completed")
        page = (await call(server.app, "tasks/list", {"contextId": task["contextId"]})).json["result"]
        assert [each["id"] for each in page["tasks"]] == [task["id"]]
        assert page["nextCursor"] is None
    assert deployed == ["the website"]


@pytest.mark.parametrize(
    ("status", "ends", "words", "kind"),
    [
        ("rejected", "rejected", "Approval denied: by the approver", "ApprovalDeniedError"),
        ("timeout", "failed", "The approval expired", "ApprovalTimeoutError"),
    ],
)
async def test_a_refusal_and_an_expiry(status: str, ends: str, words: str, kind: str, deployed: list[str]) -> None:
    approver = Approver()
    async with agent(approver) as server:
        task = await task_of(server.app, "the website", skill="deploy.service")
        approver.status = status
        over = await task_of(server.app, "well?", taskId=task["id"])
        assert (state(over), status_text(over), status_data(over)["data"]["type"]) == (ends, words, kind)
    assert deployed == []


@pytest.mark.parametrize(("answer", "ends"), [("yes", "completed"), ("No.", "rejected"), ("why?", "input_required")])
async def test_the_caller_can_approve(answer: str, ends: str) -> None:
    async with agent(CallerApproves()) as server:
        task = await task_of(server.app, "the website", skill="deploy.service")
        assert state(await task_of(server.app, answer, taskId=task["id"])) == ends


async def test_an_approval_is_valid_for_one_call(deployed: list[str]) -> None:
    approver = Approver()
    async with agent(approver) as server:
        await task_of(server.app, "the website", skill="deploy.service")
        approver.status = "approved"
        error = await error_of(server.app, {"text": "all", "_approval_token": "req-1"}, skill="deploy.service")
        assert error["code"] == -32602
        task = await task_of(server.app, "the website", skill="deploy.service")
        changed = await task_of(server.app, {"text": "all of it", "approved": True}, taskId=task["id"])
        assert output(changed) == {"deployed": "the website"}
    assert deployed == ["the website"]


async def test_without_an_approval_handler_the_call_is_refused(deployed: list[str]) -> None:
    async with agent(None) as server:
        task = await task_of(server.app, "the website", skill="deploy.service")
        assert state(task) == "rejected"
        assert "has no approval handler" in status_text(task)
    executor = executor_of(registry_of(deploy=Deploy()), strategy="internal")
    async with agent_of(executor) as server:  # a pipeline without a gate does not approve calls
        assert state(await task_of(server.app, "the website")) == "rejected"
    assert deployed == []


async def test_allow_unapproved_skips_approvals(deployed: list[str]) -> None:
    async with agent(None, allow_unapproved=True) as server:
        assert output(await task_of(server.app, "the website", skill="deploy.service"))["deployed"] == "the website"
    assert deployed == ["the website"]


async def test_a_module_can_request_input() -> None:
    def outcome(inputs: dict[str, Any]) -> dict[str, Any]:
        if "reason" not in inputs:
            raise ApprovalPendingError(ApprovalResult(status="pending", reason="say why"), module_id="asks")
        return inputs

    async with agent_of(executor_of(registry_of(asks=Giving(outcome)))) as server:
        task = await task_of(server.app, {"what": 1})
        assert state(task) == "input_required"
        still = await task_of(server.app, "hm", taskId=task["id"])
        assert state(still) == "input_required"
        done = await task_of(server.app, {"reason": "because"}, taskId=task["id"])
        assert output(done) == {"what": 1, "reason": "because"}


async def test_a_waiting_task_can_be_cancelled() -> None:
    async with agent(Approver()) as server:
        task = await task_of(server.app, "the website", skill="deploy.service")
        cancelled = (await call(server.app, "CancelTask", {"id": task["id"]})).json["result"]
        assert state(cancelled) == "canceled"
        late = (await send(server.app, "approved", taskId=task["id"])).json
        assert late["error"]["code"] == -32004


async def test_a_changed_module_needs_a_new_approval(tmp_path: Path) -> None:
    """The message now results in another input than the approved one."""

    class Input(BaseModel):
        service: str

    class Renamed(Deploy):
        input_schema = Input  # type: ignore[assignment]

        async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
            return inputs

    approver = Approver()
    storage = f"sqlite:///{tmp_path}/agent.db"
    async with agent(approver, storage) as server:
        task = await task_of(server.app, "the website", skill="deploy.service")
    approver.status = "approved"
    executor = executor_of(registry_of(deploy__service=Renamed(), echo=Echo()), approval_handler=approver)
    async with agent_of(executor, storage=storage) as server:
        asked = await task_of(server.app, "approved", taskId=task["id"])
        assert (state(asked), status_data(asked)["approval"]["approvalId"]) == ("input_required", "req-2")
        done = await task_of(server.app, "approved", taskId=task["id"])
        assert output(done) == {"service": "the website"}


async def test_another_caller_can_not_approve(deployed: list[str]) -> None:
    """With its task id, another caller gets "not found"; in its context, a new task."""
    executor = executor_of(registry_of(deploy=Deploy(), echo=Echo()), approval_handler=CallerApproves())
    async with agent_of(executor, auth=authenticator()) as server:
        mine, other = ([("authorization", f"Bearer {token(sub=who)}")] for who in ("me", "other"))
        task = (await send(server.app, "x", skill="deploy", headers=mine)).json["result"]["task"]
        assert state(task) == "input_required"
        wrong = (await send(server.app, "approved", taskId=task["id"], headers=other)).json["error"]
        none = (await send(server.app, "approved", taskId="no-such-task", headers=other)).json["error"]
        assert str(wrong).replace(task["id"], "no-such-task") == str(none)
        aside = (await send(server.app, "approved", contextId=task["contextId"], headers=other)).json
        assert aside["error"]["message"] == "Missing required parameter: metadata.skillId"
        own = (await send(server.app, "approved", skill="deploy", contextId=task["contextId"], headers=other)).json
        assert own["result"]["task"]["id"] != task["id"]
        assert state(own["result"]["task"]) == "input_required"
        assert deployed == []
        done = (await send(server.app, "approved", taskId=task["id"], headers=mine)).json["result"]["task"]
        assert (output(done), deployed) == ({"deployed": "x"}, ["x"])


class Release(Deploy):
    """Needs an approval, and calls a module that needs another one."""

    description = "Releases"

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        found: dict[str, Any] = await context.executor.call_async("deploy", {"text": f"{inputs['text']}.1"}, context)
        return found


@pytest.mark.parametrize("answer", ["approved", "denied"])
async def test_each_called_module_needs_its_own_approval(answer: str, deployed: list[str]) -> None:
    executor = executor_of(registry_of(release=Release(), deploy=Deploy()), approval_handler=CallerApproves())
    async with agent_of(executor) as server:
        task = await task_of(server.app, "site", skill="release")
        assert status_text(task).startswith("Approval required for release (approval id ")
        inner = await task_of(server.app, "approved", taskId=task["id"])
        assert status_text(inner).startswith("Approval required for release, which calls deploy (approval id ")
        assert status_data(inner)["approval"]["approvalId"] != status_data(task)["approval"]["approvalId"]
        unsure = await task_of(server.app, "hm?", taskId=task["id"])
        assert (state(unsure), status_data(unsure)["approval"]["approvalId"]) == (
            "input_required",
            status_data(inner)["approval"]["approvalId"],
        )
        done = await task_of(server.app, answer, taskId=task["id"])
        assert state(done) == ("completed" if answer == "approved" else "rejected")
        assert deployed == (["site.1"] if answer == "approved" else [])


class Foreseen(Deploy):
    """Predicts its changes."""

    def preview(self, inputs: dict[str, Any], context: Any) -> PreviewResult:
        change = Change(
            action="write",
            target="prod",
            summary=f"Replaces {inputs['text']} in production.",
            before={"version": 1},
            after={"version": "x" * 5000},
        )
        return PreviewResult(changes=[change] * 30)

    def preflight(self, inputs: dict[str, Any], context: Any) -> list[str]:
        return ["It is Friday"]


class Unforeseen(Deploy):
    """Its preview fails."""

    def preview(self, inputs: dict[str, Any], context: Any) -> PreviewResult:
        raise RuntimeError("hunter2")


async def test_an_approval_request_has_a_preview(deployed: list[str]) -> None:
    executor = executor_of(registry_of(deploy=Foreseen()), approval_handler=CallerApproves())
    async with agent_of(executor) as server:
        task = await task_of(server.app, "the website")
        assert "Predicted changes: Replaces the website in production; " in status_text(task)
        assert "Warnings: It is Friday. Send a message" in status_text(task)
        preview = status_data(task)["approval"]["preview"]
        assert (len(preview["changes"]), preview["warnings"]) == (20, ["It is Friday"])
        assert preview["changes"][0] == {
            "action": "write",
            "target": "prod",
            "summary": "Replaces the website in production.",
            "before": {"version": 1},
            "after": "too large to show",
        }
        assert deployed == []
        assert output(await task_of(server.app, "approved", taskId=task["id"])) == {"deployed": "the website"}


async def test_an_approval_request_omits_a_failing_preview(caplog: pytest.LogCaptureFixture) -> None:
    executor = executor_of(registry_of(deploy=Unforeseen()), approval_handler=CallerApproves())
    async with agent_of(executor) as server:
        task = await task_of(server.app, "the website")
        assert "preview" not in status_data(task)["approval"]
        assert "hunter2" not in str(task)
    assert "hunter2" in caplog.text
