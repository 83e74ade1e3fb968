"""Section 13 of the design of apcore agents: the package, containers, and environment variables."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml  # type: ignore[import-untyped]

from keelbolt.apcore import InMemoryTaskStore, TaskStoreStorage
from tests.integration.apcore.commands import keelbolt, nothing_runs
from tests.integration.apcore.serving import MODULE, extensions

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
SECRETS = (
    "a secret of the tests, the first one",
    "a secret of the tests, the second one",
    "a secret of the tests, the third one",
)


# --------------------------------------------------------------------------------------------- 13.1, 13.2 the package


def test_section_13_1_each_part_has_its_file() -> None:
    package = ROOT / "src" / "keelbolt"
    parts = ["server", "card", "catalog", "schemas", "errors_map", "inputs", "outputs", "worker", "task_store"]
    others = ["client/client", "auth/jwt", "cli/serve", "__main__"]
    for name in [*[f"apcore/{part}" for part in parts], *others]:
        assert (package / f"{name}.py").read_text().startswith('"""'), name


def test_section_13_2_apcore_is_an_extra_and_the_command_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert any(name.startswith("apcore>=") for name in project["optional-dependencies"]["apcore"])
    assert not any(name.startswith("apcore") for name in project["dependencies"])
    assert project["scripts"]["keelbolt"] == "keelbolt.__main__:main"
    assert "apcore" in project["optional-dependencies"]["all"][0]


# ---------------------------------------------------------------------------------------------------- 13.3 containers


def dockerfile() -> str:
    return re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())


def command(instruction: str) -> list[str]:
    """Return the last command of this instruction, in exec form."""
    found = re.findall(rf"^{instruction}\b[^\[\n]*(\[.*\])$", dockerfile(), re.MULTILINE)
    parsed: list[str] = json.loads(found[-1])
    return parsed


def variables() -> dict[str, str]:
    [line] = re.findall(r"^ENV (.*)$", dockerfile(), re.MULTILINE)
    return dict(word.split("=", 1) for word in line.split())


