"""Modules that the client imports, and modules that it must not import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import keelbolt.client

SERVER = {"server", "tasks", "storage", "webhooks", "grpc", "auth", "cli", "state", "turns", "explorer"}


def loaded_by(statement: str) -> set[str]:
    program = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(answer.stdout))


@pytest.mark.parametrize(
    ("statement", "also"),
    [
        ("import keelbolt.client", {"pydantic", "asyncio", "httpx2"}),
        ("from keelbolt.client import A2AClient, SyncA2AClient; A2AClient('http://a')", {"httpx2"}),
        ("import keelbolt.client.http, keelbolt.client.jsonrpc, keelbolt.client.rest", set[str]()),
    ],
)
def test_the_server_is_not_imported(statement: str, also: set[str]) -> None:
    loaded = loaded_by(statement)
    ours = {name.split(".")[1] for name in loaded if name.startswith("keelbolt.")}
    assert not ours & SERVER
    assert not loaded & ({"starlette", "uvicorn", "sqlite3", "click", "rich", "jwt", "cryptography"} | also)


def test_every_public_name_exists() -> None:
    for name in keelbolt.client.__all__:
        assert getattr(keelbolt.client, name) is not None
    assert dir(keelbolt.client) == sorted(keelbolt.client.__all__)
    with pytest.raises(AttributeError):
        _ = keelbolt.client.Nothing
