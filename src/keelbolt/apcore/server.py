"""An A2A agent whose skills are apcore modules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from keelbolt.apcore.card import AgentCardBuilder
from keelbolt.apcore.catalog import SkillCatalog
from keelbolt.apcore.errors_map import sanitized
from keelbolt.apcore.extensions import ExtensionsWatch
from keelbolt.apcore.options import AgentOptions, ServerOptions, check_names, settled, shows
from keelbolt.apcore.resolve import add_system_modules, check_methods, resolve
from keelbolt.apcore.task_storage import TaskStoreStorage
from keelbolt.apcore.task_store import METHODS
from keelbolt.apcore.worker import ApcoreWorker
from keelbolt.kernel import Kernel
from keelbolt.kernel.urls import MEMORY
from keelbolt.observability.logs import LEVELS, log_to_stderr
from keelbolt.server import A2AServer
from keelbolt.server.settings import ServerSettings
from keelbolt.tasks.settings import RetentionPolicy, TaskSettings
from keelbolt.tasks.storage import Storage

logger = logging.getLogger("keelbolt.apcore")

AUTHENTICATES = ("authenticate", "security_schemes")
HANDLES = ("request_approval", "check_approval")
TTL_SECONDS = 3600.0  # retention of ended tasks in memory


class ApcoreServer(A2AServer):
    """A complete A2A agent around an apcore registry or executor; its card follows the registry.

    server = ApcoreServer(registry, storage="sqlite:///agent.db")
    server.run(port=8000)

    The arguments are those of `keelbolt.apcore.options.ServerOptions`.
    """

    @shows(ServerOptions)
    def __init__(self, registry_or_executor: object, **options: Unpack[ServerOptions]) -> None:
        check_names(options)
        auth, approval_handler = options.get("auth"), options.get("approval_handler")
        if auth is not None:
            check_methods(auth, "Authenticator", AUTHENTICATES)
        self.kept = _storage(options.get("task_store"), options.get("storage"))
        resolved = resolve(registry_or_executor)
        given = settled(options, resolved.configured)
        shutdown_timeout, execution_timeout = given["shutdown_timeout"], given["execution_timeout"]
        _positive(shutdown_timeout=shutdown_timeout, execution_timeout=execution_timeout)
        assert execution_timeout is not None  # None is replaced by the default
        if given["sys_modules"]:
            add_system_modules(resolved)
        if approval_handler is not None:
            check_methods(approval_handler, "ApprovalHandler", HANDLES)
            resolved.executor.set_approval_handler(approval_handler)
        self.catalog = SkillCatalog(resolved.registry)
        default_skill = given["default_skill"]
        if default_skill is not None and self.catalog.get(default_skill) is None:
            known = ", ".join(self.catalog.modules) or "none"
            raise ValueError(f"default_skill {default_skill} is not a served module; the modules are {known}")
        project = resolved.project(given["name"], given["description"], given["version"])
        self.modules = worker = ApcoreWorker(
            self.catalog,
            resolved.executor,
            execution_timeout=execution_timeout,
            default_skill=default_skill,
            allow_unapproved=given["allow_unapproved"],
            public_errors=given["public_errors"],
            system_roles=_roles(given["system_roles"]),
        )
        self.builder = AgentCardBuilder(
            self.catalog,
            name=project.name,
            version=project.version,
            description=project.description,
            access=worker.access,
            push_notifications=given["push_notifications"],
            authenticated=auth is not None,
        )
        settings = given["settings"] or ServerSettings.of()
        task_settings = given["task_settings"] or TaskSettings.of()
        origins = options.get("cors_origins")
        super().__init__(
            worker=worker,
            admission=worker.admission,
            agent_card=self.builder.build(),
            extended_card=self.builder.extended if auth is not None else None,
            storage=self.kept,
            auth=auth,
            retention=given["retention"] or (_ended_after(TTL_SECONDS) if self.kept in MEMORY else None),
            explorer=given["explorer"],
            explorer_prefix=given["explorer_prefix"],
            allow_anonymous=given["allow_anonymous"],
            settings=replace(
                settings,
                url=settings.url if given["url"] is None else given["url"],
                cors_origins=tuple(
                    (settings.cors_origins or given["cors_origins"] or ()) if origins is None else origins
                ),
                metrics=given["metrics"] or settings.metrics,
                cancel_on_disconnect=given["cancel_on_disconnect"],
                cancel_words=settings.cancel_words or "Canceled by client",
            ),
            task_settings=replace(
                task_settings,
                drain_seconds=float(shutdown_timeout),
                no_progress_seconds=max(task_settings.no_progress_seconds, execution_timeout * 2.0),
            ),
            grpc_port=given["grpc_port"],
        )
        self._watch = (
            ExtensionsWatch(Path(watch), resolved.registry, worker.keeping)
            if (watch := given["watch"]) is not None
            else None
        )
        self._entered = False
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._entered = True
        await super().__aenter__()
        self.routes.health.facts = self._facts
        if self.routes.metrics is not None:
            self.routes.metrics.json_first = True
        self.catalog.on_change(self._card_changed)
        if self._watch is not None:
            self._watch.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._watch is not None:
            await self._watch.stop()
        self.catalog.close()
        try:
            await super().__aexit__(kind, error, at)
        finally:
            self.modules.close()

    async def serve_mounted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve as `app` does, and start the agent on the first request unless a lifespan has started it.

        An application that mounts this one may pass on no lifespan. The agent then runs until the process ends.
        """
        if scope["type"] == "http" and not self._entered:
            async with self._starting:
                if not self._entered:
                    await self._start_late()
        await self.app(scope, receive, send)

    async def _start_late(self) -> None:
        logger.info("no lifespan event started the agent: it starts with this request and runs until the process ends")
        try:
            await self.__aenter__()
        except BaseException:
            self._entered = False  # the next request tries again
            raise

    def _card_changed(self) -> None:
        logger.info("modules changed: %d skills", len(self.catalog))
        self.replace_card(self.builder.build)

    async def _facts(self, good: bool, detail: str) -> tuple[bool, dict[str, Any]]:  # noqa: FBT001 - Health's signature
        if not good:
            return False, {"status": "unhealthy", "reason": f"Task store health check failed: {sanitized(detail)}"}
        uptime = self.routes.health.uptime()
        return True, {"status": "healthy", "module_count": len(self.catalog), "uptime_seconds": uptime}


