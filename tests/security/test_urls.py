"""Attack: read the storage's password in a traceback, an error or a log, because a character splits the URL."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from keelbolt.cli.main import main
from keelbolt.errors import KeelboltError
from keelbolt.kernel import open_storage
from keelbolt.kernel.urls import migrate, pending_migrations, run_script
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.server import A2AServer
from keelbolt.state import StateStore
from keelbolt.tasks import TaskContext

# Each password has two halves, so that a part of it in a message is found too.
PASSWORDS = [
    f"hushhush{mark}quietquiet" for mark in ("#", "/", "?", "@", ":", "[", "]", "%", "%zz", "\\", " ", "&", "=", "")
]
TEMPLATES = [
    "{scheme}://user:{password}@127.0.0.1:1/0",
    "{scheme}://:{password}@127.0.0.1:1/0",
    "{scheme}://user:{password}@[::1]:1/0",
    "{scheme}://user:{password}@127.0.0.1:port/0",
    "{scheme}://user:{password}@127.0.0.1:99999/0",
    "{scheme}://user:{password}@127.0.0.1:1/0?unknown=1",
    "{scheme}://user:{password}@127.0.0.1:1/0#part",
]
SCHEMES = ["postgresql", "postgres", "postgresql+asyncpg", "redis", "rediss", "valkey", "mysql", "sqlite"]


def hidden(text: str) -> bool:
    return "hushhush" not in text and "quietquiet" not in text


async def echo(ctx: TaskContext) -> None:
    await ctx.complete(ctx.user_text)


async def opened(url: str) -> None:
    async with open_storage(url):
        pass


async def served(url: str) -> None:
    async with A2AServer(worker=echo, agent_card=AgentCardConfig(name="A", description="…"), storage=url):
        pass


async def kept(url: str) -> None:
    async with StateStore(url, timeout_seconds=1) as store:
        await store.save_memory_state("key", {})


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("opening", [opened, served, kept])
async def test_no_error_contains_a_part_of_the_password(
    opening: Callable[[str], Any], template: str, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="keelbolt")
    for password in PASSWORDS:
        url = template.format(scheme=scheme, password=password)
        with pytest.raises(KeelboltError) as raised:
            await opening(url)
        text = "".join(traceback.format_exception(raised.value))
        assert hidden(text), (url, text)
    assert hidden(caplog.text)


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
@pytest.mark.parametrize("password", PASSWORDS)
def test_the_command_line_shows_no_part_of_the_password(scheme: str, password: str) -> None:
    url = f"{scheme}://user:{password}@127.0.0.1:1/0"
    for command in (
        ["migrate", "--storage", url],
        ["storage", "check", "--storage", url],
        ["tasks", "list", "--storage", url],
        ["state", "sessions", "--url", url],
    ):
        ran = CliRunner().invoke(main, command)
        text = ran.output + "".join(traceback.format_exception(ran.exception) if ran.exception else "")
        assert hidden(text), (command, text)


@pytest.mark.parametrize("doing", [pending_migrations, migrate, lambda url: run_script(url, {"postgresql": ""})])
def test_migrations_show_no_part_of_the_password(doing: Callable[[str], Any]) -> None:
    for password in PASSWORDS:
        with pytest.raises(KeelboltError) as raised:
            doing(f"postgresql://user:{password}@127.0.0.1:1/0")
        assert hidden("".join(traceback.format_exception(raised.value)))


@pytest.mark.parametrize("mark", "#/?")
@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
def test_the_error_says_what_to_do(scheme: str, mark: str) -> None:
    with pytest.raises(KeelboltError, match="%23"):
        open_storage(f"{scheme}://user:pass{mark}word@db.example/0")


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
def test_no_repr_contains_the_password(scheme: str) -> None:
    kernel = open_storage(f"{scheme}://user:hushhush@127.0.0.1:1/0")
    assert hidden(repr(kernel))
