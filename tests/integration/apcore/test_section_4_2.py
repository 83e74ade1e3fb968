"""Section 4.2 of the design of apcore agents: the arguments that serve() and async_serve() accept and refuse."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from apcore import APCore, Executor, Registry
from apcore.config import Config
from starlette.applications import Starlette
from starlette.routing import Mount

import keelbolt.apcore
import keelbolt.client
from keelbolt.apcore import ApcoreServer, InMemoryTaskStore, async_serve, serve
from keelbolt.apcore.resolve import resolve
from keelbolt.apcore.task_store import METHODS
from tests.integration.apcore.calling import output, task_of
from tests.integration.apcore.modules import Echo, executor_of, registry_of
from tests.integration.apcore.serving import MODULE, extensions, server_of, serving
from tests.integration.server.asgi import ask

NO_MODULES = "Registry contains zero modules; at least one module is required to serve an A2A agent"


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Duck:
    """A registry of another library with list() and get_definition()."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self.config = registry, {"project": {"name": "duck", "version": "7.0.0"}}
        self.list, self.get_definition, self.get = registry.list, registry.get_definition, registry.get


# ----------------------------------------------------------------------------------------------------- 4.2.1 resolution


def apcore_client() -> APCore:
    client = APCore()
    client.registry.register("echo", Echo())
    return client


@pytest.mark.parametrize(
    "make",
    [
        lambda: registry_of(echo=Echo()),
        lambda: executor_of(registry_of(echo=Echo())),
        apcore_client,
        lambda: Duck(registry_of(echo=Echo())),
        lambda: extensions(Path("extensions"), echo=MODULE),
        lambda: str(extensions(Path("extensions"), echo=MODULE)),
    ],
    ids=["registry", "executor", "client", "duck", "path", "text"],
)
async def test_section_4_2_1_accepted_arguments(make: Callable[[], object]) -> None:
    async with serving(make()) as app:
        assert output(await task_of(app, {"text": "hi"}, skill="echo")) == {"text": "hi"}


def test_section_4_2_1_an_executor_is_used_unchanged() -> None:
    executor = executor_of(registry_of(echo=Echo()))
    found = resolve(executor)
    assert found.executor is executor
    assert found.registry is executor.registry


@pytest.mark.parametrize("given", [None, 7, {"list": 1}, object()])
def test_section_4_2_1_other_objects_are_refused(given: object) -> None:
    with pytest.raises(TypeError, match=r"takes an apcore Registry .* or the path .*, not "):
        resolve(given)


def test_section_4_2_1_an_executor_without_a_registry_is_refused() -> None:
    class Lonely:
        async def call_async(self) -> None: ...

    with pytest.raises(TypeError, match=r"Lonely has call_async\(\), but no registry with list"):
        resolve(Lonely())


@pytest.mark.parametrize("make", [Registry, lambda: Executor(Registry())])
async def test_section_4_2_1_no_modules(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError) as caught:
        await async_serve(make())
    assert str(caught.value) == NO_MODULES


def test_section_4_2_1_the_default_timeout_of_apcore_is_lifted_unless_configured() -> None:
    lifted = resolve(registry_of(echo=Echo())).executor
    assert (lifted._default_timeout, lifted._global_timeout) == (0, 0)
    chosen = Registry(config=Config(data={"executor": {"default_timeout": 1500}}))
    chosen.register("echo", Echo())
    assert resolve(chosen).executor._default_timeout == 1500


# ------------------------------------------------------------------------------------- 4.2.1 name, description, version

PROJECT = {"name": "shop", "description": "Sells things", "version": "3.1.4"}


def configured_registry() -> Registry:
    registry = Registry(config=Config(data={"project": PROJECT}))
    registry.register("echo", Echo())
    return registry


def configured_executor() -> Executor:
    return executor_of(registry_of(echo=Echo()), config=Config(data={"project": PROJECT}))


def configured_file() -> Registry:
    Path("apcore.yaml").write_text("version: '1.0'\nproject: {name: shop, description: Sells things, version: 3.1.4}\n")
    return registry_of(echo=Echo())


@pytest.mark.parametrize("make", [configured_registry, configured_executor, configured_file])
async def test_section_4_2_1_the_project_names_the_agent(make: Callable[[], object]) -> None:
    async with serving(make()) as app:
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
        assert {name: card[name] for name in PROJECT} == PROJECT
    async with serving(make(), name="mine", description="Mine", version="9.9.9") as app:
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
        assert (card["name"], card["description"], card["version"]) == ("mine", "Mine", "9.9.9")


async def test_section_4_2_1_the_default_name() -> None:
    async with serving(registry_of(echo=Echo(), other=Echo())) as app:
        card = (await ask(app, "GET", "/.well-known/agent.json")).json
    found = card["name"], card["description"], card["version"]
    assert found == ("apcore-agent", "apcore agent with 2 skills", "0.0.0")


async def test_section_4_2_1_a_broken_configuration_file_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    Path("apcore.yaml").write_text("project: [")
    async with serving(registry_of(echo=Echo())) as app:
        assert (await ask(app, "GET", "/.well-known/agent.json")).json["name"] == "apcore-agent"
    assert "apcore's configuration file could not be read" in caplog.text


