"""Options have one name, one variable and one meaning in all commands; exit codes match the reference."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import keelbolt.cli
from keelbolt import errors
from keelbolt.cli.failure import exit_code
from keelbolt.cli.main import RENAMED, main
from keelbolt.environment import KNOWN, PREFIX

VARIABLES = {
    "--storage": "KEELBOLT_STORAGE",
    "--server": "KEELBOLT_SERVER",
    "--token": "KEELBOLT_TOKEN",
    "--retain": "KEELBOLT_RETAIN",
    "--concurrency": "KEELBOLT_CONCURRENCY",
    "--lease-seconds": "KEELBOLT_LEASE_SECONDS",
    "--drain-seconds": "KEELBOLT_DRAIN_SECONDS",
    "--double-text": "KEELBOLT_DOUBLE_TEXT",
    "--log-level": "KEELBOLT_LOG_LEVEL",
    "--log-format": "KEELBOLT_LOG_FORMAT",
    "--extensions-dir": "KEELBOLT_EXTENSIONS_DIR",
}
"""The variable of each option that several commands have. A new one of them must be put here."""

UNSHARED = {"--all", "--context", "--dry-run", "--failed", "--json", "--limit", "--only", "--owner", "--portable"} | {
    "--after",
    "--memory",
    "--session",
    "--thread",
    "--trace",
    "--user",
    "--binding",
    "--data",
    "--file",
    "--header",
    "--idempotency-key",
    "--message-id",
    "--output",
    "--payload",
    "--protocol",
    "--reason",
    "--restart",
    "--skill",
    "--state",
    "--tail",
    "--task",
    "--tenant",
    "--timeout",
    "--trusted-origin",
    "--wait",
    "--yes",
}
"""Options of several commands that say what this one call is about: they have no variable."""


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = list(commands())
CREATE = ("serve", "worker", "tasks send", "state import", "import")  # they create a storage that does not exist


def options(command: click.Command) -> dict[str, click.Option]:
    return {option.opts[0]: option for option in command.params if isinstance(option, click.Option)}


def variables(option: click.Option) -> list[str]:
    found = option.envvar
    return [found] if isinstance(found, str) else list(found or ())


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_names_and_variables_are_the_same_everywhere(path: str, command: click.Command) -> None:
    found = options(command)
    assert path == "serve" or not (found.keys() & RENAMED.keys()) - {"--json"}, "an old name"
    for name, option in found.items():
        if name in VARIABLES:
            assert VARIABLES[name] in variables(option), name
        for variable in variables(option):
            known = variable.removeprefix(PREFIX) in KNOWN
            assert known or variable == "EXTENSIONS_DIR", f"{variable} is not in keelbolt.environment"
    if "--server" in found:
        assert {"--storage", "--token"} <= found.keys()
    if "--json" in found:
        assert found["--json"].is_flag, "--json is about output"
        assert "log" not in (found["--json"].help or "").lower()


def test_an_option_of_several_commands_has_a_variable_or_needs_none() -> None:
    several: dict[str, int] = {}
    for _, command in COMMANDS:
        for name in options(command):
            several[name] = several.get(name, 0) + 1
    unknown = {name for name, count in several.items() if count > 1} - VARIABLES.keys() - UNSHARED
    assert not unknown


def test_serve_and_worker_have_the_same_settings() -> None:
    found = {path: options(command) for path, command in COMMANDS}
    for name, option in found["worker"].items():
        assert name in found["serve"], name
        assert variables(found["serve"][name]) == variables(option), name


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_wrong_usage_exits_with_2(path: str, command: click.Command) -> None:
    """An unknown option fails before anything is opened. Modules are served with the exit codes of apcore-a2a."""
    result = CliRunner().invoke(main, [*path.split(), "--no-such-option"])
    assert result.exit_code == (1 if path == "serve" else 2), result.output
    assert "No such option" in result.output


@pytest.mark.parametrize(
    ("path", "command"),
    [each for each in COMMANDS if "--storage" in options(each[1]) and each[0] not in CREATE],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_missing_storage_exits_with_3(path: str, command: click.Command, tmp_path: Path) -> None:
    """Every command that reads a storage fails, and creates none."""
    given = [str(WORDS.get(each.name or "", "x")) for each in command.params if isinstance(each, click.Argument)]
    flags = NEEDED.get(path, [])
    storage = f"sqlite:///{tmp_path}/none.db"
    result = CliRunner().invoke(main, [*path.split(), *given, *flags, "--storage", storage])
    assert result.exit_code == 3, result.output
    assert result.stderr.startswith("error: ")
    assert not list(tmp_path.iterdir())


WORDS = {"kind": "inject", "answer": "resolve"}
NEEDED = {
    "tasks fork": ["--seq", "1"],
    "erase": ["--task", "x"],
    "export": ["--task", "x", "--output", "-"],
    "sweep": ["--retain", "completed=1d"],
}


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_an_old_option_name_suggests_the_new_one(old: str) -> None:
    path = {"--of": "turns gates", "--lease": "worker x:y", "--json": "worker x:y"}.get(old, "state sessions")
    result = CliRunner().invoke(main, [*path.split(), old, "1"])
    assert result.exit_code == 2
    assert f"Did you mean '{RENAMED[old]}'" in result.output


def test_exit_codes_of_errors() -> None:
    assert exit_code(errors.TaskNotFoundError("x")) == 3
    assert exit_code(errors.CredentialsRefused()) == 3
    assert exit_code(errors.UnsupportedOperationError("no")) == 3
    assert exit_code(errors.InvalidValue("no")) == 2
    assert exit_code(errors.A2AConnectionError("no")) == 1
    assert exit_code(errors.StorageUnreachable("no")) == 1


def test_commands_use_only_the_named_exit_codes() -> None:
    """Exit codes are named in `failure`; only `send` and `stream` have an additional one, for an unfinished task."""
    for file in Path(keelbolt.cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "SystemExit":
                assert not isinstance(node.args[0], ast.Constant), file.name
