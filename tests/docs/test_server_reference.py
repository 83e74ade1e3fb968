"""The reference contains every argument and setting of the server, and no other."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click
import pytest

from keelbolt.cli.main import main
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig, ExtensionConfig, SkillConfig
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.state import factory
from keelbolt.tasks import TaskSettings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference/server.md").read_text()


def section(heading: str) -> str:
    _, found = PAGE.split(f"\n{heading}\n")
    return found.split("\n## ")[0]


def shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"{default:.10g}"
    if isinstance(default, tuple):
        return ", ".join(default) or "none"
    return default or "empty" if isinstance(default, str) else "none"


@pytest.mark.parametrize("name", list(inspect.signature(A2AServer).parameters))
def test_every_argument_is_documented(name: str) -> None:
    assert re.search(rf"^\| .*`{name}`.* \|", section("## A2AServer"), re.MULTILINE)


@pytest.mark.parametrize("name", [name for name in vars(A2AServer) if not name.startswith("_") and name != "routes"])
def test_every_member_is_documented(name: str) -> None:
    assert re.search(rf"`(await )?server\.{name}\b", section("## A2AServer"))


def test_the_defaults_of_run_are_documented() -> None:
    parameters = list(inspect.signature(A2AServer.run).parameters.values())[1:]
    words = ", ".join(f"{each.name}={each.default!r}" for each in parameters).replace("'", '"')
    assert f"`server.run({words})`" in PAGE


@pytest.mark.parametrize("field", fields(ServerSettings), ids=lambda field: field.name)
def test_every_setting_is_documented_with_its_default(field: Field[Any]) -> None:
    name, default = field.name, shown(field.default)
    assert f"| `{name}` | `KEELBOLT_{name.upper()}` | {default} |" in section("## Settings")


@pytest.mark.parametrize("kind", [AgentCardConfig, CapabilitiesConfig, ExtensionConfig, SkillConfig])
def test_every_field_of_the_card_is_documented(kind: type[AgentCardConfig]) -> None:
    text = section("## AgentCardConfig")
    for name in kind.model_fields:
        assert re.search(rf"\b{name}\b", text), name


def of_commands(command: click.Command) -> Iterator[str]:
    """Return the environment variables of the options."""
    for option in command.params:
        names = option.envvar or []
        yield from [names] if isinstance(names, str) else names
    for child in command.commands.values() if isinstance(command, click.Group) else ():
        yield from of_commands(child)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_no_page_names_a_setting_that_does_not_exist(page: Path) -> None:
    settings = {f"KEELBOLT_{field.name.upper()}" for kind in (ServerSettings, TaskSettings) for field in fields(kind)}
    named = set(re.findall(r"\bKEELBOLT_[A-Z_]+\b", page.read_text()))
    factory_reads = {factory.URL, *factory.SETTINGS}
    assert named <= settings | set(of_commands(main)) | factory_reads | {"KEELBOLT_TRACING"}
