"""An agent without authentication is reachable only from its own machine, unless the operator allows more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keelbolt.errors import AuthMisconfigured
from tests.integration.server.actor import agent
from tests.integration.server.people import authenticator

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "agent.example"])
def test_it_does_not_listen_elsewhere(host: str) -> None:
    with pytest.raises(AuthMisconfigured, match="allow_anonymous=True"):
        agent(auth=None).run(host=host, port=0)


async def test_grpc_does_not_listen_elsewhere() -> None:
    with pytest.raises(AuthMisconfigured, match="allow_anonymous=True"):
        async with agent(auth=None, grpc_port=0, grpc_host="0.0.0.0"):
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_authentication(host: str) -> None:
    agent(auth=None)._check_exposure(host)


def test_authentication_or_the_operator_opens_it() -> None:
    agent(auth=authenticator())._check_exposure("0.0.0.0")
    agent(auth=None, allow_anonymous=True)._check_exposure("0.0.0.0")


@pytest.mark.parametrize(
    "options",
    [["tests.integration.server.actor:act"], ["--extensions-dir", "examples/apcore_agent/extensions"]],
    ids=["worker", "modules"],
)
def test_the_command_refuses_to_start(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "keelbolt", "serve", *options, "--host", "0.0.0.0", "--port", "0"]
    command += ["--storage", f"sqlite:///{tmp_path}/agent.db"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEELBOLT_")}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert "--allow-anonymous" in ran.stderr
    assert "Traceback" not in ran.stderr
