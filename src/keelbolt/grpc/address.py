"""The listening address of gRPC. Processes share a port with SO_REUSEPORT: the kernel distributes the connections."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from keelbolt.errors import KeelboltError

ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class GrpcAddress:
    """``shared``: other processes of this agent listen there too."""

    host: str
    port: int
    shared: bool = False

    def __str__(self) -> str:
        return host_port(self.host, self.port)

    @property
    def reachable_host(self) -> str:
        """The host for clients on this machine."""
        return "localhost" if self.host in ANYWHERE else self.host


def host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def reserved(host: str, port: int, *, shared: bool) -> Iterator[GrpcAddress]:
    """Yield an address that can be bound. Port 0 becomes a free one.

    A shared address is reserved for all processes until the end of the block. It is first bound exclusively: if an
    unrelated process (an agent that was not stopped) shared the port, it would silently receive part of the calls.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(alone, host, port)
        port = alone.getsockname()[1]
    if not shared:
        yield GrpcAddress(host, port)
        return
    with socket.socket(family, socket.SOCK_STREAM) as kept:  # never listens, so it gets no connections
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _bind(kept, host, port)
        yield GrpcAddress(host, port, shared=True)


def _bind(bound: socket.socket, host: str, port: int) -> None:
    try:
        bound.bind((host, port))
    except OSError as error:
        raise cannot_listen(host, port, error.strerror) from None


def cannot_listen(host: str, port: int, reason: str | None = None) -> KeelboltError:
    why = f": {reason}" if reason else ""
    return KeelboltError(f"port {port} of {host} can't be used for gRPC{why}; choose another with --grpc-port")
