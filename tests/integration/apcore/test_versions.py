"""Versions of apcore: the oldest supported one works like the newest, and older ones are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from keelbolt.apcore.library import check_version
from keelbolt.errors import UnsupportedVersion
from tests.integration.server.test_serve_command import KEELBOLT

ROOT = Path(__file__).parents[3]
PLACE = Path(sys.prefix, "peers", "apcore_versions")
OLDEST = "0.32.0"
FILES = ("test_elicitation", "test_delegation_followed", "test_approvals", "test_execution", "test_configuration")

# A module as apcore-mcp's documentation has it.
FOR_MCP = """
from apcore_mcp import elicit, report_progress
from pydantic import BaseModel

class Input(BaseModel):
    path: str

class Output(BaseModel):
    deleted: bool

class Delete:
    description = "Deletes a file"
    input_schema = Input
    output_schema = Output

    async def execute(self, inputs, context):
        await report_progress(context, progress=1, total=2, message="checking")
        result = await elicit(
            context,
            message=f"Delete {inputs['path']}?",
            requested_schema={
                "type": "object",
                "properties": {"confirm": {"type": "boolean", "title": "Confirm deletion?"}},
            },
        )
        if result is None or result["action"] != "accept" or not result["content"]["confirm"]:
            return {"deleted": False}
        return {"deleted": True}
"""

CALL = """
import asyncio, json, sys
sys.path.append(sys.argv[1])  # behind what Keelbolt uses itself
import httpx2
from keelbolt.apcore import async_serve

async def main():
    app = await async_serve("modules", storage="sqlite:///agent.db")
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost", timeout=30) as client,
    ):
        async def send(part, **more):
            message = {"messageId": str(part), "role": "ROLE_USER", "parts": [part], **more}
            return (await client.post("/message:send", json={"message": message})).json()["task"]

        asked = await send({"data": {"path": "a.txt"}})
        done = await send({"text": "yes"}, taskId=asked["id"])
        print(json.dumps([asked["status"]["message"]["parts"][0]["text"], done["artifacts"][0]["parts"][0]["data"]]))

asyncio.run(main())
"""


def unpacked(name: str) -> Path:
    found = PLACE / name
    if not found.is_dir():
        pytest.skip(f"{name} is not unpacked; `make test` does that")
    return found


def with_apcore(number: str) -> dict[str, str]:
    """Return an environment in which this version of apcore precedes the installed one."""
    return {**os.environ, "PYTHONPATH": str(unpacked(f"apcore-{number}"))}


def test_the_installed_version_is_supported() -> None:
    check_version(version("apcore"))


@pytest.mark.parametrize("found", ["0.31.9", "0.9", "0.1.0"])
def test_versions_that_are_too_old_are_refused(found: str) -> None:
    with pytest.raises(UnsupportedVersion, match=re.escape(f"apcore {found} is not supported")):
        check_version(found)


@pytest.mark.parametrize("found", ["0.33.0", "1.0.0"])
def test_newer_versions_cause_a_warning(found: str, caplog: pytest.LogCaptureFixture) -> None:
    check_version(found)
    assert f"apcore {found} is newer" in caplog.text


def test_the_command_refuses_an_old_version_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    ran = subprocess.run(
        [*KEELBOLT, "serve", "--extensions-dir", "extensions"],
        cwd=tmp_path,
        env=with_apcore("0.31.0"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    wanted = "error: apcore 0.31.0 is not supported. Install a version that is: pip install 'apcore>=0.32,<0.33'\n"
    assert ran.stderr == wanted


def test_the_oldest_version_works_like_the_newest() -> None:
    """The tests of calls, questions, approvals, delegation and configuration run with it."""
    environment = with_apcore(OLDEST)
    shown = subprocess.run(
        [sys.executable, "-c", "from importlib.metadata import version; print(version('apcore'))"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == OLDEST
    files = [str(Path(__file__).with_name(f"{name}.py")) for name in FILES]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**environment, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]


def test_a_module_that_was_written_for_apcore_mcp_works_unchanged(tmp_path: Path) -> None:
    """The module imports apcore-mcp."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "delete.py").write_text(FOR_MCP)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALL, str(unpacked("apcore-mcp-0.23.3"))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout.strip() == '["Delete a.txt?", {"deleted": true}]', ran.stderr[-3000:]
