"""The command line without a running server: the server that it would start, and the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner, Result

from keelbolt.cli.main import main
from keelbolt.server import A2AServer


@dataclass(slots=True)
class Started:
    """The servers that would run, with their addresses."""

    servers: list[Any] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)

    def only(self) -> tuple[Any, dict[str, Any]]:
        assert len(self.servers) == 1
        return self.servers[0], self.places[0]


@contextmanager
def nothing_runs() -> Iterator[Started]:
    """Servers are created but not run."""
    started = Started()

    def run(self: A2AServer, **place: Any) -> None:
        started.servers.append(self)
        started.places.append(place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(A2AServer, "run", run)
        yield started


def keelbolt(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))
