"""The gRPC port: exclusive or shared with own processes, never with other programs."""

from __future__ import annotations

import socket

import pytest

from keelbolt.errors import KeelboltError
from keelbolt.grpc.address import GrpcAddress, reserved


def test_a_free_port_is_found() -> None:
    with reserved("127.0.0.1", 0, shared=False) as at:
        assert at.port > 0
        assert not at.shared
        assert str(at) == f"127.0.0.1:{at.port}"


def test_processes_share_a_port() -> None:
    with reserved("127.0.0.1", 0, shared=True) as at, socket.socket() as one, socket.socket() as other:
        for listening in (one, other):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind((at.host, at.port))
            listening.listen()


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_of_another_program_is_not_shared(shared: bool) -> None:
    """Another agent that was not stopped would get half of the calls."""
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with (
            pytest.raises(KeelboltError, match=rf"port {port} .* --grpc-port"),
            reserved("127.0.0.1", port, shared=shared),
        ):
            pass


def test_the_host_of_an_address() -> None:
    assert str(GrpcAddress("::1", 5)) == "[::1]:5"
    assert GrpcAddress("0.0.0.0", 5).reachable_host == "localhost"
    assert GrpcAddress("10.0.0.1", 5).reachable_host == "10.0.0.1"
