"""Serves an agent with uvicorn: in this process or in several that share one socket, with limits on connections.

Child processes are forked before anything is opened. The parent only supervises: it replaces a child that died, and
forwards the stop signal. Children stop by themselves if the parent was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from keelbolt.errors import InvalidValue, KeelboltError
from keelbolt.grpc.address import reserved
from keelbolt.observability.logs import log_to_stderr
from keelbolt.server.origins import is_loopback
from keelbolt.server.settings import ServerSettings

if TYPE_CHECKING:
    from types import FrameType

    from keelbolt.server.app import A2AServer

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

LINGER_SECONDS = 5.0  # time to read the rest of a refused body; closing at once would lose the response
LOG_SECONDS = 10.0  # refused connections are logged at most this often
RESERVED_FILES = 256  # file descriptors for the storage, webhooks and logs


class ConnectionCounter:
    """Counts the connections of this process, in total and per address.

    Loopback addresses have no limit of their own: a proxy on this machine uses one address for all its clients. With
    ``trust_proxy``, the same holds for every address.
    """

    def __init__(self, total: int, each: int, *, trust_proxy: bool = False) -> None:
        self._total = total
        self._each = 0 if trust_proxy else each
        self._open: Counter[str] = Counter()
        self._count = self._refused = 0
        self._logged = -LOG_SECONDS

    def enter(self, address: str) -> bool:
        """Count one more connection; return False if a limit is reached."""
        full = self._total and self._count >= self._total
        if full or (self._each and self._open[address] >= self._each and not is_loopback(address)):
            self._log(address, full=bool(full))
            return False
        self._count += 1
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._count -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _log(self, address: str, *, full: bool) -> None:
        self._refused += 1
        if time.monotonic() - self._logged < LOG_SECONDS:
            return
        self._logged = time.monotonic()
        limit = f"{self._total} (connections)" if full else f"{self._each} per address (connections_each)"
        logger.warning("refused %d connections, the last from %s: the limit is %s", self._refused, address, limit)
        self._refused = 0


def most_connections(wanted: int) -> int:
    """Raise the limit of open files as far as needed, and return how many connections this process can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES if wanted else hard
    if needed > soft or needed == resource.RLIM_INFINITY:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = wanted if soft == resource.RLIM_INFINITY else max(1, soft - RESERVED_FILES)
    if most < wanted:
        logger.warning(
            "limited to %d connections, not %d: this process may open %d files (ulimit -n)", most, wanted, soft
        )
    return min(most, wanted) if wanted else most


@functools.cache  # logs once
def connections_per_port(wanted: int, ports: int) -> int:
    """Return how many connections this process can have at each of its ports."""
    return most_connections(wanted * ports) // ports


