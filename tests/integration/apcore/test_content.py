"""Inputs and outputs of modules: exact numbers, files, and large files by reference, for their owner only."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from apcore import ModuleAnnotations
from pydantic import BaseModel, RootModel

from keelbolt.apcore import ApcoreServer
from keelbolt.client import A2AClient
from keelbolt.grpc.library import aio
from keelbolt.protocol.types import Part, Task
from tests.integration.apcore.calling import error_of, message, output, status_data, task_of
from tests.integration.apcore.modules import Anything, Giving, Total, agent_of, executor_of, registry_of
from tests.integration.apcore.test_approvals import Approver
from tests.integration.apcore.test_execution import ADAM, EVE, Names
from tests.integration.grpc.speaking import PB, Talk
from tests.integration.server.asgi import ask, call
from tests.integration.server.serving import served
from tests.unit.apcore.test_numbers import Tree

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
BIG = 9007199254740993


@pytest.fixture
def totals() -> Any:
    return agent_of(executor_of(registry_of(total=Total())))


async def test_numbers_are_exact_over_json_rpc(totals: Any) -> None:
    async with totals as server:
        for data in ({"numbers": [BIG, 0]}, '{"numbers": [9007199254740993, 0]}'):
            found = output(await task_of(server.app, data))
            assert (found["total"], type(found["total"])) == (BIG, int)
        parts = [{"kind": "data", "data": {"numbers": [BIG]}}]
        old = {"kind": "message", "messageId": "m", "role": "user", "parts": parts}
        task = (await call(server.app, "message/send", {"message": old})).json["result"]
        assert task["artifacts"][0]["parts"][0]["data"]["total"] == BIG


async def test_numbers_are_exact_over_rest(totals: Any) -> None:
    async with totals as server:
        body = json.dumps({"message": message({"numbers": [BIG]})}).encode()
        headers = [("content-type", "application/json"), ("a2a-version", "1.0")]
        reply = await ask(server.app, "POST", "/message:send", headers=headers, body=body)
        assert output(reply.json["task"])["total"] == BIG


async def test_whole_numbers_are_integers(totals: Any) -> None:
    async with totals as server:
        assert output(await task_of(server.app, {"numbers": [2.0, 1], "factor": 3.0})) == {"total": 9, "count": 2}
        assert (await error_of(server.app, {"numbers": [2.5]}))["code"] == -32602


class Deep(BaseModel):
    scores: dict[str, int]
    pair: tuple[int, str]
    several: list[int | str]
    tree: Tree


class Integers(Giving):
    """Returns its input."""

    input_schema: Any = Deep


@pytest.mark.parametrize("schema", [Deep, Deep.model_json_schema()], ids=["pydantic", "dict"])
async def test_whole_numbers_are_integers_at_any_depth(schema: Any) -> None:
    """The official SDK sends whole numbers as floats."""
    module = Integers(lambda inputs: inputs)
    module.input_schema = schema
    async with agent_of(executor_of(registry_of(deep=module))) as server:
        tree = {"weight": 1.0, "children": [{"weight": 2.0, "children": [{"weight": 3.0}]}]}
        given = {"scores": {"a": 3.0}, "pair": [1.0, "x"], "several": [2.0, "y"], "tree": tree}
        found = output(await task_of(server.app, given))
        assert json.dumps(found, sort_keys=True) == json.dumps(given, sort_keys=True).replace(".0", "")


class Shout:
    """Takes and returns text."""

    input_schema: ClassVar[Any] = {"type": "string", "maxLength": 9}
    output_schema: ClassVar[Any] = {"type": "string"}
    description = "Shouts"

    async def execute(self, inputs: str, context: Any) -> str:
        assert isinstance(inputs, str)
        return inputs.upper()


class Roots(Shout):
    input_schema = RootModel[str]
    output_schema = RootModel[str]


class Guarded(Shout):
    annotations = ModuleAnnotations(requires_approval=True)

    def execute(self, inputs: str, context: Any) -> str:  # type: ignore[override]
        return inputs.upper()


@pytest.mark.parametrize("module", [Shout(), Roots(), Guarded()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("part", ["{text", {"data": "{text"}], ids=["text", "data"])
async def test_section_4_3_5_text_for_a_schema_that_is_a_string(module: Any, part: Any) -> None:
    approver = Approver()
    approver.status = "approved"
    async with agent_of(executor_of(registry_of(shout=module), approval_handler=approver)) as server:
        task = await task_of(server.app, part)
        if isinstance(module, Guarded):
            assert approver.asked == [{"text": "{text"}]
            task = await task_of(server.app, "go on", taskId=task["id"])
        assert task["artifacts"][0]["parts"] == [{"text": "{TEXT"}]
        [skill] = server.agent_card.skills
        assert (skill.input_modes, skill.output_modes) == (("application/json", "text/plain"), ("text/plain",))
        for wrong in ({"data": {"text": "x"}}, "", {"raw": "eA=="}):
            assert (await error_of(server.app, wrong))["code"] == -32602
        if not isinstance(module, Roots):
            error = await error_of(server.app, "much too long")
            assert error["data"][1]["fieldViolations"] == [
                {"field": "", "description": "Input does not satisfy maxLength"}
            ]


FILE = {
    "type": "object",
    "properties": {"file": {"type": "string", "format": "binary"}, "size": {"type": "integer", "maximum": 9}},
    "required": ["file"],
}


class File(Giving):
    input_schema: Any = FILE


async def test_a_plain_json_schema_works_like_a_model() -> None:
    """Files match it, and errors name the field but not its value."""
    async with agent_of(executor_of(registry_of(read=File(lambda inputs: inputs)))) as server:
        found = output(await task_of(server.app, {"raw": "eHl6"}, {"size": 3.0}))
        assert found == {"file": "eHl6", "size": 3}
        error = await error_of(server.app, {"size": 123456})
        assert {each["field"] for each in error["data"][1]["fieldViolations"]} == {"/file", "/size"}
        assert "123456" not in str(error)


async def test_none_is_an_empty_object() -> None:
    """apcore converts None to an empty object."""
    async with agent_of(executor_of(registry_of(none=Giving()))) as server:
        assert output(await task_of(server.app, {})) == {}


@pytest.mark.parametrize("given", ["words", [1, 2], 5, True])
async def test_an_output_that_is_not_an_object_is_an_internal_error(given: Any) -> None:
    """apcore accepts only objects."""
    async with agent_of(executor_of(registry_of(odd=Giving(given)))) as server:
        task = await task_of(server.app, {})
        data = {"type": "ModuleExecuteError", "code": "MODULE_EXECUTE_ERROR"}
        assert status_data(task) == {"code": -32603, "message": "Internal error", "data": data}


async def test_an_output_that_is_not_json_is_explained_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    for value in (float("nan"), object()):
        async with agent_of(executor_of(registry_of(odd=Giving({"deep": [value]})))) as server:
            task = await task_of(server.app, {})
            assert status_data(task) == {"code": -32603, "message": "Internal error", "data": {"type": "InternalError"}}
    assert "/deep/0" in caplog.text


async def test_bytes_become_files_at_any_depth() -> None:
    given = {"name": "logo", "images": [{"bytes": PNG}], "note": b"plain words"}
    async with agent_of(executor_of(registry_of(draw=Giving(given)))) as server:
        [data, image, note] = (await task_of(server.app, {}))["artifacts"][0]["parts"]
        wanted = {"name": "logo", "images": [{"bytes": {"file": "images.0.bytes"}}], "note": {"file": "note"}}
        assert data["data"] == wanted
        assert base64.b64decode(image["raw"]) == PNG
        assert (image["mediaType"], image["filename"], image["metadata"]) == (
            "image/png",
            "images.0.bytes",
            {"path": "/images/0/bytes"},
        )
        assert note["mediaType"] == "text/plain"


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_a_large_file_is_stored_for_its_owner(engine: str, tmp_path: Any) -> None:
    large = PNG + bytes(1024 * 1024)
    storage = "memory:" if engine == "memory" else f"sqlite:///{tmp_path}/agent.db"
    executor = executor_of(registry_of(draw=Giving({"image": large})))
    async with agent_of(executor, auth=Names(), storage=storage) as server:
        params = {"message": message({})}
        task = (await call(server.app, "SendMessage", params, headers=ADAM)).json["result"]["task"]
        [_, part] = task["artifacts"][0]["parts"]
        path = urlsplit(part["url"]).path
        assert path.endswith(hashlib.sha256(large).hexdigest())
        reply = await ask(server.app, "GET", path, headers=ADAM)
        assert (reply.status, reply.body, reply.header("content-type")) == (200, large, "image/png")
        assert (reply.header("content-disposition") or "").startswith("attachment")
        assert reply.header("x-content-type-options") == "nosniff"
        some = await ask(server.app, "GET", path, headers=[*ADAM, ("range", "bytes=1-3")])
        assert (some.status, some.body, some.header("content-range")) == (206, b"PNG", f"bytes 1-3/{len(large)}")
        none = await ask(server.app, "GET", path, headers=[*ADAM, ("range", f"bytes={len(large)}-")])
        assert none.status == 416
        other = await ask(server.app, "GET", path, headers=EVE)
        made_up = await ask(server.app, "GET", path[:-64] + "0" * 64, headers=EVE)
        assert other.status == 404
        assert other.masked() == made_up.masked()
        assert (await ask(server.app, "DELETE", f"/keelbolt/v1/tasks/{task['id']}", headers=ADAM)).status == 200
        assert (await ask(server.app, "GET", path, headers=ADAM)).status == 404
        assert (await server.routes.service.engine.kernel.stats()).blobs in (0, 1)  # staged until its grace period ends


async def test_a_very_large_output_is_stored_as_a_file() -> None:
    async with agent_of(executor_of(registry_of(much=Giving({"words": "x" * 9_000_000})))) as server:
        [part, preview] = (await task_of(server.app, {}))["artifacts"][0]["parts"]
        assert (part["mediaType"], part["filename"]) == ("application/json", "output.json")
        reply = await ask(server.app, "GET", urlsplit(part["url"]).path)
        assert len(reply.json["words"]) == 9_000_000
        assert preview["metadata"] == {"preview": {"filename": "output.json", "bytes": 9_000_012}}
        assert '\n{"words":"xxx' in preview["text"]
        assert len(preview["text"]) < 2200


async def test_the_client_downloads_a_very_large_output() -> None:
    server = ApcoreServer(
        registry_of(much=Giving({"words": "ä" * 2_000_000}), log=Giving({"log": b"line\n" * 400_000}))
    )
    async with served(server) as url, A2AClient(url) as client:
        task = await client.send_message([Part(data={})], skill="much")
        assert isinstance(task, Task)
        [link, preview] = task.artifacts[0].parts
        assert json.loads(await client.download(link)) == {"words": "ä" * 2_000_000}
        assert "ääää" in (preview.text or "")
        task = await client.send_message([Part(data={})], skill="log")
        assert isinstance(task, Task)
        [_, link, preview] = task.artifacts[0].parts
        assert await client.download(link) == b"line\n" * 400_000
        assert "line\nline" in (preview.text or "")


class Image(BaseModel):
    content: bytes
    title: str = ""


class Described(BaseModel):
    uri: str | None = None
    bytes: str | None = None
    name: str | None = None
    mimeType: str | None = None  # noqa: N815 - as the wire has it


async def test_a_file_becomes_the_property_for_files() -> None:
    takes = Giving(lambda inputs: {"size": len(inputs["content"]), "title": inputs.get("title")})
    takes.input_schema = Image  # type: ignore[assignment]
    raw = {"raw": base64.b64encode(PNG).decode(), "mediaType": "image/png", "filename": "logo.png"}
    async with agent_of(executor_of(registry_of(takes=takes))) as server:
        assert output(await task_of(server.app, raw)) == {"size": len(PNG), "title": None}
        assert output(await task_of(server.app, raw, {"title": "Logo"}))["title"] == "Logo"
        assert (await error_of(server.app, {"url": "https://files.example/logo.png"}))["code"] == -32602
        assert (await error_of(server.app, raw, raw))["code"] == -32602


@pytest.mark.parametrize("schema", [Described, Anything])
async def test_a_file_can_be_the_whole_input(schema: Any) -> None:
    takes = Giving(lambda inputs: inputs)
    takes.input_schema = schema
    part = {"url": "https://files.example/a.txt", "mediaType": "text/plain", "filename": "a.txt"}
    async with agent_of(executor_of(registry_of(takes=takes))) as server:
        found = output(await task_of(server.app, part))
        assert found == {"uri": part["url"], "name": "a.txt", "mimeType": "text/plain"}


async def test_over_grpc_numbers_are_as_exact_as_its_doubles() -> None:
    async with agent_of(executor_of(registry_of(total=Total())), grpc_port=0) as server:
        assert server.routes.grpc is not None
        async with aio.insecure_channel(str(server.routes.grpc.at)) as channel:
            part = PB.Part()
            part.data.struct_value.update({"numbers": [2, 3], "factor": 2**40})
            sent = PB.Message(role=PB.ROLE_USER, message_id="m", parts=[part])
            task = (await Talk(server, channel).stub.SendMessage(PB.SendMessageRequest(message=sent))).task
            assert task.artifacts[0].parts[0].data.struct_value["total"] == 5 * 2**40
