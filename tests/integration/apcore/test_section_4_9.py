"""Section 4.9 of the design of apcore agents: the command line, its flags, messages and exit codes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

import keelbolt
from keelbolt.auth import JWTAuthenticator
from keelbolt.cli.serve import serve
from tests.integration.apcore.commands import keelbolt as run
from tests.integration.apcore.commands import nothing_runs
from tests.integration.apcore.serving import MODULE, extensions
from tests.integration.server.test_serve_command import Serving, refused, serving

SECRET = "a secret of the tests that is long enough"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with one directory of modules."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("KEELBOLT_") or name in ("HOST", "PORT", "EXTENSIONS_DIR", "LOG_LEVEL", "JWT_KEY"):
            monkeypatch.delenv(name)
    return extensions(tmp_path / "mods", text__echo=MODULE)


# --------------------------------------------------------------------------------------------------------------- flags


def test_section_4_9_every_flag_exists() -> None:
    flags = {option for parameter in serve.params for option in parameter.opts}
    assert flags >= {
        "--extensions-dir",
        "--host",
        "--port",
        "--name",
        "--description",
        "--version-str",
        "--auth-type",
        "--auth-issuer",
        "--auth-key",
        "--push-notifications",
        "--explorer",
        "--log-level",
    }
    [levels] = [one.type for one in serve.params if one.name == "log_level"]
    assert isinstance(levels, click.Choice)
    assert list(levels.choices) == ["debug", "info", "warning", "error"]


def test_section_4_9_every_flag_works() -> None:
    command = (
        "serve --extensions-dir mods --host 127.0.0.1 --port 8123 --name Shop --description Sells --version-str 2.0.0 "
        "--auth-type bearer --auth-issuer https://idp.example --auth-audience shop --push-notifications --explorer "
        "--explorer-prefix /look --log-level warning --execution-timeout 7 --shutdown-timeout 8 --storage memory "
        "--default-skill text.echo --metrics --cors https://page.example --url https://a.example --processes 1 "
        "--concurrency 5 --operators loopback --approval skip --watch"
    )
    with nothing_runs() as started:
        ran = run(*command.split(), "--auth-key", SECRET)
    assert ran.exit_code == 0, ran.output
    server, place = started.only()
    card = server.agent_card
    assert (card.name, card.description, card.version) == ("Shop", "Sells", "2.0.0")
    assert (place["host"], place["port"], place["processes"]) == ("127.0.0.1", 8123, 1)
    assert card.capabilities.push_notifications
    settings = server.settings
    assert (settings.explorer, settings.explorer_prefix, settings.metrics) == (True, "/look", True)
    assert (settings.url, settings.cors_origins, settings.operators) == (
        "https://a.example",
        ("https://page.example",),
        "loopback",
    )
    assert settings.cancel_on_disconnect
    assert server.task_settings.drain_seconds == 8
    assert server.task_settings.concurrency == 5
    assert isinstance(server._resolver.authenticator, JWTAuthenticator)
    assert server._worker._timeout == 7
    assert server._watch is not None


def test_settings_of_the_engine_and_of_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags and variables set retention, leases, public errors and roles for system modules."""
    monkeypatch.setenv("KEELBOLT_RETAIN", "completed=30d")
    monkeypatch.setenv("KEELBOLT_DRAIN_SECONDS", "4")
    with nothing_runs() as started:
        flags = ["--public-errors", "--system-role", "admin", "--lease-seconds", "9", "--double-text", "reject"]
        ran = run("serve", "--extensions-dir", "mods", *flags)
    assert ran.exit_code == 0, ran.output
    server, _ = started.only()
    assert [policy.completed for policy in server._retention] == [30 * 86400]
    settings = server.task_settings
    assert (settings.drain_seconds, settings.lease_seconds, settings.double_text) == (4, 9, "reject")
    assert server._worker._errors._public
    assert server._worker.access._system_roles == {"admin"}
    both = run("serve", "--extensions-dir", "mods", "--task-store-ttl", "60", "--storage", "sqlite:///x.db")
    assert (both.exit_code, "use only one" in both.output) == (1, True)


def test_section_4_9_defaults() -> None:
    with nothing_runs() as started:
        assert run("serve", "--extensions-dir", "mods").exit_code == 0
    server, place = started.only()
    assert (place["host"], place["port"]) == ("127.0.0.1", 8000)
    assert server.agent_card.name == "apcore-agent"
    assert not server.agent_card.capabilities.push_notifications
    assert server._resolver is None
    assert server.settings.explorer is False
    assert server.task_settings.drain_seconds == 30
    assert server.kept == "sqlite:///keelbolt.db"
    assert server._watch is None