class HttpConnection(HttpToolsProtocol):
    """One connection. uvicorn's timeout applies between requests, the application's within a body."""

    header_bytes = 65_536
    header_seconds = 15.0
    write_seconds = 30.0
    opened = ConnectionCounter(0, 0)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._in_headers = self._in_body = False
        self._header_bytes = 0
        self._no_body_bytes = 0  # received within a body, but not part of it: sizes of chunks, trailers
        self._address: str | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self.opened.enter(address):
            self._refuse(_TOO_MANY)
            return
        self._address = address
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()
        self._sent()
        if self._address is not None:
            self.opened.leave(self._address)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self.write_seconds, self._check_progress)

    def resume_writing(self) -> None:
        self._sent()
        super().resume_writing()

    def _check_progress(self) -> None:
        """Drop the connection if the client has read nothing since the last check."""
        left = self.transport.get_write_buffer_size()
        if left < self._unsent:
            self._unsent = left
            self._stalled = self.loop.call_later(self.write_seconds, self._check_progress)
            return
        self._stalled = None
        logger.info("dropped a connection from %s: the client read nothing for %g s", self._address, self.write_seconds)
        self.transport.abort()

    def _sent(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def data_received(self, data: bytes) -> None:
        self._no_body_bytes += len(data)
        self._feed(data)
        if self.transport.is_closing():
            return
        if self._in_body:
            if self._no_body_bytes > self.header_bytes:
                self._refuse(b"")
            return
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.header_bytes:
                self._refuse(_TOO_LARGE)
                return
        if self._deadline is None and (self._in_headers or self._idle):  # these bytes ended uvicorn's own timeout
            self._wait_for_headers()

    def _feed(self, data: bytes) -> None:
        """Parse the data. A request for an upgrade (``Upgrade: h2c`` of Java and curl) is served as if it had none.

        The parser ends such a request before its body, so its head is parsed again without the header ``Upgrade``.
        """
        self._unset_keepalive_if_required()
        left = memoryview(data)
        try:
            while left:
                try:
                    self.parser.feed_data(left)
                    left = left[:0]
                except httptools.HttpParserUpgrade as upgrade:
                    left = left[upgrade.args[0] :]
                    head = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
                    head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.feed_data(b"\r\n".join([*head, b"", b""]))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):  # CONNECT is an upgrade without the header
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # otherwise a trailer, which no proxy has checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():  # see `_feed`
            return
        self._in_headers, self._in_body = False, True
        self._no_body_bytes = 0
        self._over()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._no_body_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._in_body = False
        self._over()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and not self.pipeline:  # refused before the whole body arrived
            self._deadline = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._too_slow)

    def _over(self) -> None:
        """Cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self._idle:
            self._wait_for_headers()  # the response to an earlier request is still being sent
        elif not self.transport.is_closing():
            self._refuse(_TOO_SLOW if self._in_headers else b"")

    def _refuse(self, answer: bytes) -> None:
        if self._idle:  # otherwise it would be written inside another response
            self.transport.write(answer)
        self.transport.close()


def connections(settings: ServerSettings, *, ports: int = 1) -> type[HttpConnection]:
    """Return a connection class with the limits of these settings; ``ports`` is 2 if gRPC is served, too."""
    total = connections_per_port(settings.connections, ports)
    limits = {
        "header_bytes": settings.header_bytes,
        "header_seconds": settings.header_seconds,
        "write_seconds": settings.write_seconds,
        "opened": ConnectionCounter(total, settings.connections_each, trust_proxy=settings.trust_proxy),
    }
    return type("Connection", (HttpConnection,), limits)


logger = logging.getLogger("keelbolt.server")

RESTART_SECONDS = 1.0  # a child that dies at once is restarted at most this often
STOP_SECONDS = 5  # after the drain, until connections are closed
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
START_FAILED = 3  # exit code of a process whose agent could not start


def serve(
    server: A2AServer, *, host: str, port: int, processes: int = 1, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGTERM or SIGINT."""
    if processes < 1:
        raise KeelboltError("processes must be at least 1")
    if processes > 1 and server.in_memory:
        raise InvalidValue(
            "memory can't be shared by several processes; use one process, or sqlite:///path, postgresql:// or redis://"
        )
    server._check_exposure(host)  # noqa: SLF001 - the same package; gRPC is checked where it listens
    logged = logger.isEnabledFor(logging.INFO)
    if not logging.getLogger().handlers and not logging.getLogger("keelbolt").handlers:
        log_to_stderr(as_json=False, level=logging.getLevelName(logger.getEffectiveLevel()))
    with contextlib.closing(_bind(host, port)) as bound, contextlib.ExitStack() as stack:
        shown = "localhost" if host in ("127.0.0.1", "::1", "0.0.0.0", "::") else host  # noqa: S104
        server.address = f"http://{shown}:{bound.getsockname()[1]}"
        if server.grpc_at is not None:
            address = reserved(server.grpc_host or host, server.grpc_at.port, shared=processes > 1)
            server.grpc_at = stack.enter_context(address)
        announce = functools.partial(_announce, server, logged=logged)
        tell = functools.partial(ready or announce, server.address)
        if processes == 1:
            _serve(server, bound, tell)
        else:
            _Pool(server, bound, processes).run(tell)


def _announce(server: A2AServer, address: str, *, logged: bool) -> None:
    """Print the address if the program does not log at level INFO; otherwise the log has it."""
    if not logged:
        page = "" if server.settings.explorer is False else f", with a page at {server.settings.explorer_prefix}"
        sys.stderr.write(f"The agent listens at {address}{page}; stop it with Ctrl-C\n")


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # without IPPROTO_TCP, asyncio keeps Nagle
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise KeelboltError(f"port {port} of {host} can't be used: {error.strerror}; choose another port") from None
    bound.set_inheritable(True)
    return bound


