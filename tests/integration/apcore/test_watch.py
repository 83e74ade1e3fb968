"""Hot reload: the registry follows every change in the extensions directory."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from keelbolt.apcore import ApcoreServer, load_extensions
from keelbolt.apcore.extensions import ExtensionsWatch
from tests.integration.apcore.calling import output, task_of
from tests.integration.apcore.serving import MODULE, extensions
from tests.integration.server.asgi import ask


class Watched:
    """A directory, its registry, and the watcher that synchronizes them."""

    def __init__(self, path: Path) -> None:
        self.path = extensions(path, text__echo=MODULE)
        self.registry = load_extensions(self.path).registry
        self.watch = ExtensionsWatch(self.path, self.registry)
        self.events: list[tuple[str, str]] = []
        for event in ("register", "unregister"):
            self.registry.on(event, lambda module_id, _module, event=event: self.events.append((event, module_id)))

    def write(self, name: str, text: str) -> None:
        extensions(self.path, **{name: text})
        self.watch.look()

    def description(self, module_id: str) -> str:
        return str(self.registry.get_definition(module_id).description)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.chdir(tmp_path)
    return Watched(tmp_path / "modules")


def test_without_changes_nothing_is_loaded(watched: Watched) -> None:
    watched.watch.look()
    watched.watch.look()
    assert watched.events == []


def test_added_changed_and_removed_files(watched: Watched) -> None:
    watched.write("other", MODULE)
    assert watched.registry.list() == ["other", "text.echo"]
    watched.write("other", MODULE.replace("Says it again", "Says it once"))
    assert watched.description("other") == "Says it once"
    (watched.path / "other.py").unlink()
    watched.watch.look()
    assert watched.registry.list() == ["other", "text.echo"]  # a program may write the file again at once
    watched.watch.look()
    assert watched.registry.list() == ["text.echo"]
    expected = [("register", "other"), ("unregister", "other"), ("register", "other"), ("unregister", "other")]
    assert watched.events == expected


def test_a_change_within_a_second_is_loaded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would reuse the compiled module, because the second of the change and the size are equal."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file = watched.path / "text" / "echo.py"
    for number, word in enumerate(("first", "after", "third")):
        file.write_text(MODULE.replace("Says it again", word))
        os.utime(file, ns=(0, 1_700_000_000_000_000_000 + number))
        watched.watch.look()
        assert watched.description("text.echo") == word


def test_a_moved_file_is_another_module(watched: Watched) -> None:
    (watched.path / "text" / "echo.py").rename(watched.path / "text" / "parrot.py")
    watched.watch.look()
    watched.watch.look()
    assert watched.registry.list() == ["text.parrot"]


@pytest.mark.parametrize(
    "broken",
    [
        "def (",
        "raise OSError('no disk')",
        "raise SystemExit(3)",
        "x = 1",
        MODULE.replace('description = "Says it again"', ""),
        MODULE + "    def on_load(self):\n        raise OSError('no disk')\n",
        MODULE + "    def __init__(self):\n        raise OSError('no disk')\n",
    ],
    ids=["syntax", "raises", "exits", "no module", "no description", "on_load", "init"],
)
def test_a_broken_file_keeps_the_loaded_module(watched: Watched, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    before = watched.registry.get("text.echo")
    watched.write("text__echo", broken)
    assert watched.registry.get("text.echo") is before
    assert watched.description("text.echo") == "Says it again"
    [warning] = [record for record in caplog.records if record.name == "keelbolt.apcore"]
    assert warning.levelno == logging.WARNING
    assert "module text.echo keeps its loaded version: " in warning.getMessage()
    watched.watch.look()  # it is logged once
    assert len([record for record in caplog.records if record.name == "keelbolt.apcore"]) == 1
    watched.write("text__echo", MODULE.replace("Says it again", "Mended"))
    assert watched.description("text.echo") == "Mended"


def test_metadata_files_are_loaded(watched: Watched) -> None:
    about = watched.path / "text" / "echo_meta.yaml"
    about.write_text("description: As the file says\ntags: [one, two]\n")
    watched.watch.look()
    assert watched.description("text.echo") == "As the file says"
    assert watched.registry.get_definition("text.echo").tags == ["one", "two"]
    about.unlink()
    watched.watch.look()
    assert watched.description("text.echo") == "Says it again"


def test_a_module_passes_its_state_to_the_next_version(watched: Watched) -> None:
    keeps = "\n    count = 0\n    def on_suspend(self):\n        return {'count': self.count + 1}\n"
    keeps += "    def on_resume(self, state):\n        self.count = state['count']\n"
    watched.write("counter", MODULE + keeps)
    for number in range(1, 4):
        watched.write("counter", MODULE + keeps + f"# {number}\n")
        assert watched.registry.get("counter").count == number


async def test_a_running_agent_follows_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keelbolt.apcore.extensions.LOOK_SECONDS", 0.01)
    path = extensions(tmp_path / "modules", echo=MODULE)

    async def until(server: ApcoreServer, *skills: tuple[str, str]) -> None:
        async with asyncio.timeout(10):
            while True:
                card = (await ask(server.app, "GET", "/.well-known/agent-card.json")).json
                if [(skill["id"], skill["description"]) for skill in card["skills"]] == list(skills):
                    return
                await asyncio.sleep(0.01)

    async with ApcoreServer(path, watch=path) as server:
        extensions(path, echo=MODULE.replace("Says it again", "Anew"), second=MODULE)
        await until(server, ("echo", "Anew"), ("second", "Says it again"))
        assert output(await task_of(server.app, {"text": "hi"}, skill="second")) == {"text": "hi"}
        (path / "second.py").unlink()
        await until(server, ("echo", "Anew"))


HOOKED = (
    MODULE
    + """
    def on_load(self):
        note("load WORD")

    def on_unload(self):
        note("unload WORD")

