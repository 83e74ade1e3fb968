"""The reference contains every member of the context, setting, hook and call of the engine."""

from __future__ import annotations

import inspect
import re
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest

from keelbolt.tasks import LifecycleHooks, TaskContext, TaskEngine, TaskManager, TaskSettings

PAGE = (Path(__file__).parents[2] / "docs/reference/worker.md").read_text()


def section(heading: str) -> str:
    _, found = PAGE.split(f"\n{heading}\n")
    return re.split(rf"\n#{{1,{heading.count('#')}}} ", found)[0]


def members(kind: type) -> list[str]:
    """Return all public methods, properties, and attributes that __init__ sets."""
    source = inspect.getsource(kind.__init__)  # type: ignore[misc]
    set_there = re.findall(r"^        self\.([a-z]\w*)\b.* = ", source, re.MULTILINE)
    inherited = [name for base in kind.__mro__[:-1] for name in vars(base)]
    return sorted({name for name in [*inherited, *set_there] if not name.startswith("_")})


def test_the_members_are_found() -> None:
    assert {"task_id", "message", "user_text", "complete", "step", "inbox"} <= set(members(TaskContext))


@pytest.mark.parametrize("name", members(TaskContext))
def test_every_member_of_the_context_is_documented(name: str) -> None:
    assert re.search(rf"^\| `(await |async with )?ctx\.{name}\b", section("## TaskContext"), re.MULTILINE)


@pytest.mark.parametrize("name", members(TaskContext))
def test_every_argument_of_a_member_is_documented(name: str) -> None:
    if inspect.iscoroutinefunction(function := getattr(TaskContext, name, None)):
        for argument in list(inspect.signature(function).parameters)[1:]:
            assert re.search(rf"\b{argument}\b", section("## TaskContext")), argument


@pytest.mark.parametrize("field", fields(TaskSettings), ids=lambda field: field.name)
def test_every_setting_is_documented_with_its_default(field: Field[Any]) -> None:
    name, default = field.name, field.default
    assert f"| `{name}` | `KEELBOLT_{name.upper()}` | {default} |" in section("## Settings")


@pytest.mark.parametrize("name", [field.name for field in fields(LifecycleHooks) if not field.name.startswith("_")])
def test_every_hook_is_documented(name: str) -> None:
    assert f"| `{name}` |" in section("## Hooks")


@pytest.mark.parametrize("name", [name for name in vars(TaskManager) if not name.startswith("_")])
def test_every_call_of_the_engine_is_documented(name: str) -> None:
    assert re.search(rf"^\| `(await )?{name}\(", section("## The engine"), re.MULTILINE)


def test_every_argument_of_the_engine_is_documented() -> None:
    for name in list(inspect.signature(TaskEngine).parameters)[1:]:
        assert name in ("worker", "kernel") or re.search(
            rf"^\| .*`{name}`.* \|", section("## The engine"), re.MULTILINE
        ), name
