"""The command line, on real SQLite files."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from keelbolt.cli.main import main
from keelbolt.kernel import Append, Attach, Collection, Draft, Enqueue, Insert, open_storage


def keelbolt(*arguments: str) -> Result:
    """Run the command; unexpected exceptions are raised."""
    result = CliRunner().invoke(main, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A SQLite file with two records, three entries, a blob, a work item and an expired record."""
    url = f"sqlite:///{tmp_path}/agent.db"

    async def fill() -> None:
        async with open_storage(url, declare=[Collection("tasks"), Collection("keys", expiring=True)]) as kernel:
            blob = await kernel.stage_blob("acme", b"bytes" * 1000)
            await kernel.commit(
                "acme",
                Insert("tasks", "1", b"{}"),
                Insert("tasks", "2", b"{}"),
                Insert("keys", "gone", b"", expires_in=0.001),
                Append("events", "1", (Draft("a", b"1"), Draft("b", b"2"), Draft("c", b"3"))),
                Enqueue("runs", "1"),
                Attach(blob.digest, "task-1"),
            )

    asyncio.run(fill())
    return url


def commands(command: click.Command = main, path: str = "keelbolt") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}")


# --------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=str)
def test_every_command_has_an_example(path: str, command: click.Command) -> None:
    help_text = keelbolt(*path.split()[1:], "--help").output
    assert "Example:" in help_text
    example = help_text.split("Example:\n")[1].splitlines()[0].strip()
    assert example.startswith(path)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.name} says nothing"


def test_version() -> None:
    assert keelbolt("--version").output.startswith("keelbolt 0.")


