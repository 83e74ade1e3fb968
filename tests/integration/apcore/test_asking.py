"""Modules that ask for input: the answer becomes part of their input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apcore import ModuleAnnotations
from apcore.approval import ApprovalResult
from apcore.errors import ApprovalPendingError
from pydantic import BaseModel

from keelbolt.apcore.approvals import CallerApproves
from tests.integration.apcore.calling import output, state, status_data, status_text, task_of
from tests.integration.apcore.modules import Anything, Echo, Giving, agent_of, executor_of, registry_of
from tests.integration.apcore.test_approvals import Approver


def asks(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ask until the input has ``confirm``."""
    if "confirm" not in inputs:
        pending = ApprovalResult(status="pending", approval_id="abc", reason="Are you sure?")
        raise ApprovalPendingError(pending, module_id="asks")
    return inputs


class Threaded(Giving):
    """Asks in a thread."""

    def execute(self, inputs: dict[str, Any], context: Any) -> Any:
        return asks(inputs)


class Streaming(Giving):
    """Asks in a stream."""

    annotations = ModuleAnnotations(streaming=True)

    async def stream(self, inputs: dict[str, Any], context: Any) -> Any:
        yield asks(inputs)


class Caller(Giving):
    """Calls the module that asks."""

    async def execute(self, inputs: dict[str, Any], context: Any) -> Any:
        return await context.executor.call_async("inner", inputs, context)


class Once(Giving):
    """Asks, and must not be called twice."""

    annotations = ModuleAnnotations(destructive=True)


@pytest.mark.parametrize("by", ["task", "context", "context and skill"])
@pytest.mark.parametrize("answer", [{"confirm": True}, '{"confirm": true}'], ids=["data", "text"])
async def test_the_answer_to_a_module_that_asks_is_part_of_its_input(by: str, answer: Any) -> None:
    registry = registry_of(asks=Giving(asks), echo=Echo())
    async with agent_of(executor_of(registry)) as server:
        task = await task_of(server.app, {"what": 1}, skill="asks")
        assert state(task) == "input_required"
        assert status_text(task).startswith(
            "Approval required for asks (approval id abc): Are you sure? Send a message to this task with the answer."
        )
        where = {"taskId": task["id"]} if by == "task" else {"contextId": task["contextId"]}
        done = await task_of(server.app, answer, skill="asks" if "skill" in by else None, **where)
        assert done["id"] == task["id"]
        assert output(done) == {"what": 1, "confirm": True}


@pytest.mark.parametrize("module", [Threaded(), Streaming(asks), Once(asks)], ids=lambda one: type(one).__name__)
async def test_every_kind_of_module_can_ask(module: Any) -> None:
    async with agent_of(executor_of(registry_of(asks=module))) as server:
        task = await task_of(server.app, {"what": 1})
        assert (state(task), status_data(task)["approval"]["approvalId"]) == ("input_required", "abc")
        done = await task_of(server.app, {"confirm": True}, taskId=task["id"])
        assert output(done) == {"what": 1, "confirm": True}


async def test_a_called_module_can_ask() -> None:
    async with agent_of(executor_of(registry_of(outer=Caller(), inner=Giving(asks)))) as server:
        task = await task_of(server.app, {"what": 1}, skill="outer")
        assert state(task) == "input_required"
        assert output(await task_of(server.app, {"confirm": True}, taskId=task["id"]))["confirm"] is True


async def test_a_question_survives_the_process(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/agent.db"
    async with agent_of(executor_of(registry_of(asks=Giving(asks))), storage=storage) as server:
        task = await task_of(server.app, {"what": 1})
    async with agent_of(executor_of(registry_of(asks=Giving(asks))), storage=storage) as server:
        done = await task_of(server.app, {"confirm": True}, taskId=task["id"])
        assert output(done) == {"what": 1, "confirm": True}


class Amount(BaseModel):
    order: str
    cents: int | None = None


class Refund:
    """Asks for the amount."""

    input_schema = Amount
    output_schema = Anything
    description = "Refunds an order"

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        if inputs.get("cents") is None:
            pending = ApprovalResult(status="pending", approval_id="amount", reason="How many cents?")
            raise ApprovalPendingError(pending, module_id="refund")
        assert type(inputs["cents"]) is int
        return dict(inputs)


async def test_answers_convert_whole_numbers() -> None:
    """The official SDK sends 5.0 for 5."""
    async with agent_of(executor_of(registry_of(refund=Refund()))) as server:
        task = await task_of(server.app, {"order": "A-1"})
        done = await task_of(server.app, {"cents": 5.0}, taskId=task["id"])
        assert output(done) == {"order": "A-1", "cents": 5}


async def test_an_invalid_answer_is_requested_again() -> None:
    async with agent_of(executor_of(registry_of(refund=Refund()))) as server:
        task = await task_of(server.app, {"order": "A-1"})
        wrong = await task_of(server.app, {"cents": "many"}, taskId=task["id"])
        assert state(wrong) == "input_required"
        assert status_data(wrong)["errors"][0]["path"].startswith("/cents")
        assert "many" not in str(wrong["status"])
        done = await task_of(server.app, {"cents": 5}, taskId=task["id"])
        assert output(done) == {"order": "A-1", "cents": 5}


class Guarded(Giving):
    """Needs an approval, then asks for input."""

    annotations = ModuleAnnotations(requires_approval=True)


@pytest.mark.parametrize("handler", [CallerApproves, Approver])
async def test_an_answer_needs_a_new_approval(handler: Any) -> None:
    """The handler approved another input: the gate asks again, with the new input."""
    approver = handler()
    async with agent_of(executor_of(registry_of(asks=Guarded(asks)), approval_handler=approver)) as server:
        task = await task_of(server.app, {"what": 1})
        first = status_data(task)["approval"]["approvalId"]
        approver.status = "approved"
        asked = await task_of(server.app, "approved", taskId=task["id"])
        assert (state(asked), status_data(asked)["approval"]["approvalId"]) == ("input_required", "abc")
        gate = await task_of(server.app, {"confirm": True}, taskId=task["id"])
        assert state(gate) == "input_required"
        assert status_data(gate)["approval"]["approvalId"] not in (first, "abc")
        done = await task_of(server.app, "approved", taskId=task["id"])
        assert output(done) == {"what": 1, "confirm": True}


async def test_a_module_can_ask_twice() -> None:
    def outcome(inputs: dict[str, Any]) -> dict[str, Any]:
        for name in ("first", "second"):
            if name not in inputs:
                raise ApprovalPendingError(ApprovalResult(status="pending", approval_id=name), module_id="asks")
        return inputs

    async with agent_of(executor_of(registry_of(asks=Giving(outcome)))) as server:
        task = await task_of(server.app, {"what": 1})
        second = await task_of(server.app, {"first": 1}, taskId=task["id"])
        assert status_data(second)["approval"]["approvalId"] == "second"
        assert output(await task_of(server.app, {"second": 2}, taskId=task["id"])) == {
            "what": 1,
            "first": 1,
            "second": 2,
        }
