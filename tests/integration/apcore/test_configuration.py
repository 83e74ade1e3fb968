"""Sources of an agent's options: arguments, the environment, apcore's configuration, flags of apcore-a2a."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from keelbolt.apcore import ApcoreServer, load_extensions, openapi_backend
from keelbolt.errors import ExtensionsBroken
from tests.integration.apcore.calling import message, output, task_of
from tests.integration.apcore.commands import keelbolt, nothing_runs
from tests.integration.apcore.modules import Echo, registry_of
from tests.integration.apcore.serving import MODULE, extensions
from tests.integration.server.asgi import call
from tests.integration.server.serving import served

SECTION = """
apcore:
  version: "1.0"
project:
  name: shop
apcore-a2a:
  execution_timeout: 77
  cors_origins: ["https://a.example", "https://b.example"]
  explorer: true
  metrics: true
  push_notifications: true
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with modules and a configuration file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "apcore.yaml").write_text(SECTION)
    extensions(tmp_path / "extensions", echo=MODULE)
    return tmp_path


def seen(server: ApcoreServer) -> dict[str, Any]:
    return {
        "execution_timeout": server.modules._timeout,
        "cors_origins": server.settings.cors_origins,
        "explorer": server.settings.explorer,
        "metrics": server.settings.metrics,
        "push_notifications": server.agent_card.capabilities.push_notifications,
    }


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("given", ["extensions", None])
def test_the_section_of_the_configuration_is_used(given: str | None) -> None:
    server = ApcoreServer(given or registry_of(echo=Echo()))
    assert seen(server) == {
        "execution_timeout": 77,
        "cors_origins": ("https://a.example", "https://b.example"),
        "explorer": True,
        "metrics": True,
        "push_notifications": True,
    }
    assert server.agent_card.name == "shop"


@pytest.mark.usefixtures("project")
def test_arguments_override_the_environment_and_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APCORE_A2A_EXECUTION_TIMEOUT", "5")
    monkeypatch.setenv("APCORE_A2A_CORS_ORIGINS", "https://c.example, https://d.example")
    monkeypatch.setenv("APCORE_A2A_EXPLORER", "false")
    found = seen(ApcoreServer("extensions", push_notifications=False, execution_timeout=None))
    assert found["execution_timeout"] == 5
    assert found["cors_origins"] == ("https://c.example", "https://d.example")
    assert found["explorer"] is False
    assert found["push_notifications"] is False
    assert seen(ApcoreServer("extensions", execution_timeout=9))["execution_timeout"] == 9


def test_the_environment_is_used_without_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APCORE_A2A_EXECUTION_TIMEOUT", "6")
    assert seen(ApcoreServer(registry_of(echo=Echo())))["execution_timeout"] == 6


@pytest.mark.parametrize(("name", "value"), [("EXECUTION_TIMEOUT", "soon"), ("EXPLORER", "perhaps")])
def test_an_invalid_value_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"APCORE_A2A_{name}", value)
    with pytest.raises(ValueError, match=f"apcore-a2a.{name.lower()}.* is '{value}', which is not a valid value"):
        ApcoreServer(registry_of(echo=Echo()))


def test_an_argument_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'disclose_refusal_reason'"):
        ApcoreServer(registry_of(echo=Echo()), disclose_refusal_reason=True)  # type: ignore[call-arg]


def test_sys_modules_registers_the_modules_of_apcore() -> None:
    registry = registry_of(echo=Echo())
    ApcoreServer(registry, sys_modules=True)
    assert "system.health.summary" in registry.list()


