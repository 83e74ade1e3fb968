"""What the client loads, and what it must not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import holdfast.client

SERVER = {"server", "tasks", "storage", "webhooks", "grpc", "auth", "cli", "state", "turns", "explorer"}


def loaded_by(statement: str) -> set[str]:
    program = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(answer.stdout))


@pytest.mark.parametrize(
    ("statement", "also"),
    [
        ("import holdfast.client", {"pydantic", "asyncio", "httpx2"}),
        ("from holdfast.client import A2AClient, SyncA2AClient; A2AClient('http://a')", {"httpx2"}),
        ("import holdfast.client.http, holdfast.client.jsonrpc, holdfast.client.rest", set[str]()),
    ],
)
def test_nothing_of_the_server_is_loaded(statement: str, also: set[str]) -> None:
    loaded = loaded_by(statement)
    ours = {name.split(".")[1] for name in loaded if name.startswith("holdfast.")}
    assert not ours & SERVER
    assert not loaded & ({"starlette", "uvicorn", "sqlite3", "click", "rich", "jwt", "cryptography"} | also)


def test_every_public_name_is_there() -> None:
    for name in holdfast.client.__all__:
        assert getattr(holdfast.client, name) is not None
    assert dir(holdfast.client) == sorted(holdfast.client.__all__)
    with pytest.raises(AttributeError):
        _ = holdfast.client.Nothing
