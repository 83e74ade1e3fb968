"""Section 12 of the design of apcore agents: its tests, and scenarios that only this section has."""

from __future__ import annotations

import ast
import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from apcore.module import ModuleExample

from keelbolt.apcore import CallerApproves, InMemoryTaskStore, SkillCatalog, SkillMapper
from keelbolt.apcore.inputs import parts_to_input
from keelbolt.apcore.outputs import output_to_parts
from keelbolt.errors import SkillInputError
from keelbolt.protocol.types import Part
from tests.integration.apcore.calling import message, output, streamed, task_of
from tests.integration.apcore.modules import Count, Deploy, Echo, Giving, Sleeper, Total, registry_of
from tests.integration.apcore.serving import server_of, serving, until
from tests.integration.apcore.test_section_7 import data, send_params
from tests.integration.server.asgi import call

TESTS = Path(__file__).parents[2]
COUNTS = {"4.2": 3, "4.3": 5, "4.4": 6, "4.5": 2, "4.6": 3, "4.7": 2, "5.1": 9, "6": 3, "7": 6}
COUNTS |= {"9": 5, "10": 6, "11": 6, "12": 4, "13": 4, "15": 3}
SECTIONS = [f"{chapter}.{number}" for chapter, count in COUNTS.items() for number in range(1, count + 1)]
SECTIONS += ["4.8", "4.9", "5.2", "5.3"]


def sources() -> Iterator[Path]:
    for level in ("unit", "integration"):
        yield from sorted((TESTS / level / "apcore").glob("*.py"))


def names() -> list[str]:
    found = [node for file in sources() for node in ast.walk(ast.parse(file.read_text()))]
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node.name for node in found if isinstance(node, kinds) and node.name.startswith("test_")]


@pytest.mark.parametrize("section", SECTIONS)
def test_section_12_1_every_section_has_its_tests(section: str) -> None:
    number = section.replace(".", "_")
    assert any(re.search(rf"_{number}_(?!\d)", name) for name in names())


def test_section_12_1_no_test_hides_another() -> None:
    for file in sources():
        found = Counter(
            node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.AsyncFunctionDef)
        )
        assert [name for name, count in found.items() if count > 1] == []


def test_section_12_2_executors_and_registries_are_the_real_ones() -> None:
    mocks = re.compile(r"\bfrom unittest(\.mock)? import|\bimport unittest|\b(?:Async|Magic)Mock\(")
    assert [file.name for file in sources() if mocks.search(file.read_text())] == []


async def test_section_12_3_text_json_and_a_stream_in_one_agent() -> None:
    store = InMemoryTaskStore()
    async with serving(registry_of(echo=Echo(), total=Total(), count=Count()), task_store=store) as app:
        assert output(await task_of(app, "hi", skill="echo")) == {"text": "hi"}
        assert output(await task_of(app, {"numbers": [1, 2]}, skill="total"))["total"] == 3
        assert len((await streamed(app, {"to": 3}, skill="count"))["artifacts"][0]["parts"]) == 3
        assert len((await store.list())["tasks"]) == 3


# ----------------------------------------------------------------------------------------------------- 12.4 scenarios


def test_section_12_4_skills() -> None:
    class Full(Echo):
        examples = [ModuleExample(str(number), {"text": str(number)}) for number in range(12)]  # noqa: RUF012

    class Silent(Echo):
        description = ""

    mapper = SkillMapper()
    registry = registry_of(full=Full(), silent=Silent(), total=Total())
    full, silent, total = (mapper.to_skill(registry.get_definition(name)) for name in ("full", "silent", "total"))
    assert silent is None
    assert full is not None
    assert total is not None
    assert (len(full.examples or ()), full.tags) == (10, ("text",))
    assert (full.input_modes, total.input_modes) == (("application/json", "text/plain"), ("application/json",))


