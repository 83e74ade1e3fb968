"""``serve(registry)``: every module of an apcore registry is a skill of an A2A agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount

from keelbolt.apcore.access import SYSTEM_ROLES
from keelbolt.apcore.server import ApcoreServer
from keelbolt.apcore.task_store import TaskStore
from keelbolt.auth import Authenticator
from keelbolt.observability.logs import LEVELS, log_to_stderr
from keelbolt.storage import Kernel
from keelbolt.tasks.storage import Storage


def serve(
    registry_or_executor: object,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    description: str | None = None,
    version: str | None = None,
    url: str | None = None,
    auth: Authenticator | None = None,
    task_store: TaskStore | None = None,
    storage: str | Storage[Any] | Kernel | None = None,
    cors_origins: Sequence[str] | None = None,
    push_notifications: bool = False,
    explorer: bool = False,
    explorer_prefix: str = "/explorer",
    cancel_on_disconnect: bool = True,
    shutdown_timeout: float = 30,
    execution_timeout: float = 300,
    log_level: str | None = None,
    metrics: bool = False,
    default_skill: str | None = None,
    approval_handler: object | None = None,
    allow_unapproved: bool = False,
    public_errors: bool = False,
    system_roles: Sequence[str] = SYSTEM_ROLES,
    allow_anonymous: bool | None = None,
) -> None:
    """Serve modules as an A2A agent, until SIGTERM or SIGINT.

    ``registry_or_executor`` is an apcore Registry, an Executor (with its ACL, middleware and approval handler), an
    APCore client, or the path of an extensions directory.

    - ``name``, ``description``, ``version``: for the card; else what apcore's configuration has under ``project``.
    - ``url``: where clients reach the agent, for the card; else as each request says.
    - ``storage``: where tasks are kept. ``"sqlite:///agent.db"``, ``"postgresql://…"`` and ``"redis://…"`` survive the
      process, so that its tasks go on; without it they are kept in memory, ended ones for an hour.
    - ``task_store``: an object with the ten methods of a `TaskStore` in its place.
    - ``push_notifications``: clients may register webhooks.
    - ``explorer``: a page for people, at ``explorer_prefix``.
    - ``cancel_on_disconnect``: a client that leaves the stream of its message cancels the task.
    - ``shutdown_timeout``: so many seconds running tasks have, once the agent is told to stop.
    - ``execution_timeout``: so many seconds a module has.
    - ``metrics``: nine numbers at ``/metrics``.
    - ``default_skill``: the module for messages that name none.
    - ``approval_handler``: who approves calls of modules that require it, in the place of whom the executor has;
      `CallerApproves` asks the caller. Without anybody such calls are refused.
    - ``allow_unapproved``: run modules that require approval though no approval handler is there.
    - ``public_errors``: callers see the messages of errors that a module declares public, with
      ``metadata = {"public_errors": True}`` or a list of codes. Without it they see "Internal error".
    - ``system_roles``: an authenticated caller with one of these roles may call apcore's ``system.*`` modules; for all
      other callers they do not exist.
    - ``allow_anonymous``: listen where other machines reach the agent though it has no ``auth``.
    """
    if log_level is not None:
        if log_level.lower() not in LEVELS:
            raise ValueError(f"log_level is one of {', '.join(LEVELS)}, not {log_level!r}")
        log_to_stderr(as_json=False, level=log_level)
    ApcoreServer(
        registry_or_executor,
        name=name,
        description=description,
        version=version,
        url=url,
        auth=auth,
        task_store=task_store,
        storage=storage,
        cors_origins=cors_origins,
        push_notifications=push_notifications,
        explorer=explorer,
        explorer_prefix=explorer_prefix,
        cancel_on_disconnect=cancel_on_disconnect,
        shutdown_timeout=shutdown_timeout,
        execution_timeout=execution_timeout,
        metrics=metrics,
        default_skill=default_skill,
        approval_handler=approval_handler,
        allow_unapproved=allow_unapproved,
        public_errors=public_errors,
        system_roles=system_roles,
        allow_anonymous=allow_anonymous,
    ).run(host=host, port=port)


async def async_serve(
    registry_or_executor: object,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str | None = None,
    url: str | None = None,
    auth: Authenticator | None = None,
    task_store: TaskStore | None = None,
    storage: str | Storage[Any] | Kernel | None = None,
    cors_origins: Sequence[str] | None = None,
    push_notifications: bool = False,
    explorer: bool = False,
    explorer_prefix: str = "/explorer",
    cancel_on_disconnect: bool = True,
    shutdown_timeout: float = 30,
    execution_timeout: float = 300,
    metrics: bool = False,
    default_skill: str | None = None,
    approval_handler: object | None = None,
    allow_unapproved: bool = False,
    public_errors: bool = False,
    system_roles: Sequence[str] = SYSTEM_ROLES,
) -> Starlette:
    """The same agent as an ASGI application, for any ASGI server, or to be mounted in another application.

    app = await async_serve(registry)

    The agent starts and stops with the application's lifespan. Where it is mounted and the outer application passes on
    none, it starts with the first request and runs until the process ends; tasks that run then are taken up by the next
    process, as after a crash. To stop it in order, pass the lifespan on:
    ``Starlette(lifespan=app.state.server.lifespan, routes=[Mount("/agent", app)])``.
    """
    server = ApcoreServer(
        registry_or_executor,
        name=name,
        description=description,
        version=version,
        url=url,
        auth=auth,
        task_store=task_store,
        storage=storage,
        cors_origins=cors_origins,
        push_notifications=push_notifications,
        explorer=explorer,
        explorer_prefix=explorer_prefix,
        cancel_on_disconnect=cancel_on_disconnect,
        shutdown_timeout=shutdown_timeout,
        execution_timeout=execution_timeout,
        metrics=metrics,
        default_skill=default_skill,
        approval_handler=approval_handler,
        allow_unapproved=allow_unapproved,
        public_errors=public_errors,
        system_roles=system_roles,
    )
    app = Starlette(lifespan=server.lifespan, routes=[Mount("/", app=server.serve_mounted)])
    app.state.server = server
    return app