def note(line):
    with open("hooks.txt", "a") as hooks:
        hooks.write(line + "\\n")
"""
)


def test_the_new_module_is_loaded_before_the_old_one_is_unloaded(watched: Watched, tmp_path: Path) -> None:
    watched.write("hooked", HOOKED.replace("WORD", "one"))
    watched.write("hooked", HOOKED.replace("WORD", "two"))
    watched.write("hooked", HOOKED.replace("WORD", "three").replace('note("load', 'raise OSError("load'))
    assert (tmp_path / "hooks.txt").read_text().splitlines() == ["load one", "load two", "unload one"]
    watched.write("hooked", HOOKED.replace("WORD", "four"))
    assert (tmp_path / "hooks.txt").read_text().splitlines()[3:] == ["load four", "unload two"]


async def test_calls_and_cards_find_a_module_during_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new module takes time to load; until then the old one gets the calls."""
    monkeypatch.chdir(tmp_path)
    path = extensions(tmp_path / "modules", echo=MODULE)
    slow = MODULE + "    def on_load(self):\n        import time; time.sleep(0.05)\n"
    async with ApcoreServer(path) as server:
        watch = ExtensionsWatch(path, server.catalog.registry, server.modules.keeping)

        async def replace() -> None:
            for number in range(10):
                extensions(path, echo=f"{slow}# {number}\n")
                await asyncio.to_thread(watch.look)

        replacing = asyncio.create_task(replace())
        calls = 0
        while not replacing.done():
            assert output(await task_of(server.app, {"text": "hi"}, skill="echo")) == {"text": "hi"}
            card = (await ask(server.app, "GET", "/.well-known/agent-card.json")).json
            assert [skill["id"] for skill in card["skills"]] == ["echo"]
            calls += 1
        await replacing
        assert calls > 3
        assert "on_load" in dir(server.catalog.registry.get("echo"))


async def test_an_approval_is_needed_while_a_module_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The YAML file of the module requires it; only the registry has this setting."""
    monkeypatch.chdir(tmp_path)
    path = extensions(tmp_path / "modules", echo=MODULE)
    (path / "echo_meta.yaml").write_text("annotations: {requires_approval: true}\n")
    async with ApcoreServer(path) as server:
        registry = server.catalog.registry
        module = registry.get("echo")
        with server.modules.keeping("echo"):
            registry.unregister("echo")
            task = await task_of(server.app, {"text": "hi"}, skill="echo")
            assert task["status"]["state"] == "TASK_STATE_REJECTED"
            registry.register("echo", module, metadata={"annotations": {"requires_approval": True}})


def test_a_failing_on_suspend_does_not_prevent_the_reload(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    fails = "\n    def on_suspend(self):\n        raise RuntimeError('no state')\n"
    watched.write("text__echo", MODULE + fails)
    watched.write("text__echo", MODULE.replace("Says it again", "Says it once") + fails)
    assert watched.description("text.echo") == "Says it once"
    assert "on_suspend failed in Echo" in caplog.text
