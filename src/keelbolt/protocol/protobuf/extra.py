"""Whether the extra is there, and its modules."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from keelbolt.errors import MissingExtra

DISTRIBUTIONS = {
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "a2a": "a2a-sdk",
    "google": "protobuf",
}
"""The modules, and what they are installed by."""


def require() -> None:
    """Raise MissingExtra unless all of it is installed. Loads nothing: a process with gRPC in it can't be forked."""
    for module, distribution in DISTRIBUTIONS.items():
        if find_spec(module) is None:
            raise MissingExtra("grpc", distribution)


def load(name: str) -> Any:
    """A module of the extra."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra("grpc", DISTRIBUTIONS[name.partition(".")[0]]) from error
