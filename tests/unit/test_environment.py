"""A misspelled variable or an invalid address is an error at start, with a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from keelbolt.cli.main import main
from keelbolt.environment import KNOWN, PREFIX, check_names
from keelbolt.errors import InvalidValue
from keelbolt.observability.tracing import Tracing
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks import TaskSettings

SOURCES = Path(__file__).parents[2] / "src/keelbolt"


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from commands(each)


def test_every_variable_is_known() -> None:
    """The known variables are those of the settings and options, and every name in the sources."""
    found = {each.name.upper() for kind in (ServerSettings, TaskSettings) for each in fields(kind)}
    for command in commands(main):
        for option in command.params:
            names = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
            found |= {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    text = "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))
    found |= {name for name in re.findall(r"\bKEELBOLT_([A-Z_]*[A-Z])\b", text) if not name.startswith("TEST_")}
    assert found - {"X", "SERVICE_HOST"} == KNOWN  # these two occur in examples


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("KEELBOLT_LEASE_SECOND", "KEELBOLT_LEASE_SECONDS"),
        ("KEELBOLT_STORGE", "KEELBOLT_STORAGE"),
        ("KEELBOLT_CONCURENCY", "KEELBOLT_CONCURRENCY"),
        ("KEELBOLT_ALLOW_ANONYMUS", "KEELBOLT_ALLOW_ANONYMOUS"),
    ],
)
def test_a_misspelled_variable_is_refused(wrong: str, right: str) -> None:
    for kind in (ServerSettings, TaskSettings):
        with pytest.raises(InvalidValue, match=f"{wrong} is no setting of Keelbolt; did you mean {right}"):
            kind.of({wrong: "3"})


def test_every_misspelling_by_one_letter_is_found() -> None:
    for name in KNOWN:
        if len(name) > 4:
            with pytest.raises(InvalidValue, match="did you mean"):
                check_names({PREFIX + name[:-2] + name[-1]: ""})


def test_other_variables_are_ignored() -> None:
    """These are variables of Kubernetes, the tests and other programs."""
    names = "SERVICE_HOST SERVICE_PORT_HTTP PORT_8000_TCP_ADDR TEST_REDIS_URL TEST_POSTGRES_BINARIES SEED ALLOW_SKIPS"
    check_names({f"{PREFIX}{name}": "x" for name in names.split()} | {"LEASE_SECOND": "3", "PATH": "/bin"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"url": "localhost"}, "did you mean http://localhost?"),
        ({"url": "localhost:8000"}, "did you mean http://localhost:8000?"),
        ({"url": "agent.example.com"}, "did you mean https://agent.example.com?"),
        ({"url": "ftp://x"}, "url must be the address where clients reach the agent"),
        ({"url": "https://x?y=1"}, "must not contain"),
        ({"url": "https://x:99999"}, "url must be the address"),
        ({"grpc_url": "https://x"}, "grpc_url must be HOST:PORT"),
        ({"grpc_url": "x"}, "grpc_url must be HOST:PORT"),
        ({"cors_origins": ("app.example.com",)}, "did you mean https://app.example.com?"),
        ({"cors_origins": ("https://app.example.com/",)}, "did you mean https://app.example.com?"),
        ({"allowed_hosts": ("https://x.example/y",)}, "did you mean x.example?"),
        ({"webhook_hosts": ("https://x.example",)}, "did you mean x.example?"),
        ({"streams": -5}, "streams must be a number of at least 0"),
        ({"body_bytes": 0}, "body_bytes must be a number of at least 1"),
        ({"heartbeat_stream_seconds": float("nan")}, "heartbeat_stream_seconds must be a number"),
    ],
)
def test_wrong_values_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidValue, match=expected):
        ServerSettings.of({}, **settings)


def test_right_values_pass() -> None:
    ServerSettings.of(
        {},
        url="https://agent.example.com:8443/agents/one",
        grpc_url="[::1]:443",
        cors_origins=("*", "http://localhost:3000", "null://x"),
        allowed_hosts=("agent.example.com", "10.0.0.1:8000"),
        webhook_hosts=("*.example.com",),
    )


def test_tracing_is_on_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEELBOLT_TRACING", "maybe")
    with pytest.raises(InvalidValue, match="KEELBOLT_TRACING must be true or false"):
        Tracing.of()


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["--url", "localhost"], {}, "did you mean http://localhost?"),
        ([], {"KEELBOLT_LEASE_SECOND": "3"}, "did you mean KEELBOLT_LEASE_SECONDS?"),
        ([], {"PORT": "abc"}, "PORT is 'abc', which is not a port number; unset it, or set the"),
        ([], {"KEELBOLT_PORT": "abc"}, "'abc' is not a valid integer"),
        (["--grpc-url", "x"], {}, "grpc_url must be HOST:PORT"),
        (["--cors", "localhost"], {}, "did you mean"),
        (["--protocols", "2.0"], {}, "protocols must be one or more of"),
    ],
)
def test_serve_refuses_mistakes_at_start(
    arguments: list[str],
    environment: dict[str, str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "worker_of_test.py").write_text("async def echo(ctx):\n    return ctx.user_text\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["serve", "worker_of_test:echo", "--storage", "memory:", *arguments]
    done = CliRunner().invoke(main, command, env=environment)
    assert done.exit_code != 0
    assert expected in " ".join(done.output.split())


def test_serve_refuses_a_worker_without_a_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare_of_test.py").write_text("async def echo():\n    return 'x'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = CliRunner().invoke(main, ["serve", "bare_of_test:echo", "--storage", "memory:"])
    assert done.exit_code != 0
    assert "Write: async def echo(ctx: TaskContext)" in " ".join(done.output.split())
