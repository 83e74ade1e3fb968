"""Operators see stored turns in the server's storage, with any names and values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from keelbolt.auth import ANONYMOUS
from keelbolt.kernel import Put
from keelbolt.operations.table import PREFIX
from keelbolt.server.settings import ServerSettings
from keelbolt.turns.durable import DurableStorage, durable_storage
from keelbolt.turns.durable.scope import partition_of
from keelbolt.turns.in_memory import InMemoryMediaReader, InMemorySpoolReader
from keelbolt.turns.primitives import SpooledArtifact, Tokenizable
from tests.integration.server import actor
from tests.integration.server.serving import talking
from tests.integration.turns.stage import Calls, Turn, image, memory, message, retrievable, thought, tool_call

ODD = "a/b %~ü\0\ud800" + "x" * 700
NAMES = pytest.mark.parametrize("name", ["plain", "a%2Fb", "~", ODD], ids=["plain", "escaped", "tilde", "odd"])


@asynccontextmanager
async def looking(tmp_path: Path) -> AsyncIterator[tuple[DurableStorage, httpx2.AsyncClient]]:
    """Stored turns and a server with an operator, on one file."""
    url = f"sqlite:///{tmp_path}/both.db"
    settings = ServerSettings.of({}, operators="loopback")
    async with talking(actor.agent(url, settings=settings)) as client, durable_storage(url) as storage:
        yield storage, client


async def get(client: httpx2.AsyncClient, path: str, status: int = 200, **query: Any) -> Any:
    answer = await client.get(f"{PREFIX}/turns{path}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def calls_of(storage: DurableStorage, thread: str = "thread-1", **turn: str) -> Calls:
    return Calls(storage.callbacks(), Turn(**{"thread": thread, **turn}))


@NAMES
async def test_everything_of_a_thread_is_listed_and_shown(tmp_path: Path, name: str) -> None:
    async with looking(tmp_path) as (storage, client):
        calls = calls_of(storage, name, tenant=name, id=name, agent=name)
        picture = image(InMemoryMediaReader(b"a picture"))
        await calls.store_message(message(name, "look", attachments=[picture]))
        await calls.store_thought(thought(name))
        await calls.store_tool_call(tool_call(name, SpooledArtifact(InMemorySpoolReader(b"one\ntwo\n"))))
        await calls.store_retrievable(retrievable(name))
        await calls.store_memory(memory(name))
        await calls.store_standing_instruction(Tokenizable("be kind", key="manners"))

        (tenant,) = (await get(client, "/tenants"))["tenants"]
        whose = {"tenant": tenant["ref"]}
        (listed,) = (await get(client, "/threads", **whose))["threads"]
        assert listed["last"] == {"role": "user", "text": "look", "files": 1}
        if len(name) < 100:
            assert (tenant["id"], listed["id"]) == (name, name)
        path = f"/threads/{quote(listed['ref'], safe='')}"
        shown = await get(client, path, **whose)
        assert (shown["id"], shown["turns"], shown["gates"], shown["more"]) == (listed["id"], [], [], [])
        entries = (await get(client, f"{path}/entries", **whose))["entries"]
        assert [entry["kind"] for entry in entries] == ["retrievable", "tool_call", "thought", "message"]
        assert {(entry["id"], entry["turn"]) for entry in entries} == {(name, name)}
        for entry, kind in zip(entries, ("retrievables", "tool-calls", "thoughts", "messages"), strict=True):
            assert (await get(client, f"{path}/{kind}", **whose))["records"] == [entry]
            assert await get(client, f"{path}/{kind}/{quote(entry['ref'], safe='')}", **whose) == entry
        for entry, kind, content in ((entries[3], "messages", b"a picture"), (entries[1], "tool-calls", b"one\ntwo\n")):
            (file,) = entry["files"]
            at = f"{PREFIX}/turns{path}/{kind}/{quote(entry['ref'], safe='')}/files/{file['digest']}"
            answer = await client.get(at, params=whose)
            assert (answer.content, answer.headers["content-type"]) == (content, file["mediaType"])
            assert "attachment" in answer.headers["content-disposition"]
            part = await client.get(at, params=whose, headers={"range": "bytes=1-2"})
            assert (part.status_code, part.content) == (206, content[1:3])
        (shared,) = (await get(client, "/shared", **whose))["shared"]
        assert (shared["memories"][0]["data"]["content"], shared["instructions"][0]["data"]["text"]["key"]) == (
            "a fact",
            "manners",
        )
        at = f"/shared/{quote(shared['ref'], safe='')}"
        assert (await get(client, f"{at}/memories", **whose))["records"] == shared["memories"]
        assert (await get(client, f"{at}/standing-instructions", **whose))["records"] == shared["instructions"]


async def test_a_turn_of_a_task_that_is_over_is_not_shown_as_running(tmp_path: Path) -> None:
    """The process died, and the task was given up or canceled, so the turn could not store its end."""
    async with looking(tmp_path) as (storage, client):
        for words in ("echo 1", "wait"):
            sent = {"messageId": words, "role": "ROLE_USER", "parts": [{"text": words}]}
            body = {"message": sent, "configuration": {"returnImmediately": words == "wait"}}
            task = (await client.post("/message:send", json=body)).json()["task"]
            turn = Turn(f"{task['id']}.1", tenant=ANONYMOUS.partition, thread=words)
            await Calls(storage.callbacks(), turn).store_message(message("m"))
            await storage.progress.begin(turn)
            (shown,) = (await get(client, f"/threads/{words}", tenant=ANONYMOUS.partition))["turns"]
            assert shown["state"] == ("running" if words == "wait" else "failed")


async def test_deleted_foreign_and_unknown_data_is_not_found(tmp_path: Path) -> None:
    async with looking(tmp_path) as (storage, client):
        calls, other = calls_of(storage), calls_of(storage, "thread-2")
        await calls.store_message(message("gone"))
        await other.store_message(message("other", attachments=[image(InMemoryMediaReader(b"theirs"))]))
        await calls.delete_message("gone")
        (entry,) = (await get(client, "/threads/thread-2/entries", tenant="acme"))["entries"]
        digest = entry["files"][0]["digest"]
        assert (await get(client, "/threads/thread-1/entries", tenant="acme"))["entries"] == []
        assert (await get(client, "/threads"))["threads"] == []
        assert (await get(client, "/threads", tenant="unknown"))["threads"] == []
        for path in (
            "/threads/none",
            "/threads/none/entries",
            "/threads/none/messages",
            "/threads/thread-1/secrets",
            "/threads/thread-1/messages/gone",
            "/threads/thread-1/messages/other",
            "/threads/thread-1/messages/%00",
            f"/threads/thread-1/messages/{'x' * 3000}",
            f"/threads/thread-1/messages/gone/files/{digest}",
            f"/threads/thread-2/messages/other/files/{'0' * 64}",
            "/shared/agent:none/memories",
            "/shared/thread:thread-1/messages",
        ):
            assert "there is no such" in (await get(client, path, 404, tenant="acme"))["error"]["message"], path
        await get(client, "/threads/thread-2/entries", 400, tenant="acme", pageToken="nonsense")
        await get(client, "/threads", 400, tenant="acme", pageToken="nonsense")


async def test_damaged_data_is_reported_beside_the_rest(tmp_path: Path) -> None:
    async with looking(tmp_path) as (storage, client):
        calls = calls_of(storage)
        await calls.store_message(message("whole"))
        await calls.store_message(message("broken"))
        for body in (b"{", b'{"v":1}', b'{"v":99}', b'{"v":1,"turn":"t","created":1,"data":{"id":"broken"}}'):
            key = "thread/thread-1/broken"
            found = await storage.kernel.get(partition_of("acme"), "turn_messages", key)
            assert found is not None
            await storage.kernel.commit(partition_of("acme"), Put("turn_messages", key, body, found.fields))
            assert len((await get(client, "/threads", tenant="acme"))["threads"]) == 1
            broken, whole = (await get(client, "/threads/thread-1/entries", tenant="acme"))["entries"]
            assert whole["data"]["content"] == "hello"
            assert ("problem" in broken) == (b"data" not in body)
            assert (await get(client, "/threads/thread-1/messages/broken", tenant="acme")) == broken


async def test_lists_are_paged_and_long_texts_are_cut(tmp_path: Path) -> None:
    async with looking(tmp_path) as (storage, client):
        calls = calls_of(storage)
        for number in range(30):
            await calls.store_message(message(f"m{number}"))
            await calls.store_thought(thought(f"h{number}"))
        for number in range(7):
            await calls_of(storage, f"other-{number}").store_message(message())
        await calls.store_message(message("long", "word " * 10_000))
        expected = ["long", *(f"{kind}{number}" for number in reversed(range(30)) for kind in "hm")]
        for path, items, wanted in (
            ("/threads/thread-1/entries", "entries", expected),
            ("/threads/thread-1/messages", "records", [each for each in expected if not each.startswith("h")]),
            ("/threads", "threads", ["thread-1", *(f"other-{number}" for number in reversed(range(7)))]),
        ):
            seen: list[str] = []
            token = ""
            while True:
                page = await get(client, path, tenant="acme", pageSize=4, pageToken=token)
                seen += [each["id"] for each in page[items]]
                token = page["nextPageToken"]
                if not token:
                    break
            assert seen == wanted
        first = (await get(client, "/threads/thread-1/entries", tenant="acme"))["entries"][0]
        assert first["cut"] is True
        assert first["data"]["content"].endswith("(50000 characters)")
        whole = await get(client, "/threads/thread-1/messages/long", tenant="acme")
        assert (whole["cut"], whole["data"]["content"]) == (False, "word " * 10_000)
