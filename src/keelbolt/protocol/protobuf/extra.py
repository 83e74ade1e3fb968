"""Checks that the extra ``grpc`` is installed, and imports its modules."""

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
"""The modules and the distributions that install them."""


def require() -> None:
    """Raise MissingExtra unless all modules are installed. Imports none: a process that loaded gRPC can't fork."""
    for module, distribution in DISTRIBUTIONS.items():
        if find_spec(module) is None:
            raise MissingExtra("grpc", distribution)


def load(name: str) -> Any:
    """Import a module of the extra."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra("grpc", DISTRIBUTIONS[name.partition(".")[0]]) from error