def _storage(task_store: object, storage: str | Storage[Any] | Kernel | None) -> str | Storage[Any] | Kernel:
    """Return the storage for tasks: an adapter for the task store, the given storage, or memory."""
    if task_store is not None and storage is not None:
        raise ValueError("pass task_store or storage, not both")
    if task_store is None:
        return storage if storage is not None else "memory"
    if isinstance(task_store, str | Storage | Kernel):
        return task_store
    check_methods(task_store, "TaskStore", METHODS)
    store: Any = task_store
    return TaskStoreStorage(store)


def _roles(given: Sequence[str]) -> Sequence[str]:
    if isinstance(given, str):
        raise TypeError("system_roles must be a list of role names, not a string")
    return given


def _ended_after(seconds: float) -> RetentionPolicy:
    return RetentionPolicy(completed=seconds, failed=seconds, canceled=seconds, rejected=seconds)


def _positive(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")


# -------------------------------------------------------------------------------------------------------------- serving


@shows(AgentOptions)
def serve(
    registry_or_executor: object,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str | None = None,
    allow_anonymous: bool | None = None,
    **options: Unpack[AgentOptions],
) -> None:
    """Serve modules as an A2A agent, until SIGTERM or SIGINT.

    ``registry_or_executor`` is an apcore Registry, an Executor (with its ACL, middleware and approval handler), an
    APCore client, or the path of an extensions directory. `keelbolt.apcore.options.AgentOptions` describes the other
    arguments. ``allow_anonymous`` permits a host that other machines reach although there is no ``auth``.
    """
    if log_level is not None:
        if log_level.lower() not in LEVELS:
            raise ValueError(f"log_level must be one of {', '.join(LEVELS)}, not {log_level!r}")
        log_to_stderr(as_json=False, level=log_level)
    ApcoreServer(registry_or_executor, allow_anonymous=allow_anonymous, **options).run(host=host, port=port)


@shows(AgentOptions)
async def async_serve(registry_or_executor: object, **options: Unpack[AgentOptions]) -> Starlette:
    """Return the same agent as an ASGI application, for any ASGI server or to be mounted in another application.

    app = await async_serve(registry)

    The agent starts and stops with the application's lifespan. If it is mounted in an application that passes on no
    lifespan, it starts with the first request and runs until the process ends; the next process takes over the tasks
    that run then, as after a crash. To stop it in order, pass the lifespan on:
    ``Starlette(lifespan=app.state.server.lifespan, routes=[Mount("/agent", app)])``.
    """
    server = ApcoreServer(registry_or_executor, **options)
    app = Starlette(lifespan=server.lifespan, routes=[Mount("/", app=server.serve_mounted)])
    app.state.server = server
    return app
