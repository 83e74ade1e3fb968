"""Attack: a copy of the database or a backup reveals the tokens and credentials of every webhook."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from keelbolt.a2a_sdk import sdk_stores
from keelbolt.auth import ANONYMOUS
from keelbolt.errors import InvalidValue, SecretKeyMissing
from keelbolt.kernel import Put
from keelbolt.kernel.copies import backup_storage
from keelbolt.operations.table import PREFIX
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskContext
from keelbolt.tasks.families import PUSH_CONFIGS, PUSH_CURSORS
from keelbolt.webhooks.sealing import Sealer
from keelbolt.webhooks.signing import verify
from tests.integration.server.asgi import ask, call
from tests.integration.tasks.stage import until
from tests.integration.webhooks.receiver import receiving

KEY, OLD, OTHER = "k" * 32, "o" * 32, "x" * 32
TOKEN, CREDENTIALS = "hidden-token-of-webhooks", "hidden-credentials-of-webhooks"
PARTITION = ANONYMOUS.partition
PB: Any = import_module("a2a.types.a2a_pb2")
CONTEXT: Any = import_module("a2a.server.context")


async def echo(ctx: TaskContext) -> None:
    if ctx.user_text == "wait":
        await ctx.request_input("Well?")
    else:
        await ctx.complete(ctx.user_text)


@contextlib.asynccontextmanager
async def agent(place: Path, key: str) -> AsyncIterator[A2AServer]:
    card = AgentCardConfig(
        name="A", description="Calls back.", capabilities=CapabilitiesConfig(push_notifications=True)
    )
    async with A2AServer(
        worker=echo,
        agent_card=card,
        storage=f"sqlite:///{place}/agent.db",
        settings=ServerSettings.of({}, webhook_loopback=True, secret_key=key),
    ) as server:
        yield server


def config(url: str, config_id: str = "c") -> dict[str, Any]:
    authentication = {"scheme": "Bearer", "credentials": CREDENTIALS}
    return {"id": config_id, "url": url, "token": TOKEN, "authentication": authentication}


async def send(server: A2AServer, text: str, number: int = 1, **more: Any) -> Any:
    message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": text}], **more.pop("message", {})}
    return await call(server.app, "SendMessage", {"message": message, **more})


async def start(server: A2AServer, url: str) -> tuple[str, str]:
    """Create a waiting task with a config; return its id and the secret of the config."""
    sent = await send(server, "wait", configuration={"taskPushNotificationConfig": config(url)})
    secret = sent.header("webhook-secret")
    assert secret is not None
    task_id = sent.json["result"]["task"]["id"]
    await call(server.app, "CreateTaskPushNotificationConfig", {"taskId": task_id, **config(url, "d")})
    return task_id, secret


def everything(place: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(place.iterdir()) if each.is_file())


async def test_neither_the_file_nor_a_backup_contains_them(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    data.mkdir()
    backups.mkdir()
    async with receiving() as receiver, agent(data, KEY) as server:
        _, secret = await start(server, receiver.url)
        await until(lambda: len(receiver.arrivals) >= 3)
        for arrival in receiver.arrivals:
            assert arrival.headers["authorization"] == f"Bearer {CREDENTIALS}"
            assert arrival.headers["x-a2a-notification-token"] == TOKEN
        assert any(verify(secret, arrival.headers, arrival.body) for arrival in receiver.arrivals)
        kernel = server.routes.service.engine.kernel
        await backup_storage(kernel, backups / "portable", portable=True)
        await backup_storage(kernel, backups / "file", portable=False)
        raw = everything(data) + everything(backups)
    raw += everything(data)
    for hidden in (TOKEN, CREDENTIALS, secret, secret.removeprefix("whsec_"), KEY):
        assert hidden.encode() not in raw


async def test_without_the_key_nothing_is_sent_and_operators_see_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving() as receiver:
        async with agent(tmp_path, KEY) as server:
            task_id, _ = await start(server, receiver.url)
            await until(lambda: len(receiver.arrivals) >= 3)
        for key in ("", OTHER):
            seen = len(receiver.arrivals)
            async with agent(tmp_path, key) as server:
                await send(server, "wait", 2 if key else 3, message={"taskId": task_id})
                kernel = server.routes.service.engine.kernel

                async def failed(kernel: Any = kernel, key: str = key) -> bool:
                    found = [await kernel.get(PARTITION, PUSH_CURSORS, f"{task_id}/{each}") for each in "cd"]
                    words = "KEELBOLT_SECRET_KEY"
                    return all(one is not None and words in from_json(one.body)["error"] for one in found)

                await until(failed, seconds=30)
                [shown, _other] = (await call(server.app, "ListTaskPushNotificationConfigs", {"taskId": task_id})).json[
                    "result"
                ]["configs"]
                assert "token" not in shown
                assert "credentials" not in shown["authentication"]
                listed = await ask(server.app, "GET", f"{PREFIX}/tasks/{task_id}/webhooks")
                assert {each["error"] for each in listed.json["webhooks"]} == {"config"}
                path = f"{PREFIX}/tasks/{task_id}/webhooks/c/secret"
                renewed = await ask(server.app, "POST", path, headers=[("content-type", "application/json")])
                assert renewed.status >= 400
                assert b"KEY" not in renewed.body
            assert len(receiver.arrivals) == seen, "nothing is sent without its credentials"
        assert "KEELBOLT_SECRET_KEY" in caplog.text
        assert TOKEN not in caplog.text
        async with agent(tmp_path, KEY) as server:  # with the key, waiting events are delivered
            await until(lambda: len(receiver.arrivals) > seen, seconds=30)


async def test_keys_are_rotated(tmp_path: Path) -> None:
    """The first key encrypts, all of them decrypt."""
    async with receiving() as receiver:
        async with agent(tmp_path, OLD) as server:
            task_id, _ = await start(server, receiver.url)
            await until(lambda: len(receiver.arrivals) >= 3)
        async with agent(tmp_path, f"{KEY}, {OLD}") as server:
            seen = len(receiver.arrivals)
            await send(server, "over", 2, message={"taskId": task_id})
            await until(lambda: len(receiver.arrivals) >= seen + 2)
            again = await send(server, "wait", 3, configuration={"taskPushNotificationConfig": config(receiver.url)})
            other = again.json["result"]["task"]["id"]
        async with agent(tmp_path, KEY) as server:
            kernel = server.routes.service.engine.kernel
            [old, new] = [await kernel.get(PARTITION, PUSH_CONFIGS, f"{one}/c") for one in (task_id, other)]
            assert old is not None
            assert new is not None
            sealer = Sealer(KEY)
            assert CREDENTIALS.encode() in sealer.open(from_json(new.body)["sealed"], new.key)
            with pytest.raises(SecretKeyMissing):
                sealer.open(from_json(old.body)["sealed"], old.key)


async def test_credentials_can_not_be_moved_to_another_config(tmp_path: Path) -> None:
    """An attacker that can write the database copies encrypted credentials into a config with another URL."""
    async with receiving() as receiver, receiving() as evil, agent(tmp_path, KEY) as server:
        task_id, _ = await start(server, receiver.url)
        kernel = server.routes.service.engine.kernel
        stolen = await kernel.get(PARTITION, PUSH_CONFIGS, f"{task_id}/c")
        assert stolen is not None
        sent = await send(server, "wait", 2, configuration={"taskPushNotificationConfig": {"id": "c", "url": evil.url}})
        other = sent.json["result"]["task"]["id"]
        await until(lambda: len(evil.arrivals) >= 3)
        seen = len(evil.arrivals)
        body = from_json(stolen.body)
        body["config"]["url"] = evil.url
        await kernel.commit(PARTITION, Put(PUSH_CONFIGS, f"{other}/c", to_json(body), {"task": other}))
        await send(server, "over", 3, message={"taskId": other})

        async def refused() -> bool:
            found = await kernel.get(PARTITION, PUSH_CURSORS, f"{other}/c")
            return found is not None and "moved here" in from_json(found.body)["error"]

        await until(refused, seconds=30)
        assert len(evil.arrivals) == seen


async def test_a_modified_value_is_not_decrypted() -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal(b"plain", "task/c")
    assert sealer.open(sealed, "task/c") == b"plain"
    kind, name, text = sealed.split(".")
    swapped = text[:-3] + ("A" if text[-3] != "A" else "B") + text[-2:]
    for wrong in (f"{kind}.{name}.{swapped}", f"{kind}.{name}.", f"{kind}.{name}", "", f"k2.{name}.{text}", "a.b.c.d"):
        with pytest.raises(SecretKeyMissing):
            sealer.open(wrong, "task/c")
    with pytest.raises(SecretKeyMissing):
        sealer.open(sealed, "task/d")
    assert sealer.seal(b"plain", "task/c") != sealed, "a nonce is used once"


async def test_the_stores_of_the_official_sdk_encrypt_too(tmp_path: Path) -> None:
    url, context = f"sqlite:///{tmp_path}/sdk.db", CONTEXT.ServerCallContext()
    authentication = PB.AuthenticationInfo(scheme="Bearer", credentials=CREDENTIALS)
    given = PB.TaskPushNotificationConfig(id="c", url="https://a.example/", token=TOKEN, authentication=authentication)
    async with sdk_stores(url, secret_key=KEY) as stores:
        await stores.push_configs.set_info("t", given, context)
        [found] = await stores.push_configs.get_info("t", context)
        assert (found.token, found.authentication.credentials) == (TOKEN, CREDENTIALS)
    assert TOKEN.encode() not in everything(tmp_path)
    assert CREDENTIALS.encode() not in everything(tmp_path)
    async with sdk_stores(url, secret_key="") as stores:
        with pytest.raises(SecretKeyMissing):
            await stores.push_configs.get_info("t", context)


async def test_without_a_key_configs_are_stored_unencrypted(tmp_path: Path) -> None:
    async with receiving() as receiver:
        async with agent(tmp_path, "") as server:
            task_id, _ = await start(server, receiver.url)
            await until(lambda: len(receiver.arrivals) >= 3)
        async with agent(tmp_path, KEY) as server:  # and are still readable with a key
            seen = len(receiver.arrivals)
            await send(server, "over", 2, message={"taskId": task_id})
            await until(lambda: len(receiver.arrivals) >= seen + 2)


@pytest.mark.parametrize("key", ["short", f"{KEY},", f"{KEY},short", ",", " "])
def test_an_invalid_key_prevents_the_start(key: str) -> None:
    card = AgentCardConfig(name="A", description="…")
    with pytest.raises(InvalidValue, match="KEELBOLT_SECRET_KEY") as raised:
        A2AServer(worker=echo, agent_card=card, settings=ServerSettings.of({}, secret_key=key))
    assert KEY not in str(raised.value)


def test_an_empty_key_prevents_the_start() -> None:
    with pytest.raises(InvalidValue, match="KEELBOLT_SECRET_KEY is set, but empty"):
        ServerSettings.of({"KEELBOLT_SECRET_KEY": ""})