class _Uvicorn(uvicorn.Server):
    """Reports when the agent has started; ends its streams before it waits for connections.

    ``parent`` is the pid of the supervising process: without it, no process would forward the stop signal.
    """

    def __init__(
        self, config: uvicorn.Config, agent: A2AServer, tell: Callable[[], object], parent: int | None
    ) -> None:
        super().__init__(config)
        self._agent = agent
        self._tell = tell
        self._parent = parent

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            settle_memory()
            name, engine = self._agent.agent_card.name, self._agent.routes.service.engine.kernel.engine
            logger.info("agent %s serves at %s, on %s, as process %d", name, self._agent.address, engine, os.getpid())
            self._tell()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; uvicorn calls this ten times per second."""
        if self._parent is not None and os.getppid() != self._parent:
            logger.error("the parent process %d has ended; process %d stops, too", self._parent, os.getpid())
            return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("agent %s is stopping", self._agent.agent_card.name)
        await self._hand_over()
        await super().shutdown(sockets)
        self._captured_signals.clear()  # uvicorn would raise them again: an agent stopped by a signal exits with 0
        logger.info("agent %s has stopped", self._agent.agent_card.name)

    async def _hand_over(self) -> None:
        """Drain tasks before connections close, so that clients that wait for a task get its final or current state.

        Other requests are still served meanwhile. A second Ctrl-C ends the drain at once.
        """
        runner = self._agent.routes.service.engine.runner
        if runner is not None and runner.runs:
            said = "%d running tasks have some seconds to end and are then released (Ctrl-C again: at once)"
            logger.info(said, len(runner.runs))
        handing_over = asyncio.ensure_future(self._agent.hand_over())
        while not handing_over.done() and not self.force_exit:
            await asyncio.wait([handing_over], timeout=0.1)
        if handing_over.done():
            await handing_over


def _serve(server: A2AServer, bound: socket.socket, tell: Callable[[], object], *, parent: int | None = None) -> None:
    config = uvicorn.Config(
        server.app,
        http=connections(server.settings, ports=1 if server.grpc_at is None else 2),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # our own setting trust_proxy decides
        timeout_keep_alive=30,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    uvicorn_server = _Uvicorn(config, server, tell, parent)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn_server.run(sockets=[bound])
    if not uvicorn_server.started:
        raise SystemExit(START_FAILED)


class _Pool:
    """The parent of several child processes that serve one socket."""

    def __init__(self, server: A2AServer, bound: socket.socket, count: int) -> None:
        self._server = server
        self._bound = bound
        self._count = count
        self._children: dict[int, float] = {}
        self._stopping = self._failed = False

    def run(self, tell: Callable[[], object]) -> None:
        """Serve until a signal. If one of the first children can't start, stop all: the cause affects every child."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)
        started, write = os.pipe()
        for _ in range(self._count):
            self._fork(lambda: os.write(write, b"1"))
        os.close(write)
        first = frozenset(self._children)
        if os.read(started, 1):  # empty: all children have ended
            tell()
        os.close(started)
        while self._children:
            self._wait(first)
        if self._failed:
            raise SystemExit(START_FAILED)

    def _wait(self, first: frozenset[int]) -> None:
        pid, status = os.wait()
        if pid not in self._children:
            return
        began = self._children.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if pid in first and code == START_FAILED:
            self._failed = True
            self._stop()
        elif not self._stopping:
            logger.error("process %d exited with code %d; a new process replaces it", pid, code)
            time.sleep(max(0.0, began + RESTART_SECONDS - time.monotonic()))
            self._fork(lambda: None)

    def _fork(self, tell: Callable[[], object]) -> None:
        if self._stopping:
            return
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # a new child would handle a signal as the parent does
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for number in STOP_SIGNALS:
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
                _serve(self._server, self._bound, tell, parent=parent)
                code = 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            finally:
                os._exit(code)
        self._children[pid] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def _stop(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        if not self._stopping:
            self._stopping = True
            for pid in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)


# --------------------------------------------------------------------------------------------------------------- tuning


THRESHOLDS = (20_000, 10, 10)


def settle_memory() -> None:
    """Run the garbage collector less often, and exclude permanent objects from it.

    A request creates a few hundred objects, nearly all of which reference counting frees; Python's default checks for
    cycles every 700. (Measured: a fifth to a third more requests per second.)
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
