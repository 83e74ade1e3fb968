"""References of the form MODULE:NAME, and the errors of invalid ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keelbolt.cli.loading import load, load_worker
from keelbolt.errors import InvalidValue
from keelbolt.tasks import Worker
from keelbolt.tasks.worker import handler_of

AGENT = """
from keelbolt.tasks import Worker

class Echo(Worker):
    async def handle(self, ctx):
        await ctx.complete(ctx.user_text)

class Model(Worker):
    def __init__(self, model):
        self.model = model

    async def handle(self, ctx): ...

class Keyless(Echo):
    def __init__(self):
        raise RuntimeError("MODEL_KEY is not set")

class Unfinished(Worker): ...

model = Model("small")

async def echo(ctx): ...

def blocking(ctx): ...

class Nested:
    inner = model
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with some modules that were not imported before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    (tmp_path / "some_agent.py").write_text(AGENT)
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "broken.py").write_text("\n\nundefined_name\n")
    (tmp_path / "misspelt.py").write_text("async dfe echo(ctx): ...\n")
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["Echo", "model", "echo", "Nested.inner"])
def test_a_worker_is_a_class_an_instance_or_a_function(name: str) -> None:
    assert callable(handler_of(load_worker(f"some_agent:{name}")))


def test_a_class_is_instantiated_once() -> None:
    assert isinstance(load_worker("some_agent:Echo"), Worker)


def test_other_objects_can_be_loaded() -> None:
    assert load("json:dumps").__name__ == "dumps"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("some_agent", "use module:name"),
        (":echo", "use module:name"),
        ("some_agent:", "use module:name"),
        ("some_agnet:echo", "no module some_agnet in the current directory or installed"),
        ("no.such.module:echo", "no module no in"),
        ("some_agent:ecco", "some_agent has no ecco; it has echo"),
        ("some_agent:Nested.outer", "some_agent has no Nested.outer; it has inner"),
        ("some_agent:blocking", "put blocking work into"),
        ("some_agent:Nested", "a worker must be a Worker or an `async def`"),
        ("some_agent:Model", "name an instance instead of the class"),
        ("some_agent:Keyless", "RuntimeError: MODEL_KEY is not set"),
        ("some_agent:Unfinished", "handle"),
        ("needs_more:echo", "needs_more imports not_installed_anywhere, which is not installed"),
        ("broken:echo", "NameError: name 'undefined_name' is not defined (line 3 of broken.py)"),
        ("misspelt:echo", "misspelt could not be imported: SyntaxError"),
    ],
)
def test_the_error_names_the_problem(reference: str, says: str, directory: Path) -> None:
    with pytest.raises(InvalidValue) as caught:
        load_worker(reference)
    assert says in str(caught.value)
    assert str(directory) not in str(caught.value)
