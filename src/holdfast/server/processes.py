"""Serves an agent by uvicorn: in this process, or in several that share one socket.

Several processes are forked before anything is opened. The parent only watches: it starts a child that died again, and
passes on the signal to stop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from holdfast.errors import HoldfastError
from holdfast.grpc.address import reserved
from holdfast.server.connections import connections

if TYPE_CHECKING:
    from types import FrameType

    from holdfast.server.app import A2AServer

logger = logging.getLogger("holdfast.server")

RESTART_SECONDS = 1.0  # a child that dies at once is not started more often than this
STOP_SECONDS = 5.0  # beyond the drain, after which a child is killed


def serve(
    server: A2AServer, *, host: str, port: int, processes: int = 1, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGTERM or SIGINT."""
    if processes < 1:
        raise HoldfastError("processes is at least 1")
    with contextlib.closing(_bind(host, port)) as bound, contextlib.ExitStack() as stack:
        shown = "localhost" if host in ("127.0.0.1", "::1", "0.0.0.0", "::") else host  # noqa: S104
        server.address = f"http://{shown}:{bound.getsockname()[1]}"
        if server.grpc_at is not None:
            address = reserved(server.grpc_host or host, server.grpc_at.port, shared=processes > 1)
            server.grpc_at = stack.enter_context(address)
        if ready is not None:
            ready(server.address)
        if processes == 1:
            _serve(server, bound)
        else:
            _Pool(server, bound, processes).run()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise HoldfastError(
            f"port {port} of {host} can't be used: {error.strerror}; choose another with --port"
        ) from None
    bound.set_inheritable(True)
    return bound


class _Uvicorn(uvicorn.Server):
    """Ends the agent's streams before it waits for its connections."""

    def __init__(self, config: uvicorn.Config, agent: A2AServer) -> None:
        super().__init__(config)
        self._agent = agent

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._agent.drain()
        await super().shutdown(sockets)


def _serve(server: A2AServer, bound: socket.socket) -> None:
    config = uvicorn.Config(
        server.app,
        http=connections(server.settings),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(server.task_settings.drain_seconds + STOP_SECONDS),
    )
    uvicorn_server = _Uvicorn(config, server)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn_server.run(sockets=[bound])
    if not uvicorn_server.started:
        raise SystemExit(3)


class _Pool:
    """Children that serve one socket, and their parent."""

    def __init__(self, server: A2AServer, bound: socket.socket, count: int) -> None:
        self._server = server
        self._bound = bound
        self._count = count
        self._children: dict[int, float] = {}
        self._stopping = False

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for _ in range(self._count):
            self._fork()
        while self._children:
            pid, status = _waited()
            if pid not in self._children:
                continue
            started = self._children.pop(pid)
            if not self._stopping:
                logger.error("process %d ended (status %d); another takes its place", pid, status)
                time.sleep(max(0.0, started + RESTART_SECONDS - time.monotonic()))
                self._fork()

    def _fork(self) -> None:
        if self._stopping:
            return
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                _serve(self._server, self._bound)
                code = 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            finally:
                os._exit(code)
        self._children[pid] = time.monotonic()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self._stopping:
            self._stopping = True
            for pid in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)


def _waited() -> tuple[int, int]:
    try:
        return os.wait()
    except InterruptedError:
        return 0, 0