@pytest.mark.usefixtures("project")
def test_the_flags_of_apcore_a2a(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APCORE_JWT_SECRET", "a secret of at least thirty-two bytes")
    arguments = (
        "serve --extensions-dir extensions --host 127.0.0.1 --port 9000 --name N --description D --version-str 3"
    )
    arguments += " --url https://agent.example --auth-type bearer --auth-issuer https://idp.example --auth-audience a"
    arguments += " --push-notifications --explorer --cors-origins https://x.example https://y.example"
    arguments += " --execution-timeout 8 --log-level debug"
    with nothing_runs() as started:
        ran = keelbolt(*arguments.split())
    assert ran.exit_code == 0, ran.output
    server, place = started.only()
    assert (place["host"], place["port"]) == ("127.0.0.1", 9000)
    assert (server.agent_card.name, server.agent_card.version) == ("N", "3")
    assert server.settings.cors_origins == ("https://x.example", "https://y.example")
    assert seen(server)["execution_timeout"] == 8
    assert server.settings.url == "https://agent.example"
    assert server.agent_card.capabilities.extended_agent_card  # tokens are needed


@pytest.mark.usefixtures("project")
def test_the_command_line_uses_the_section() -> None:
    with nothing_runs() as started:
        assert keelbolt("serve", "--execution-timeout", "4").exit_code == 0
    found = seen(started.only()[0])
    assert (found["execution_timeout"], found["explorer"], found["push_notifications"]) == (4, True, True)


def test_an_empty_secret_is_a_start_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del project
    monkeypatch.setenv("APCORE_JWT_SECRET", " ")
    with nothing_runs() as started:
        ran = keelbolt("serve")
    assert ran.exit_code == 1
    assert "APCORE_JWT_SECRET is set but empty" in ran.output
    assert not started.servers


# ---------------------------------------------------------------------------------------------------------- bindings

BINDING = """
spec_version: "1.0"
bindings:
  - module_id: text.upper
    target: "shouting:upper"
    description: Writes it large
    auto_schema: true
    tags: [text]
"""


async def test_yaml_bindings_in_the_directory_are_modules(project: Path) -> None:
    (project / "shouting.py").write_text("def upper(text: str) -> dict:\n    return {'text': text.upper()}\n")
    (project / "extensions" / "text").mkdir()
    (project / "extensions" / "text" / "upper.binding.yaml").write_text(BINDING)
    async with ApcoreServer("extensions") as server:
        assert list(server.catalog.modules) == ["echo", "text.upper"]
        assert output(await task_of(server.app, {"text": "hi"}, skill="text.upper")) == {"text": "HI"}


def test_a_binding_that_can_not_be_loaded_is_reported(project: Path) -> None:
    (project / "extensions" / "wrong.binding.yaml").write_text(BINDING.replace("shouting", "no_such_module"))
    found = load_extensions("extensions", tell=False)
    assert found.registry.list() == ["echo"]
    [problem] = found.problems
    assert problem.startswith("wrong.binding.yaml: ")
    assert "no_such_module" in problem


# -------------------------------------------------------------------------------------------------- string annotations

POSTPONED = """
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

@dataclass
class Price:
    cents: int

class Line(BaseModel):
    sku: str
    parts: list[Line] = []

class Order(BaseModel):
    lines: list[Line]

class Shop:
    description = "Orders"
    input_schema = Order
    output_schema = Order

    async def execute(self, inputs: dict[str, Any], context: Any) -> dict[str, Any]:
        return {"lines": inputs["lines"][: Price(1).cents]}
"""


async def test_postponed_annotations_work_in_an_extension(project: Path) -> None:
    extensions(project / "extensions", order=POSTPONED)
    order = {"lines": [{"sku": "a", "parts": [{"sku": "b", "parts": []}]}, {"sku": "c"}]}
    async with ApcoreServer("extensions") as server:
        assert output(await task_of(server.app, order, skill="order")) == {"lines": order["lines"][:1]}


async def test_postponed_annotations_work_in_a_registry_that_apcore_filled(project: Path) -> None:
    from apcore import Registry

    without = POSTPONED.replace("@dataclass\n", "").replace("Price(1).cents", "1")  # apcore can't load a dataclass
    registry = Registry(extensions_dir=str(extensions(project / "own", order=without)))
    registry.discover()
    order = {"lines": [{"sku": "a", "parts": []}]}
    async with ApcoreServer(registry) as server:
        assert output(await task_of(server.app, order, skill="order")) == order


# ----------------------------------------------------------------------------------------------------------- OpenAPI

SPEC: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{petId}": {
            "get": {
                "operationId": "getPet",
                "parameters": [
                    {"name": "petId", "in": "path", "required": True, "schema": {"type": "integer"}},
                    {"name": "loud", "in": "query", "schema": {"type": "boolean"}},
                ],
                "responses": {"200": {"description": "a pet"}},
            }
        },
        "/pets": {
            "post": {
                "operationId": "addPet",
                "summary": "Adds a pet",
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {"name": {"type": "string"}},
                                "required": ["name"],
                            }
                        }
                    }
                },
                "responses": {"200": {"description": "the pet"}},
            }
        },
    },
}


