"""`keelbolt state` prints the same as PenguiFlow's own command, and has additional subcommands."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from keelbolt.cli.main import main
from keelbolt.state import ArtifactRetentionConfig, ArtifactScope, StateStore
from tests.integration.state.children import ROOT
from tests.integration.state.conftest import store_url
from tests.integration.state.session import fill
from tests.integration.state.things import event

ADMIN = Path(sys.executable).parent / "penguiflow-admin"


def keelbolt(*arguments: str, input: bytes | None = None) -> Result:  # noqa: A002  (as the runner has it)
    result = CliRunner().invoke(main, ["state", *arguments], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def admin(url: str, *arguments: str) -> tuple[bytes, int]:
    """Run the real command with Keelbolt's factory."""
    command = [str(ADMIN), *arguments, "--state-store", "keelbolt.state:create_store"]
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=60, env={**os.environ, "KEELBOLT_STATE_URL": url}
    )
    return done.stdout, done.returncode


async def kept(url: str) -> None:
    async with StateStore(url) as store:
        odd = {"nan": float("nan"), "when": datetime(2026, 1, 1, tzinfo=UTC), "set": {1}, "ü": "ü\0", "node_id": "mine"}
        store.save_events(
            [event(2.0, "trace", "node_error", **odd), event(1.0, "trace", n=1), event(1.0, "trace", n=1)]
        )
        store.save_event(event(0.5, None, "node_cancelled"))
        await store.save_event(event(3.0, "trace", "flow_done", event="mine"))


COMMANDS = [
    ("history", "trace"),
    ("history", "trace", "--tail", "2"),
    ("history", "trace", "--tail", "0"),
    ("history", "none"),
    ("history", "__global__"),
    ("replay", "trace", "--delay", "0.001"),
    ("replay", "trace", "--tail", "1"),
    ("replay", "none"),
]


async def test_the_output_equals_penguiflow_admin(file_url: str) -> None:
    """The output is equal byte for byte, with the same exit codes."""
    await kept(file_url)
    for arguments in COMMANDS:
        ours = await run(*arguments, "--storage", file_url)
        assert (ours.stdout_bytes, ours.exit_code) == admin(file_url, *arguments), arguments
    wrong = await run("history", "trace", "--storage", "nonsense:")
    assert (wrong.stdout_bytes, wrong.exit_code) == (b"", 2)
    assert wrong.stderr.startswith("error: ")


@pytest.mark.parametrize("engine", ["postgres", "redis"])
async def test_the_output_equals_penguiflow_admin_on_servers(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = store_url(engine, request, tmp_path)
    await kept(url)
    ours = await run("replay", "trace", "--storage", url)
    assert (ours.stdout_bytes, ours.exit_code) == admin(url, "replay", "trace")
    assert ours.stdout.startswith("# replay trace=trace events=3\n")


async def run(*arguments: str) -> Result:
    """Run the command, which has its own event loop."""
    return await asyncio.to_thread(keelbolt, *arguments)


async def test_whole_events(file_url: str) -> None:
    await kept(file_url)
    lines = (await run("history", "trace", "--storage", file_url, "--json", "--tail", "1")).stdout.splitlines()
    assert json.loads(lines[0])["payload"] == {"event": "mine"}


def printed(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


async def test_follow_prints_each_event_once_as_it_comes(file_url: str) -> None:
    async with StateStore(file_url, types="own") as store:
        await store.save_event(event(1.0, n=1))
        await store.flush()
        command = [sys.executable, "-m", "keelbolt", "state", "history", "trace", "--storage", file_url, "--follow"]
        with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
            try:
                lines = printed(process)
                assert (await asyncio.to_thread(next, lines))["n"] == 1
                await store.save_events([event(1.0, n=1), event(2.0, n=2)])
                await store.flush()
                assert (await asyncio.to_thread(next, lines))["n"] == 2
            finally:
                process.terminate()


async def test_lists_and_single_items(file_url: str) -> None:
    async with StateStore(file_url, types="own", artifact_retention=ArtifactRetentionConfig(ttl_seconds=0)) as store:
        await fill(store)
        ref = await store.artifact_store.put_text("hello", scope=ArtifactScope(session_id="session"))
    (session,) = json.loads((await run("sessions", "--storage", file_url, "--json")).stdout)["sessions"]
    assert (session["id"], session["counts"]["updates"]) == ("session", 5)
    assert "session" in (await run("sessions", "--storage", file_url)).stdout
    traces = json.loads((await run("traces", "--storage", file_url, "--json", "--limit", "1")).stdout)["traces"]
    assert len(traces) == 1
    for word, kind in (("session", "session"), ("trace", "trace"), ("t:u:session", "memory"), (ref.id, "artifact")):
        assert json.loads((await run("show", word, "--storage", file_url, "--json")).stdout)["kind"] == kind
        assert word in (await run("show", word, "--storage", file_url)).stdout
    missing = await run("show", "none", "--storage", file_url)
    assert (missing.exit_code, missing.stderr.count("\n")) == (3, 1)


async def test_views(file_url: str) -> None:
    async with StateStore(file_url) as store:
        await store.save_event(event())
    assert (await run("views", "--storage", file_url)).stdout.startswith("10 views created")
    shown = subprocess.run(
        ["sqlite3", file_url.removeprefix("sqlite:///"), "SELECT trace_id, kind FROM flow_events"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert shown.stdout == "trace|node_start\n"
    assert (await run("views", "--storage", file_url, "--drop")).stdout == "10 views dropped\n"


async def test_a_missing_storage_is_not_created(tmp_path: Path) -> None:
    for command in (("sessions",), ("history", "trace"), ("views",)):
        assert (await run(*command, "--storage", f"sqlite:///{tmp_path}/none.db")).exit_code == 3
    assert not list(tmp_path.iterdir())


def test_pauses_are_listed_shown_and_cancelled(shared_url: str) -> None:
    async def fill_pauses() -> None:
        async with StateStore(shared_url) as store:
            for number in range(2):
                await store.save_planner_state(f"token-{number}", {"reason": "await_input", "n": number})

    asyncio.run(fill_pauses())
    listed = json.loads(keelbolt("pauses", "list", "--storage", shared_url, "--json").output)["pauses"]
    assert [pause["token"] for pause in listed] == ["token-1", "token-0"]
    assert {pause["reason"] for pause in listed} == {"await_input"}
    assert "token-1" in keelbolt("pauses", "list", "--storage", shared_url, "--limit", "1").output
    assert (
        json.loads(keelbolt("pauses", "show", "token-0", "--storage", shared_url, "--json").output)["payload"]["n"] == 0
    )
    assert keelbolt("pauses", "cancel", "token-0", "--storage", shared_url).output == "cancelled token-0\n"
    assert keelbolt("pauses", "cancel", "token-0", "--storage", shared_url).exit_code != 0
    assert keelbolt("pauses", "show", "token-0", "--storage", shared_url).exit_code != 0
