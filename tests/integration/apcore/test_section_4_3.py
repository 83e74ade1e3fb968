"""Sections 4.3 to 4.5 of the design of apcore agents: its components."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from apcore import ModuleAnnotations, errors
from apcore.module import ModuleExample

from keelbolt.apcore import AgentCardBuilder, ApcoreServer, ErrorMapper, SchemaConverter, SkillCatalog, SkillMapper
from keelbolt.apcore.inputs import parts_to_input
from keelbolt.apcore.outputs import output_to_parts
from keelbolt.client import A2AClient
from keelbolt.errors import SkillInputError
from keelbolt.protocol.types import Part, Task
from keelbolt.server.settings import ServerSettings
from tests.integration.apcore.modules import Count, Echo, Sleeper, Total, registry_of
from tests.integration.apcore.serving import server_of, serving
from tests.integration.apcore.test_section_5 import answer
from tests.integration.apcore.test_section_7 import data, send_params
from tests.integration.server.asgi import ask, call
from tests.integration.server.serving import served


class Full(Echo):
    tags = ["text", "fast"]  # noqa: RUF012 - as people write it
    annotations = ModuleAnnotations(readonly=True)
    examples = [ModuleExample(str(n), {"text": str(n)}, {}) for n in range(12)]  # noqa: RUF012


class Mute(Echo):
    description = ""


async def nowhere(content: bytes, media_type: str, name: str) -> str:
    raise AssertionError


def test_section_4_3_1_the_card_is_built_from_the_registry(caplog: pytest.LogCaptureFixture) -> None:
    card = AgentCardBuilder(SkillCatalog(registry_of(a=Full(), b=Mute())), name="N", version="1").build()
    assert [skill.id for skill in card.skills] == ["a"]
    assert "Skipping module b: missing description" in caplog.text
    assert tuple(card.input_modes) == tuple(card.output_modes) == ("application/json",)
    assert card.capabilities.streaming


def test_section_4_3_2_a_skill_is_mapped_from_its_module() -> None:
    skill = SkillMapper().to_skill(registry_of(image__resize=Full()).get_definition("image.resize"))
    assert skill is not None
    assert (skill.id, skill.name, list(skill.tags)) == (
        "image.resize",
        "Image Resize",
        ["text", "fast", "apcore:readonly"],
    )
    assert len(skill.examples or ()) == 10
    assert skill.input_modes == ("application/json", "text/plain")
    assert (skill.extensions or {})["apcore"]["annotations"]["readonly"] is True


def test_section_4_3_3_schemas_are_self_contained() -> None:
    converter = SchemaConverter()
    found = converter.convert_input_schema(registry_of(total=Total()).get_definition("total"))
    assert "$defs" not in found
    assert converter.detect_root_type(found) == "object"


def test_section_4_3_4_errors_are_mapped() -> None:
    """The unit tests cover each row; errors that reveal secrets are replaced."""
    found = ErrorMapper().to_jsonrpc_error(errors.ACLDeniedError("eve", "secret.module"))
    assert found == {"code": -32001, "message": "Task not found", "data": found["data"]}
    assert found["data"]["type"] == "TaskNotFoundError"
    assert "secret" not in str(found)


async def test_section_4_3_5_parts_and_inputs() -> None:
    echo, total = (SkillCatalog(registry_of(m=module)).modules["m"] for module in (Echo(), Total()))
    assert parts_to_input([Part(text="hello")], echo) == {"text": "hello"}
    assert parts_to_input([Part(data={"numbers": [1]})], total) == {"numbers": [1]}
    assert parts_to_input([Part(text='{"numbers": [1]}')], total) == {"numbers": [1]}
    with pytest.raises(SkillInputError, match="Invalid JSON in TextPart"):
        parts_to_input([Part(text="hello")], total)
    with pytest.raises(SkillInputError, match="at least one Part"):
        parts_to_input([], echo)
    [part] = await output_to_parts({"a": 1}, nowhere)
    assert (part.data, part.media_type) == ({"a": 1}, "application/json")
    [part] = await output_to_parts("words", nowhere)
    assert part.text == "words"
    assert await output_to_parts(None, nowhere) == []


async def test_section_4_4_1_paths() -> None:
    async with serving(registry_of(echo=Echo()), metrics=True, explorer=True) as app:
        for path in ("/.well-known/agent.json", "/health", "/metrics", "/explorer/"):
            assert (await ask(app, "GET", path)).status == 200, path


async def test_section_4_4_3_the_first_terminal_state_is_final() -> None:
    """A task that completes and is cancelled at the same time keeps one of the two states."""
    async with serving(registry_of(count=Count())) as app:
        params = send_params(data({"to": 50}), skill="count") | {"configuration": {"blocking": False}}
        tasks = [await answer(app, "message/send", params) for _ in range(5)]
        await asyncio.gather(*(answer(app, "tasks/cancel", {"id": task["id"]}) for task in tasks))
        engine = server_of(app).routes.service.engine
        for task in tasks:
            ends = set()
            for _ in range(2):
                stored = await engine.tasks.load(task["id"])
                ends.add(stored.view.state)
            assert len(ends) == 1
            assert ends.pop().terminal


async def test_section_4_4_4_every_method_is_dispatched() -> None:
    names = ["message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/list", "tasks/resubscribe"]
    names += [f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "delete")]
    async with serving(registry_of(echo=Echo()), push_notifications=True) as app:
        for name in names:
            reply = (await call(app, name, {})).json
            assert reply.get("error", {}).get("code") != -32601, name


async def test_section_4_4_5_too_many_streams_are_refused_with_retry_after() -> None:
    sleeper = Sleeper()
    server = ApcoreServer(registry_of(sleep=sleeper), settings=ServerSettings.of(streams=1))
    async with server:
        app = server.app
        first = asyncio.create_task(call(app, "message/stream", send_params(data({}), skill="sleep")))
        await sleeper.began.wait()
        second = await call(app, "message/stream", send_params(data({}), skill="sleep"))
        assert (second.status, second.header("retry-after")) == (503, "5")
        [task] = (await answer(app, "tasks/list", {}))["tasks"]
        await answer(app, "tasks/cancel", {"id": task["id"]})
        await first


def test_section_4_5_the_client_does_not_import_the_server() -> None:
    program = (
        "import sys; from keelbolt.client import A2AClient; "
        "print(sorted({'starlette', 'uvicorn', 'apcore'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


async def test_section_4_5_1_the_client_and_its_errors() -> None:
    with pytest.raises(ValueError, match="http"):
        A2AClient("ftp://agent.example")
    server = ApcoreServer(registry_of(echo=Echo(), count=Count()))
    async with served(server) as url, A2AClient(url) as client:
        task = await client.send_message("hello", metadata={"skillId": "echo"}, context_id="talk")
        assert isinstance(task, Task)
        assert (await client.get_task(task.id)).artifacts[0].parts[0].data == {"text": "hello"}
        page = await client.list_tasks(context_id="talk")
        assert [each.id for each in page.tasks if isinstance(each, Task)] == [task.id]
        chunks = [event async for event in client.stream_message([Part(data={"to": 2})], metadata={"skillId": "count"})]
        assert len(chunks) >= 3