def test_section_4_9_no_cancel_on_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_runs() as started:
        assert run("serve", "--extensions-dir", "mods", "--no-cancel-on-disconnect").exit_code == 0
        monkeypatch.setenv("KEELBOLT_CANCEL_ON_DISCONNECT", "false")
        assert run("serve", "--extensions-dir", "mods").exit_code == 0
    assert [server.settings.cancel_on_disconnect for server in started.servers] == [False, False]


def test_section_4_9_a_key_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    with nothing_runs() as started:
        assert run("serve", "--extensions-dir", "mods", "--auth-key", "key").exit_code == 0
    server, place = started.only()
    assert server._resolver is not None
    place["ready"]("http://localhost:1")
    assert 'Authorization: Bearer $TOKEN"' in capsys.readouterr().out


def test_section_4_9_the_default_directory_is_extensions(tmp_path: Path) -> None:
    extensions(tmp_path / "extensions", echo=MODULE)
    with nothing_runs() as started:
        assert run("serve").exit_code == 0
    assert len(started.only()[0].catalog) == 1


# ---------------------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--extensions-dir nowhere", "error: Extensions directory not found: nowhere\n"),
        ("--extensions-dir empty", "error: No modules discovered in empty\n"),
        ("", "error: Extensions directory not found: ./extensions; set --extensions-dir, or name a worker as"),
        ("--extensions-dir mods --auth-type bearer", "error: --auth-key is required when --auth-type is bearer\n"),
        ("--extensions-dir mods --auth-issuer x", "error: --auth-key is required with --auth-issuer"),
        ("--extensions-dir mods --auth-key short", "error: "),
        ("--extensions-dir mods --port 99999", "99999 is not in the range"),
        ("--extensions-dir mods --port high", "'high' is not a valid"),
        ("--extensions-dir mods --log-level loud", "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        ("--extensions-dir mods --auth-type basic", "'basic' is not 'bearer'"),
        ("--extensions-dir mods --execution-timeout 0", "0"),
        ("--extensions-dir mods --nonsense", "No such option"),
        ("--extensions-dir mods --card a:b", "--card requires MODULE:WORKER"),
        ("--extensions-dir mods --explorer-prefix nowhere", "error: "),
        ("--extensions-dir mods --storage memory --processes 2", "error: several processes need a shared storage"),
        ("--extensions-dir mods --default-skill nothing", "error: "),
    ],
)
def test_section_4_9_a_configuration_error_is_1(tmp_path: Path, arguments: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    with nothing_runs() as started:
        ran = run("serve", *arguments.split())
    assert ran.exit_code == 1, ran.output
    assert words in ran.stderr
    assert "Traceback" not in ran.output
    assert not started.servers


def test_section_4_9_an_unreadable_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("keelbolt.apcore.extensions.os.scandir", forbidden)  # root may read everything
    ran = run("serve", "--extensions-dir", "mods")
    assert ran.exit_code == 1
    assert ran.stderr == "error: Extensions directory can't be read: mods; its permissions forbid it\n"


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("apcore.yaml", "project: [", "error: apcore's configuration can't be read: "),
        ("project.yaml", "kind: something else\n", "error: apcore's configuration can't be read: "),
        ("acl/global_acl.yaml", "rules: 7\n", "error: apcore's configuration can't be used: "),
    ],
)
def test_section_4_9_a_broken_configuration(tmp_path: Path, file: str, text: str, words: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    ran = run("serve", "--extensions-dir", "mods")
    assert ran.exit_code == 1, ran.output
    assert ran.stderr.startswith(words)
    assert "Traceback" not in ran.stderr


def test_section_4_9_an_acl_is_applied(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "global_acl.yaml").write_text("version: '1.0'\nrules: []\ndefault_effect: deny\n")
    with nothing_runs() as started:
        assert run("serve", "--extensions-dir", "mods").exit_code == 0
    assert started.only()[0].agent_card.skills == []


def test_section_4_9_only_broken_modules(tmp_path: Path) -> None:
    extensions(tmp_path / "bad", one="import nothing_of_this_name", two="x = {}['missing']", three="def (")
    ran = run("serve", "--extensions-dir", "bad")
    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: No modules discovered in bad (")
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name' (line 1 of one.py)" in ran.stderr
    assert "KeyError: 'missing' (line 1 of two.py)" in ran.stderr
    assert "SyntaxError" in ran.stderr
    assert str(tmp_path) not in ran.stderr


def test_section_4_9_a_module_that_exits_the_program(tmp_path: Path) -> None:
    extensions(tmp_path / "bad", good=MODULE, exits="import sys\nsys.exit(0)\n")
    ran = run("serve", "--extensions-dir", "bad")
    assert ran.exit_code == 1
    words = "error: A module in bad exits the program when it is loaded (line 2 of exits.py)\n"
    assert ran.stderr == words


def test_section_4_9_a_runtime_error_is_2(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = refused(tmp_path, "--extensions-dir", "mods", "--port", port, "--storage", "memory")
    assert ran.returncode == 2
    assert "can't be used: Address already in use" in ran.stderr
    ran = refused(tmp_path, "--extensions-dir", "mods", "--port", "0", "--storage", "sqlite:///none/agent.db")
    assert ran.returncode == 2
    assert "the agent did not start" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_section_4_9_a_server_that_breaks_is_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(self: object, **_place: object) -> None:
        raise RuntimeError("the roof fell in")

    monkeypatch.setattr("keelbolt.server.A2AServer.run", crash)
    ran = run("serve", "--extensions-dir", "mods")
    assert ran.exit_code == 2
    assert "error: the agent failed; see its log for the cause" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_section_4_9_a_clean_shutdown_is_0(tmp_path: Path, number: int) -> None:
    with serving(tmp_path, "--extensions-dir", "mods") as found:
        assert isinstance(found, Serving)
        assert "with 1 skill" in found.printed
        pasted = next(line.split(":", 1)[1].strip() for line in found.printed.splitlines() if "call:" in line)
        answer = subprocess.run(pasted, shell=True, capture_output=True, text=True, check=True)
        assert "TASK_STATE_COMPLETED" in answer.stdout
        assert "Authorization" not in pasted
        assert found.stop(number) == 0


# -------------------------------------------------------------------------------------------------- other behaviour


@pytest.mark.parametrize("command", [[sys.executable, "-m", "keelbolt"], ["keelbolt"]])
def test_section_4_9_the_version(command: list[str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, env={"PATH": path})
    assert ran.stdout == f"keelbolt {keelbolt.__version__}\n"


def test_section_4_9_a_worker_is_served_as_before() -> None:
    Path("agent.py").write_text("async def parrot(ctx):\n    await ctx.complete(ctx.user_text)\n")
    with nothing_runs() as started:
        ran = run("serve", "agent:parrot", "--auth-key", SECRET, "--version-str", "4.5.6", "--shutdown-timeout", "3")
    assert ran.exit_code == 0, ran.output
    server, place = started.only()
    assert place["host"] == "127.0.0.1"
    assert server.agent_card.version == "4.5.6"
    assert server._resolver is not None
    assert server.task_settings.drain_seconds == 3


@pytest.mark.parametrize("flag", ["--watch", "--task-store-max 5", "--execution-timeout 9", "--extensions-dir mods"])
def test_section_4_9_options_for_modules_only(flag: str) -> None:
    ran = run("serve", "agent:parrot", *flag.split())
    assert ran.exit_code == 2
    assert flag.split(maxsplit=1)[0] in ran.stderr


def test_section_4_9_skills() -> None:
    ran = run("skills", "--extensions-dir", "mods")
    assert ran.exit_code == 0, ran.output
    assert "text.echo" in ran.stdout
    assert "Says it again" in ran.stdout


def test_section_4_9_skills_lists_every_problem(tmp_path: Path) -> None:
    nameless = MODULE.replace('description = "Says it again"', "")
    files = {"good": MODULE, "raises": "raise OSError('no disk')", "nameless": nameless, "Upper": MODULE, "empty": ""}
    folder = extensions(tmp_path / "many", text__echo=MODULE, **files)
    (folder / "text.echo.py").write_text(MODULE)  # the same id as text/echo.py
    ran = run("skills", "--extensions-dir", "many", "--json")
    assert ran.exit_code == 1
    for words in ("raises: OSError: no disk (line 1 of raises.py)", "Duplicate module ID 'text.echo'", "nameless"):
        assert words in ran.stdout
    assert "Upper" in ran.stdout
    assert str(tmp_path) not in ran.stdout
    assert "No Module subclass found" in ran.stdout
    assert run("skills", "--extensions-dir", "nowhere").exit_code == 1