def test_section_13_3_the_dockerfile_is_clean() -> None:
    ran = subprocess.run([BIN / "hadolint", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_section_13_3_compose_is_valid() -> None:
    lint = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    ran = subprocess.run(lint, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_section_13_3_files_are_copied_before_the_install() -> None:
    text = dockerfile()
    assert text.index("COPY src/") < text.index("pip install")
    for names in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in names.split():
            assert (ROOT / name).exists(), name
            assert f"!{name.rstrip('/')}" in (ROOT / ".dockerignore").read_text(), name
    assert not any("$" in word for word in command("CMD")), "the exec form expands nothing"
    assert "curl" not in command("HEALTHCHECK")
    assert re.search(r"^USER \d+$", text, re.MULTILINE)


def test_section_13_3_compose_waits_for_running_tasks() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["agent"]
    assert int(service["stop_grace_period"].rstrip("s")) > int(service["environment"]["SHUTDOWN_TIMEOUT"])
    assert service["ports"] == [f"127.0.0.1:{variables()['PORT']}:{variables()['PORT']}"]
    mounts = [mount.rsplit(":", 1)[0] if mount.endswith(":ro") else mount for mount in service["volumes"]]
    inside = {mount.rpartition(":")[2] for mount in mounts}
    assert inside == {variables()["EXTENSIONS_DIR"], "/data"}
    [default] = re.findall(r"\$\{EXTENSIONS:-(.*?)\}", (ROOT / "compose.yaml").read_text())
    assert (ROOT / default).is_dir()


def test_section_13_3_the_command_of_the_container_serves(tmp_path: Path) -> None:
    """The CMD, HEALTHCHECK and ENV of the Dockerfile work outside of a container."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    place = {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PORT": port,
        "EXTENSIONS_DIR": str(ROOT / "examples/apcore_agent/extensions"),
        "KEELBOLT_STORAGE": f"sqlite:///{tmp_path}/keelbolt.db",
        "KEELBOLT_ALLOW_ANONYMOUS": "true",
    }
    environment = variables() | place
    log = (tmp_path / "log").open("w+")
    with log, subprocess.Popen(command("CMD"), cwd=tmp_path, env=environment, stdout=log, stderr=log) as process:
        check = [*command("HEALTHCHECK")]
        ends = time.monotonic() + 30
        while subprocess.run(check, env=environment, capture_output=True, check=False).returncode != 0:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < ends
        card = httpx2.get(f"http://127.0.0.1:{port}/.well-known/agent.json").json()
        skills = {skill["id"] for skill in card["skills"]}
        process.terminate()
        assert process.wait(30) == 0
        lines = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert skills == {"text.count", "text.spell", "shop.deliver", "shop.order", "shop.refund"}
    assert all(json.loads(line)["logger"].startswith("keelbolt") for line in lines)
    assert any("has stopped" in line for line in lines)
    assert subprocess.run(check, env=environment, capture_output=True, check=False).returncode != 0


# ------------------------------------------------------------------------------------------------ 13.4 the environment


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {name for name, *_ in VARIABLES}
    for name in list(os.environ):
        if name.startswith("KEELBOLT_") or name in names:
            monkeypatch.delenv(name)
    for folder in ("one", "two", "three"):
        extensions(tmp_path / folder, **{folder: MODULE})


def _key(server: Any, _place: Any) -> str:
    keys = [secret for secret in SECRETS if server._resolver.authenticator._keys == _keys(secret)]
    return keys[0]


def _keys(secret: str) -> Any:
    from keelbolt.auth.keys import load_keys

    return load_keys(secret)


def _only_skill(server: Any, _place: Any) -> str:
    [module_id] = server.catalog.modules
    return str(module_id)


def _store(server: Any) -> InMemoryTaskStore:
    assert isinstance(server.kept, TaskStoreStorage)
    assert isinstance(server.kept.store, InMemoryTaskStore)
    return server.kept.store


VARIABLES: list[tuple[str, str, tuple[str, str, str], Any]] = [
    ("EXTENSIONS_DIR", "--extensions-dir", ("one", "two", "three"), _only_skill),
    ("HOST", "--host", ("127.0.0.1", "127.0.0.2", "127.0.0.3"), lambda _, place: place["host"]),
    ("PORT", "--port", ("8001", "8002", "8003"), lambda _, place: str(place["port"])),
    ("AGENT_NAME", "--name", ("a", "b", "c"), lambda server, _: server.agent_card.name),
    ("AGENT_DESCRIPTION", "--description", ("a", "b", "c"), lambda server, _: server.agent_card.description),
    ("AGENT_VERSION", "--version-str", ("1", "2", "3"), lambda server, _: server.agent_card.version),
    ("EXECUTION_TIMEOUT", "--execution-timeout", ("1", "2", "3"), lambda server, _: f"{server._worker._timeout:g}"),
    (
        "SHUTDOWN_TIMEOUT",
        "--shutdown-timeout",
        ("1", "2", "3"),
        lambda server, _: f"{server.task_settings.drain_seconds:g}",
    ),
    ("TASK_STORE_TTL", "--task-store-ttl", ("1", "2", "3"), lambda server, _: f"{_store(server).ttl_seconds:g}"),
    ("TASK_STORE_MAX", "--task-store-max", ("1", "2", "3"), lambda server, _: str(_store(server).max_capacity)),
    ("JWT_KEY", "--auth-key", SECRETS, _key),
]


@pytest.mark.parametrize(("name", "flag", "values", "read"), VARIABLES, ids=[name for name, *_ in VARIABLES])
def test_section_13_4_precedence_of_flags_and_variables(
    monkeypatch: pytest.MonkeyPatch, name: str, flag: str, values: tuple[str, str, str], read: Any
) -> None:
    here = () if name == "EXTENSIONS_DIR" else ("--extensions-dir", "one")
    plain, ours, typed = values
    prefixed = "KEELBOLT_DRAIN_SECONDS" if name == "SHUTDOWN_TIMEOUT" else f"KEELBOLT_{name}"
    for variable, value, arguments in ((name, plain, ()), (prefixed, ours, ()), (prefixed, ours, (flag, typed))):
        monkeypatch.setenv(variable, value)
        with nothing_runs() as started:
            ran = keelbolt("serve", *here, *arguments)
        assert ran.exit_code == 0, ran.output
        assert read(*started.only()) == (typed if arguments else value)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name, *_ in VARIABLES),
        "LOG_LEVEL",
        "JWT_ISSUER",
        "JWT_AUDIENCE",
        "JWT_TENANT_CLAIM",
        "PUSH_NOTIFICATIONS",
    ],
)
def test_section_13_4_every_variable_is_documented(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/howto/apcore.md").read_text()
    assert f"`{name}`" in (ROOT / "docs/reference/cli.md").read_text()


@pytest.mark.parametrize("value", ["true", "1", "false", "0", ""])
def test_section_13_4_push_notifications(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PUSH_NOTIFICATIONS", value)
    with nothing_runs() as started:
        assert keelbolt("serve", "--extensions-dir", "one").exit_code == 0
    assert started.only()[0].agent_card.capabilities.push_notifications is (value in ("true", "1"))


def test_section_13_4_issuer_and_audience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"JWT_KEY": SECRETS[0], "JWT_ISSUER": "https://idp.example", "JWT_AUDIENCE": "shop"}.items():
        monkeypatch.setenv(name, value)
    with nothing_runs() as started:
        assert keelbolt("serve", "--extensions-dir", "one").exit_code == 0
    rules = started.only()[0]._resolver.authenticator._rules
    assert (set(rules.issuers), set(rules.audiences)) == ({"https://idp.example"}, {"shop"})


def test_section_13_4_log_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", "loud")
    ran = keelbolt("serve", "--extensions-dir", "one")
    assert ran.exit_code == 1
    assert "'loud' is not one of" in ran.stderr


@pytest.mark.parametrize(("name", "value"), [("PORT", "high"), ("TASK_STORE_MAX", "0"), ("EXECUTION_TIMEOUT", "-1")])
def test_section_13_4_invalid_values(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert keelbolt("serve", "--extensions-dir", "one").exit_code == 1


def test_section_13_4_with_a_storage_the_ttl_is_how_long_ended_tasks_are_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TASK_STORE_TTL", "60")
    monkeypatch.setenv("TASK_STORE_MAX", "5")
    with nothing_runs() as started:
        assert keelbolt("serve", "--extensions-dir", "one", "--storage", "sqlite:///a.db").exit_code == 0
    server, _ = started.only()
    assert server.kept == "sqlite:///a.db"
    [policy] = server._retention
    assert set(dict(policy.ages()).values()) == {60.0}
    assert "limits tasks in memory only" in caplog.text


def test_section_13_4_a_worker_ignores_plain_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOST may be the name of the machine, PORT may belong to another program; only KEELBOLT_ variables are used."""
    Path("agent.py").write_text("async def parrot(ctx):\n    await ctx.complete(ctx.user_text)\n")
    for name, value in {"HOST": "elsewhere", "PORT": "high", "JWT_KEY": "x", "EXTENSIONS_DIR": "one"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KEELBOLT_PORT", "8009")
    with nothing_runs() as started:
        assert keelbolt("serve", "agent:parrot").exit_code == 0
    server, place = started.only()
    assert (place["host"], place["port"], server._resolver) == ("127.0.0.1", 8009, None)