# ------------------------------------------------------------------------------------------------------- 4.2.1 refusals


class Half:
    """An object with some methods of each protocol."""

    async def save(self, task: dict[str, Any]) -> None: ...
    async def get(self, task_id: str) -> None: ...
    def authenticate(self, headers: dict[str, str]) -> None: ...
    async def check_approval(self, approval_id: str) -> None: ...


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auth": Half()}, "Half does not satisfy the Authenticator protocol; it lacks security_schemes"),
        ({"auth": object()}, "object does not satisfy the Authenticator protocol; it lacks authenticate, security_sch"),
        (
            {"task_store": Half()},
            f"Half does not satisfy the TaskStore protocol; it lacks {', '.join(METHODS[2:])}",
        ),
        ({"approval_handler": Half()}, "Half does not satisfy the ApprovalHandler protocol; it lacks request_approval"),
    ],
)
async def test_section_4_2_1_missing_methods_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as caught:
        await async_serve(registry_of(echo=Echo()), **options)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    "options",
    [
        {"execution_timeout": 0},
        {"execution_timeout": -1},
        {"shutdown_timeout": True},
        {"shutdown_timeout": "30"},
        {"task_store": InMemoryTaskStore(), "storage": "memory"},
    ],
)
async def test_section_4_2_1_invalid_values(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        await async_serve(registry_of(echo=Echo()), **options)


def test_section_4_2_1_an_invalid_log_level() -> None:
    with pytest.raises(ValueError, match="log_level must be one of debug, info, warning, error, not 'loud'"):
        serve(registry_of(echo=Echo()), log_level="loud")


def test_section_4_2_1_the_signature() -> None:
    designed = {
        "host": "127.0.0.1",
        "port": 8000,
        "name": None,
        "description": None,
        "version": None,
        "auth": None,
        "task_store": None,
        "cors_origins": None,
        "push_notifications": False,
        "explorer": False,
        "explorer_prefix": "/explorer",
        "cancel_on_disconnect": True,
        "shutdown_timeout": 30,
        "execution_timeout": 300,
        "log_level": None,
    }
    blocking, embedded = (inspect.signature(each).parameters for each in (serve, async_serve))
    assert {name: blocking[name].default for name in designed} == designed
    assert set(blocking) - set(embedded) == {"host", "port", "log_level", "allow_anonymous"}
    assert all(each.default == blocking[name].default for name, each in embedded.items())
    assert set(inspect.signature(ApcoreServer).parameters) >= set(embedded)


# ------------------------------------------------------------------------------------------- serve() in its own process

PROGRAM = """
from pathlib import Path
from keelbolt.apcore import serve
serve(Path("extensions"), host="127.0.0.1", port={port}, name="own", log_level="info", shutdown_timeout=5)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_section_4_2_1_serve_blocks_until_it_is_stopped(tmp_path: Path, number: int) -> None:
    extensions(tmp_path / "extensions", echo=MODULE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", PROGRAM.format(port=port)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if " serves at " in line:
                break
        assert httpx2.get(f"http://127.0.0.1:{port}/health").json()["module_count"] == 1, lines
        process.send_signal(number)
        assert process.wait(20) == 0
        assert "agent own has stopped" in process.stderr.read()


# ------------------------------------------------------------------------------------------------------ 4.2.2 and 4.2.3


async def test_section_4_2_2_async_serve_is_mounted_in_another_application() -> None:
    inner = await async_serve(registry_of(echo=Echo()))
    assert isinstance(inner, Starlette)
    outer = Starlette(lifespan=server_of(inner).lifespan, routes=[Mount("/agent", inner)])
    async with outer.router.lifespan_context(outer):
        transport = httpx2.ASGITransport(outer)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            card = (await client.get("/agent/.well-known/agent-card.json")).json()
            message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {"text": "hi"}}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            answer = (await client.post(card["supportedInterfaces"][0]["url"], json=body)).json()
    assert output(answer["result"]["task"]) == {"text": "hi"}


def test_section_4_2_3_the_client_is_exported() -> None:
    assert keelbolt.apcore.A2AClient is keelbolt.client.A2AClient
    alone = "import sys, keelbolt.client; print({'starlette', 'uvicorn', 'apcore'}.intersection(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


# ------------------------------------------------------------------------------------------------------------ names

WITHOUT = """
import sys
sys.modules["apcore"] = None
import keelbolt.apcore
from keelbolt.cli.main import main
from keelbolt.errors import MissingExtra
keelbolt.apcore.InMemoryTaskStore()
try:
    keelbolt.apcore.serve
except MissingExtra as error:
    print(error)
main(["serve", "--extensions-dir", "."])
"""


def test_every_name_is_exported() -> None:
    for name in keelbolt.apcore.__all__:
        assert getattr(keelbolt.apcore, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = keelbolt.apcore.nothing


def test_without_apcore_the_error_names_the_extra() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    words = "apcore is not installed. Install it with: pip install 'keelbolt[apcore]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, words, f"error: {words}")


def test_without_apcore_the_command_explains_how_to_name_a_worker(tmp_path: Path) -> None:
    program = 'import sys; sys.modules["apcore"] = None; from keelbolt.cli.main import main; main(["serve"])'
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "or name a worker as module:name" in ran.stderr
