"""The agent as an ASGI application. All components are wired here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from starlette.types import ASGIApp, Receive, Scope, Send

from keelbolt.auth import Authenticator, Resolver
from keelbolt.data.retention import FacePolicy
from keelbolt.errors import AuthMisconfigured, KeelboltError, MethodNotFoundError, ProtocolError
from keelbolt.explorer import Explorer
from keelbolt.grpc.address import GrpcAddress
from keelbolt.kernel import Kernel
from keelbolt.kernel.urls import MEMORY
from keelbolt.observability.metrics import Metrics
from keelbolt.observability.tracing import Tracing
from keelbolt.protocol.card import AgentCardConfig
from keelbolt.protocol.protobuf.extra import require
from keelbolt.protocol.signatures import CardKey
from keelbolt.server.admission import Admission
from keelbolt.server.cards import JWKS_PATH, PATHS, Cards, ExtendedCard, serve_jwks
from keelbolt.server.dispatch import Dispatcher, InstrumentedDispatcher, Middleware
from keelbolt.server.gate import LoginLimiter, RequestGuard, RequestLimiter
from keelbolt.server.health import HealthRoutes, MetricsPage
from keelbolt.server.http import respond
from keelbolt.server.jsonrpc import JsonRpc
from keelbolt.server.operations import OperationsApi
from keelbolt.server.origins import Cors, HostCheck, at_this_machine, is_loopback_name
from keelbolt.server.rest import OLDER_CARD, Rest, route
from keelbolt.server.service import AgentService
from keelbolt.server.settings import ServerSettings
from keelbolt.server.sse import Streams
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.settings import TaskSettings
from keelbolt.tasks.storage import InMemoryStorage, Storage
from keelbolt.tasks.worker import AnyWorker, Dependency, LifecycleHooks, handler_of
from keelbolt.webhooks.delivery import Deliverer, DeliverySettings
from keelbolt.webhooks.post import Poster
from keelbolt.webhooks.sealing import Sealer

if TYPE_CHECKING:
    from keelbolt.grpc.server import GrpcServer

logger = logging.getLogger("keelbolt.server")

__all__ = ["A2AServer", "Dependency"]


class A2AServer:
    """A complete A2A agent around a worker.

    server = A2AServer(worker=Echo(), agent_card=AgentCardConfig(name="Echo", description="Says it again"))
    server.run(port=8000)

    ``app`` is an ASGI application: mount it in Starlette or FastAPI, or give it to any ASGI server. ``async with
    server`` starts and stops the agent without one. With ``storage="memory"``, nothing survives the process.
    """

    def __init__(
        self,
        *,
        worker: AnyWorker | None,
        agent_card: AgentCardConfig,
        storage: str | Storage[Any] | Kernel = "memory",
        auth: Authenticator | None = None,
        require_auth: bool = True,
        exempt_prefixes: object = None,
        extended_card: ExtendedCard | None = None,
        admission: Admission | None = None,
        hooks: LifecycleHooks | None = None,
        middlewares: Sequence[Middleware] = (),
        dependencies: Mapping[Any, Any] | None = None,
        retention: FacePolicy | Sequence[FacePolicy] | None = None,
        explorer: bool | None = None,
        explorer_prefix: str | None = None,
        allow_anonymous: bool | None = None,
        settings: ServerSettings | None = None,
        task_settings: TaskSettings | None = None,
        tracing: bool | None = None,
        card_key: CardKey | None = None,
        grpc_port: int | None = None,
        grpc_host: str | None = None,
    ) -> None:
        if worker is not None:
            handler_of(worker)  # raises for an invalid worker here, not at the first task
        if exempt_prefixes is not None:
            raise AuthMisconfigured(
                "exempt_prefixes is not supported: a prefix also exempts unintended paths, as /explorer would exempt "
                "/explorerfoo/message:send. The card, /live, /ready and /health are public at their exact paths; "
                "require_auth=False lets every caller make every request"
            )
        self.agent_card = agent_card
        self.settings = settings or ServerSettings.of()
        if explorer is not None:
            self.settings = replace(self.settings, explorer=explorer)
        if explorer_prefix is not None:
            self.settings = replace(self.settings, explorer_prefix=explorer_prefix)
        if allow_anonymous is not None:
            self.settings = replace(self.settings, allow_anonymous=allow_anonymous)
        self.task_settings = task_settings or TaskSettings.of()
        self._worker = worker
        self._storage = storage
        self._hooks = hooks
        self._middlewares = tuple(middlewares)
        self._retention = retention
        self._dependencies = dependencies
        self._resolver = Resolver(auth, require_auth=require_auth) if auth is not None else None
        self._extended_card = extended_card
        self._admission = admission
        self.card_key = card_key
        self.sealer = Sealer.of(self.settings.secret_key)
        if grpc_port is not None:
            require()  # raises MissingExtra here, not when gRPC starts
        self.grpc_at = None if grpc_port is None else GrpcAddress(grpc_host or "127.0.0.1", grpc_port)
        self.grpc_host = grpc_host  # None: the host of `run`
        self.address = ""
        self.tracing = Tracing.of(tracing)
        self.metrics = Metrics() if self.settings.metrics else None
        self._stack: contextlib.AsyncExitStack | None = None
        self._routes: _Routes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_card: Callable[[], AgentCardConfig] | None = None
        self.app: ASGIApp = Cors(self._serve, self.settings.cors_origins)

    # -------------------------------------------------------------------------------------------------- life cycle

    async def __aenter__(self) -> Self:
        stack = contextlib.AsyncExitStack()
        self._loop = asyncio.get_running_loop()
        self._change_card()
        try:
            engine = await stack.enter_async_context(self._engine())
            if self._resolver is not None:
                stack.push_async_callback(self._resolver.aclose)
            self._routes = _Routes(self, engine)
            if self.agent_card.capabilities.push_notifications:
                await self._deliver(engine, stack)
            if self.grpc_at is not None:
                await self._listen(self.grpc_at, self._routes, stack)
        except BaseException:
            await stack.aclose()
            raise
        self._stack = stack
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.hand_over()
        if self._stack is not None:
            await self._stack.aclose()
        self._stack = self._routes = None

    @property
    def in_memory(self) -> bool:
        """Whether the tasks are in the memory of this process."""
        return isinstance(self._storage, InMemoryStorage) or self._storage in MEMORY

    def _engine(self) -> TaskEngine:
        if self.in_memory:
            logger.warning("tasks are kept in memory and lost when this process ends; storage='sqlite:///…' keeps them")
        options: dict[str, Any] = {
            "settings": self.task_settings,
            "dependencies": self._dependencies,
            "hooks": self._hooks,
            "retention": self._retention,
            "metrics": self.metrics,
            "tracing": self.tracing,
        }
        if isinstance(self._storage, Kernel):
            return TaskEngine(self._storage, self._worker, **options)
        return TaskEngine.on(self._storage, self._worker, **options)

    async def _deliver(self, engine: TaskEngine, stack: contextlib.AsyncExitStack) -> None:
        """Deliver webhooks while the agent runs."""
        deliverer = Deliverer(
            engine.store,
            Poster(loopback=self.settings.webhook_loopback, hosts=self.settings.webhook_hosts),
            settings=DeliverySettings(
                address=self.routes.cards.reached(),
                secret=self.settings.webhook_secret,
                give_up_seconds=self.settings.webhook_give_up_seconds,
                lease_seconds=self.task_settings.lease_seconds,
                heartbeat_seconds=self.task_settings.heartbeat_seconds,
            ),
            key=self.card_key,
            sealer=self.sealer,
            metrics=self.metrics,
            tracing=self.tracing,
        )
        await deliverer.start()
        stack.push_async_callback(deliverer.stop)

    async def _listen(self, at: GrpcAddress, routes: _Routes, stack: contextlib.AsyncExitStack) -> None:
        """Serve gRPC while the agent runs."""
        self._check_exposure(at.host)
        from keelbolt.grpc.server import GrpcServer  # noqa: PLC0415 - an extra; must not be loaded before a fork

        routes.grpc = await stack.enter_async_context(
            GrpcServer(
                at,
                gate=routes.gate,
                dispatcher=routes.dispatcher,
                streams=routes.streams,
                health=routes.health,
                grace_seconds=self.task_settings.drain_seconds,
            )
        )
        routes.cards.grpc_at = routes.grpc.at

    def _check_exposure(self, host: str) -> None:
        """Raise AuthMisconfigured if other machines would reach an agent that authenticates no caller."""
        if self._resolver is not None or self.settings.allow_anonymous or is_loopback_name(host):
            return
        raise AuthMisconfigured(
            f"other machines can reach this agent at {host or 'every address'}, and it does not authenticate callers. "
            "Set up authentication (auth=…, keelbolt serve --auth-key), listen at 127.0.0.1, or allow every caller "
            "with allow_anonymous=True (--allow-anonymous)"
        )

    def replace_card(self, build: Callable[[], AgentCardConfig]) -> None:
        """Replace the card. Thread-safe; of several calls in quick succession, only the last card is built.

        Skills may change. Capabilities and extensions stay as they were at start.
        """
        self._next_card = build
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the agent has stopped
                self._loop.call_soon_threadsafe(self._change_card)

    def _change_card(self) -> None:
        build, self._next_card = self._next_card, None
        if build is None:
            return
        try:
            self.agent_card = build()
        except Exception:
            logger.exception("the new card could not be built; the old card stays in use")
            return
        if self._routes is not None:
            self._routes.cards.replace(self.agent_card)

    def drain(self) -> None:
        """Stop accepting work and end the streams with a retry hint."""
        if self._routes is not None:
            if self._routes.grpc is not None:
                self._routes.grpc.drain()
            self._routes.health.draining = True
            self._routes.streams.closing = True
            self._routes.service.engine.events.close()

    async def hand_over(self) -> None:
        """Drain running tasks, then release the rest. Clients that wait for a task get a response then."""
        self.drain()
        if self._routes is not None and (runner := self._routes.service.engine.runner) is not None:
            await runner.stop()

    @property
    def routes(self) -> _Routes:
        if self._routes is None:
            raise KeelboltError("the agent is not running; use `async with server`, or serve its app with lifespan on")
        return self._routes

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Lifespan for an application that mounts ``app``: ``Starlette(lifespan=server.lifespan, …)``."""
        async with self:
            yield

    # --------------------------------------------------------------------------------------------------------- ASGI

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self.routes.serve(scope, receive, send)
        else:  # a websocket
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.__aenter__()
        except KeelboltError as error:
            logger.error("the agent did not start: %s", error)  # noqa: TRY400 - the message says what to do
            await send({"type": "lifespan.startup.failed"})
            return
        except Exception:
            logger.exception("the agent did not start")
            await send({"type": "lifespan.startup.failed"})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        except asyncio.CancelledError:  # a second Ctrl-C: uvicorn does not wait for the shutdown
            return
        await self.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    def run(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        processes: int = 1,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Serve until SIGTERM or SIGINT. ``ready`` is called with the address once the agent serves there."""
        from keelbolt.server.processes import serve  # noqa: PLC0415 - applications that mount the app need no uvicorn

        serve(self, host=host, port=port, processes=processes, ready=ready)


class _Routes:
    """The components that exist while the agent runs."""

    def __init__(self, server: A2AServer, engine: TaskEngine) -> None:
        self.card_key = server.card_key
        settings, resolver = server.settings, server._resolver  # noqa: SLF001
        self.cards = Cards(
            server.agent_card,
            settings,
            schemes=resolver.schemes if resolver is not None else None,
            optional_auth=resolver is not None and not resolver.require_auth,
            extended=server._extended_card,  # noqa: SLF001
            key=server.card_key,
        )
        self.cards.address = server.address
        self.grpc: GrpcServer | None = None
        self.service = AgentService(engine, self.cards.config, settings, server._admission, server.sealer)  # noqa: SLF001
        self.streams = Streams(
            settings.streams, settings.streams_each, heartbeat_seconds=settings.heartbeat_stream_seconds
        )
        self.health = HealthRoutes(engine, self.streams)
        self.gate = gate = RequestGuard(
            self.cards.config,
            resolver=resolver,
            rates=RequestLimiter(settings.requests_per_second, settings.request_burst),
            logins=LoginLimiter(settings.failed_logins),
            header_bytes=settings.header_bytes,
            protocols=settings.versions,
            trust_proxy=settings.trust_proxy,
        )
        middlewares = server._middlewares  # noqa: SLF001
        dispatcher = Dispatcher(self.service, self.cards, middlewares)
        if server.metrics is not None or server.tracing is not None:
            dispatcher = InstrumentedDispatcher(
                self.service, self.cards, middlewares, metrics=server.metrics, tracing=server.tracing
            )
        self.dispatcher = dispatcher
        self.metrics = MetricsPage(server.metrics, self.health) if server.metrics is not None else None
        self._hosts = HostCheck(settings) if resolver is None else None
        served = settings.explorer is not False
        self.explorer = Explorer(settings.explorer_prefix, settings.explorer_agents) if served else None
        self._explorer_for_all = settings.explorer is True or resolver is not None
        self.jsonrpc = JsonRpc(gate, dispatcher, self.streams)
        self.rest = Rest(gate, dispatcher, self.streams)
        self.operations = OperationsApi(
            gate,
            self.service,
            self.cards,
            self.streams,
            self.health,
            local=resolver is None and settings.operators == "loopback",
        )

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        method = scope["method"]
        if self._hosts is not None:
            try:
                self._hosts.check(scope)
            except ProtocolError as error:
                await self.rest.fail(scope, send, error)
                return
        if path == "/" and method == "POST":
            await self.jsonrpc(scope, receive, send)
        elif path in PATHS and method in ("GET", "HEAD"):
            await self.cards.serve(scope, receive, send)
        elif path == "/live" and method in ("GET", "HEAD"):
            await respond(send, *self.health.live())
        elif path in ("/health", "/ready") and method in ("GET", "HEAD"):
            status, body = await (self.health.health() if path == "/health" else self.health.ready())
            await respond(send, status, body)
        elif path == JWKS_PATH and method == "GET" and self.card_key is not None:
            await serve_jwks(send, self.card_key)
        elif path == "/metrics" and method == "GET" and self.metrics is not None:
            await self.metrics(scope, send)
        elif self.explorer is not None and self.explorer.takes(scope, path) and self._explores(scope):
            await self.explorer(scope, receive, send, path)
        elif self.operations.takes(path):
            await self.operations(scope, receive, send, path)
        else:
            try:
                found = route(method, path)
            except MethodNotFoundError as error:
                await self.rest.fail(scope, send, error)
                return
            if found is None or (path == OLDER_CARD and not self.cards.config.extended_card):
                await self.rest.fail(scope, send, MethodNotFoundError("there is nothing at this path"))
            else:
                await self.rest(scope, receive, send, found)

    def _explores(self, scope: Scope) -> bool:
        """Return whether this client gets the explorer: authenticated clients, or else loopback clients.

        The explorer's files hold no user data; the page reads data through the API like any client.
        """
        return self._explorer_for_all or at_this_machine(scope)
