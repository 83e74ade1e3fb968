"""Without the extra, the error names the package to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from keelbolt.errors import MissingExtra
from keelbolt.protocol.protobuf import extra


@pytest.mark.parametrize("module", extra.DISTRIBUTIONS)
def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == module else object())
    with pytest.raises(MissingExtra, match=r"pip install 'keelbolt\[grpc\]'"):
        extra.require()


def test_importing_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_health", None)
    with pytest.raises(MissingExtra, match="grpcio-health-checking"):
        extra.load("grpc_health.v1.missing")


def test_a_server_without_grpc_loads_none_of_it() -> None:
    program = (
        "import sys, keelbolt.server, keelbolt.server.processes; print('grpc' in sys.modules, 'a2a' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