async def test_section_12_4_parts() -> None:
    async def nowhere(content: bytes, media_type: str, filename: str) -> str:
        raise AssertionError

    echo, total = (SkillCatalog(registry_of(m=module)).modules["m"] for module in (Echo(), Total()))
    assert parts_to_input([Part(text="x")], echo) == {"text": "x"}
    assert parts_to_input([Part(data={"numbers": []})], total) == {"numbers": []}
    assert parts_to_input([Part(text='{"numbers": [1]}')], total) == {"numbers": [1]}
    for wrong in ([Part(text="{")], []):
        with pytest.raises(SkillInputError):
            parts_to_input(wrong, total)
    assert [part.data for part in await output_to_parts({"a": 1}, nowhere)] == [{"a": 1}]
    assert [part.text for part in await output_to_parts("words", nowhere)] == ["words"]
    assert await output_to_parts(None, nowhere) == []


async def test_section_12_4_every_transition() -> None:
    """Every transition that a caller can cause; terminal states have none."""
    sleeper = Sleeper()
    given: dict[str, Any] = {"echo": Echo(), "bad": Giving(ValueError()), "sleep": sleeper, "deploy": Deploy()}
    seen: set[tuple[str, str]] = set()
    async with serving(registry_of(**given), approval_handler=CallerApproves(), execution_timeout=0.4) as app:

        async def passed(task_id: str) -> list[str]:
            task = (await call(app, "tasks/get", {"id": task_id})).json["result"]
            found = [step["state"] for step in task["metadata"]["stateTransitionHistory"]]
            seen.update(pairwise(found))
            return found

        for skill, part in (("echo", "x"), ("bad", {}), ("sleep", {"deaf": True})):  # the last one times out
            await passed((await task_of(app, part, skill=skill))["id"])
        sleeper.began.clear()
        params = send_params(data({}), skill="sleep") | {"configuration": {"blocking": False}}
        running = (await call(app, "message/send", params)).json["result"]["id"]
        await sleeper.began.wait()
        await call(app, "tasks/cancel", {"id": running})
        await until(app, running, "canceled")
        await passed(running)
        waiting = [(await task_of(app, word, skill="deploy"))["id"] for word in ("approved", "denied", "left")]
        await task_of(app, "approved", taskId=waiting[0])
        await task_of(app, "denied", taskId=waiting[1])
        await call(app, "tasks/cancel", {"id": waiting[2]})
        ends = [(await passed(task_id))[-1] for task_id in waiting]
        assert ends == ["completed", "rejected", "canceled"]
        for task_id in [running, *waiting]:
            late = (await call(app, "SendMessage", {"message": message("more", taskId=task_id)})).json
            assert late["error"]["code"] == -32004
            assert (await call(app, "tasks/cancel", {"id": task_id})).json["error"]["code"] == -32002
        engine = server_of(app).routes.service.engine
        for task_id in waiting:
            assert (await engine.tasks.load(task_id)).view.state.terminal
    assert {
        ("submitted", "working"),
        ("working", "completed"),
        ("working", "failed"),
        ("working", "canceled"),
        ("working", "input-required"),
        ("input-required", "submitted"),  # then working, as soon as a slot is free
        ("input-required", "canceled"),
    } <= seen
    assert not any(before in ("completed", "failed", "canceled", "rejected") for before, _ in seen)


async def test_section_12_4_one_of_many_writers_ends_a_task() -> None:
    sleeper = Sleeper()
    async with serving(registry_of(sleep=sleeper)) as app:
        params = {"message": message({}, skill="sleep"), "configuration": {"returnImmediately": True}}
        task = (await call(app, "SendMessage", params)).json["result"]["task"]
        await sleeper.began.wait()
        replies = await asyncio.gather(*[call(app, "CancelTask", {"id": task["id"]}) for _ in range(10)])
        assert any("result" in reply.json for reply in replies)
        await until(app, task["id"], "canceled")
        found = (await call(app, "tasks/get", {"id": task["id"]})).json["result"]
        states = [step["state"] for step in found["metadata"]["stateTransitionHistory"]]
        assert states == ["submitted", "working", "canceled"]


async def test_section_12_4_multi_turn_and_streams_end_to_end() -> None:
    """Tests of sections 4.2, 4.7, 5, 7, 9 and 10 and of the official clients cover the other scenarios."""
    async with serving(registry_of(count=Count())) as app:
        reply = await call(app, "message/stream", send_params(data({"to": 100}), skill="count"))
        numbers = [
            event["result"]["artifact"]["parts"][0]["data"]["number"]
            for event in reply.events
            if event["result"]["kind"] == "artifact-update"
        ]
        assert numbers == list(range(1, 101))