async def _pet(request: Request) -> JSONResponse:
    return JSONResponse({"id": int(request.path_params["id"]), "loud": request.query_params.get("loud")})


async def _add(request: Request) -> JSONResponse:
    return JSONResponse({"added": (await request.json())["name"]})


PETS = Starlette(routes=[Route("/pets/{id}", _pet), Route("/pets", _add, methods=["POST"])])


async def test_operations_of_an_openapi_document_are_skills(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    (project / "spec.json").write_text(json.dumps(SPEC))
    remote = ApcoreServer(registry_of(echo=Echo()), allow_anonymous=True)
    remote.app = PETS
    async with served(remote) as url:
        with caplog.at_level(logging.WARNING, "keelbolt.apcore"):
            registry = openapi_backend(project / "spec.json", base_url=url)
        assert "1 operations change data and need no approval" in caplog.text
        async with ApcoreServer(registry) as server:
            skills = {skill.id: skill.description for skill in server.agent_card.skills}
            assert len(skills) == 2
            [get] = [each for each, words in skills.items() if words == "GET /pets/{petId}"]
            [add] = [each for each, words in skills.items() if words == "Adds a pet"]
            reply = await call(server.app, "SendMessage", {"message": message({"petId": 3.0}, skill=get)})
            assert output(reply.json["result"]["task"])["id"] == 3
            assert output(await task_of(server.app, {"name": "Rex"}, skill=add)) == {"added": "Rex"}
        for each in registry.list():  # apcore-toolkit keeps them open
            await type(registry.get(each))._client.aclose()


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        (SPEC, {}, "has no server URL"),
        ({"swagger": "2.0"}, {"base_url": "http://x.example"}, "can't be read"),
        ("missing.json", {"base_url": "http://x.example"}, "can't be read"),
        (SPEC, {"base_url": "file:///etc"}, "can't be served"),
        (SPEC, {"base_url": "http://x.example", "registry": registry_of(echo=Echo())}, "needs a prefix"),
    ],
)
def test_an_openapi_document_that_can_not_be_served(spec: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ExtensionsBroken, match=words):
        openapi_backend(spec, **options)


def test_from_openapi_on_the_command_line(project: Path) -> None:
    (project / "spec.json").write_text(json.dumps(SPEC))
    with nothing_runs() as started:
        ran = keelbolt("serve", "--from-openapi", "spec.json", "--openapi-base-url", "http://127.0.0.1:9")
        assert ran.exit_code == 0, ran.output
        beside = "serve --extensions-dir extensions --from-openapi spec.json --openapi-base-url http://127.0.0.1:9"
        ran = keelbolt(*beside.split(), "--openapi-prefix", "pets_api", "--openapi-exclude", "add")
        assert ran.exit_code == 0, ran.output
        ran = keelbolt(*beside.split(), "--openapi-header", "a-secret-without-a-name")
        assert ran.exit_code == 1
        assert "a-secret" not in ran.output
    assert [len(server.catalog) for server in started.servers] == [2, 2]
    assert "echo" in started.servers[1].catalog.modules


def test_from_openapi_by_the_configuration(project: Path) -> None:
    (project / "spec.json").write_text(json.dumps(SPEC))
    section = '  openapi: {spec: spec.json, base_url: "http://127.0.0.1:9", prefix: pets_api}\n'
    (project / "apcore.yaml").write_text(SECTION + section)
    with nothing_runs() as started:
        ran = keelbolt("serve", "--extensions-dir", "extensions")
        assert ran.exit_code == 0, ran.output
        (project / "apcore.yaml").write_text(SECTION + "  openapi: spec.json\n")
        ran = keelbolt("serve", "--extensions-dir", "extensions")
        assert ran.exit_code == 1
        assert "apcore-a2a.openapi must be a mapping with the key spec" in ran.output
    assert len(started.only()[0].catalog) == 3