def test_help_is_fast() -> None:
    """--help loads no engine and no rich."""
    program = (
        "import sys; from keelbolt.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "assert not {'rich', 'sqlite3', 'pydantic', 'starlette'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


# ----------------------------------------------------------------------------------------------------- other terminals


def ran(*arguments: str | bytes, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a process."""
    command = [sys.executable, "-m", "keelbolt", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, encoding="latin-1", check=False, **options)


def test_an_argument_that_is_not_utf_8_is_refused(url: str) -> None:
    """Its bytes could not be sent, stored or compared."""
    done = ran("tasks", "list", "--storage", url, "--owner", b"caf\xe9")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "Error: argument 6 is not UTF-8; check the locale of the terminal, for example LC_ALL=C.UTF-8",
    )


def test_standard_input_that_is_not_utf_8_is_refused() -> None:
    for words in (["-"], ["--data", "-"]):
        done = CliRunner().invoke(main, ["send", "http://localhost:1", *words], input=b"caf\xe9")
        assert done.exit_code == 2
        assert "standard input is not UTF-8 text; send other data with --file" in done.output


def test_a_terminal_without_utf_8_gets_replacements_and_json_gets_escapes(url: str) -> None:
    """The task says é, which latin-1 has, and two characters that it lacks."""
    said = "é 日 😀"
    sent = keelbolt("tasks", "send", "--storage", url, "--text", said, "--json")
    task = json.loads(sent.output)["id"]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    listed = ran("tasks", "list", "--storage", url, env=latin, stdout=subprocess.PIPE)
    assert (listed.returncode, "é ? ?" in listed.stdout) == (0, True)
    program = (
        "import sys; from keelbolt.cli.output import echo_json; sys.stdout.reconfigure(encoding='latin-1');"
        f"echo_json({json.dumps(said, ensure_ascii=False)!r})"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert json.loads(printed.decode("ascii")) == said
    assert task in listed.stdout


def test_ctrl_c_while_the_command_is_loaded_ends_it_with_one_line() -> None:
    program = (
        "import sys\n"
        "from keelbolt.__main__ import main\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'keelbolt.cli.main':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Aborted!\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [("--help",), ("storage", "stats")])
def test_output_to_a_full_disk_fails_with_one_line(url: str, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = ran(*arguments, *([url] if len(arguments) > 1 else []), stdout=full)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


# ------------------------------------------------------------------------------------------------------------ storage


def test_stats_counts_the_contents(url: str) -> None:
    result = keelbolt("storage", "stats", url, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["records"]["tasks"] == 2
    assert (found["partitions"], found["streams"], found["entries"], found["blobs"]) == (1, 1, 3, 1)
    assert found["blob_bytes"] == 5000
    assert found["work"]["runs"]["waiting"] == 1


def test_stats_prints_a_table(url: str) -> None:
    output = keelbolt("storage", "stats", url).stdout
    assert "records of tasks" in output
    assert "5.0 kB" in output
    assert "1 waiting" in output


def test_check_of_an_undamaged_storage(url: str) -> None:
    assert keelbolt("storage", "check", url).stdout == "no problems\n"
    assert json.loads(keelbolt("storage", "check", url, "--json").stdout) == {"problems": []}


def test_check_reports_damage_and_exits_with_1(url: str, damaged: None) -> None:
    result = keelbolt("storage", "check", url)
    assert result.exit_code == 1
    assert "1 problem(s)" in result.stdout

    result = keelbolt("storage", "check", url, "--json")
    assert result.exit_code == 1
    [problem] = json.loads(result.stdout)["problems"]
    assert problem["where"]
    assert problem["what"]


@pytest.fixture
def damaged(url: str) -> None:
    """Change some bytes of the blob."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE blob_chunk SET data = CAST(replace(data, 'bytes', 'bites') AS BLOB)")


def test_sweep_removes_expired_data(url: str) -> None:
    assert keelbolt("storage", "sweep", url).stdout == "removed 1 record(s), 0 blob(s), 0 worker(s)\n"
    swept = json.loads(keelbolt("storage", "sweep", url, "--json").stdout)
    assert swept == {"records": 0, "blobs": 0, "workers": 0}


# ------------------------------------------------------------------------------------------------------------ migrate


def test_migrate_shows_then_applies_then_has_nothing_to_do(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    dry = keelbolt("migrate", url, "--dry-run", "--sql")
    assert "would be applied" in dry.stdout
    assert "CREATE TABLE" in dry.stdout.upper()
    assert not list(tmp_path.iterdir())

    listed = json.loads(keelbolt("migrate", url, "--dry-run", "--json").stdout)
    applied = json.loads(keelbolt("migrate", url, "--json").stdout)
    assert applied["applied"]
    assert not listed["applied"]
    assert applied["migrations"] == listed["migrations"]
    assert [each["number"] for each in applied["migrations"]] == list(range(1, len(applied["migrations"]) + 1))

    assert "nothing to do" in keelbolt("migrate", url).stdout


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("command", [("storage", "check"), ("storage", "stats"), ("storage", "sweep"), ("migrate",)])
@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("nosuch://x", 2),
        ("sqlite:///no/such/directory/x.db", 3),
        ("sqlite:///letter.txt", 1),
        ("agent.db", 2),
        ("postgresql://u:secret@localhost:9/x", 1),
        ("redis://localhost:9/0", 1),
    ],
)
def test_an_error_is_one_line(
    command: tuple[str, ...], url: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("letter.txt").write_text("Dear Bob,\n" * 1000)
    if (command, url) == (("migrate",), "redis://localhost:9/0"):
        return  # Redis has no schema
    result = keelbolt(*command, url)
    assert result.exit_code == code
    assert ("localhost:9" in result.stderr, "connection refused" in result.stderr) == ("localhost:9" in url,) * 2
    assert "secret" not in result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert Path("letter.txt").read_text() == "Dear Bob,\n" * 1000


@pytest.mark.parametrize("action", ["check", "stats", "sweep"])
def test_a_mistyped_path_creates_nothing(action: str, tmp_path: Path) -> None:
    result = keelbolt("storage", action, f"sqlite:///{tmp_path}/agnet.db")
    assert result.exit_code == 3
    assert "no storage exists" in result.stderr
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------- conformance


@pytest.mark.parametrize("name", ["no_such_module:factory", "json:nothing", "json:decoder", "json"])
def test_an_invalid_factory_is_an_error(name: str) -> None:
    result = keelbolt("conformance", "kernel", name)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_conformance_of_the_memory_engine() -> None:
    result = keelbolt("conformance", "kernel", "keelbolt.kernel.memory:MemoryKernel", "--only", "records", "--json")
    assert result.exit_code == 0, result.stdout
    report = json.loads(result.stdout)
    assert report["ok"]
    assert {law["group"] for law in report["laws"]} == {"records"}


def test_an_engine_that_breaks_a_law_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is found in the current directory; the report names the law."""
    (tmp_path / "forgetful.py").write_text(
        "from keelbolt.kernel.memory import MemoryKernel\n\n"
        "class Forgetful(MemoryKernel):\n"
        "    async def get(self, partition, collection, key):\n"
        "        return None\n"
    )
    monkeypatch.chdir(tmp_path)
    result = keelbolt("conformance", "kernel", "forgetful:Forgetful", "--only", "records")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout


def test_conformance_of_a_state_store() -> None:
    """penguiflow's own store breaks a law of events; the checklist shows the open items."""
    name = "penguiflow.state:InMemoryStateStore"
    result = keelbolt("conformance", "state-store", name, "--only", "events", "--json")
    assert result.exit_code == 1, result.stdout
    assert [law["law"] for law in json.loads(result.stdout)["laws"] if law["verdict"] == "failed"] == [
        "a_saved_event_is_a_copy"
    ]
    result = keelbolt("conformance", "state-store", name, "--only", "planners", "--checklist")
    assert "- [x] load_planner_state consumes the token" in result.stdout
    assert keelbolt("conformance", "state-store", "keelbolt.state:StateStore").exit_code == 2
