"""``serve(registry)``: every module of an apcore registry is a skill of an A2A agent."""

from __future__ import annotations

from typing import Unpack

from starlette.applications import Starlette
from starlette.routing import Mount

from keelbolt.apcore.options import AgentOptions, shows
from keelbolt.apcore.server import ApcoreServer
from keelbolt.observability.logs import LEVELS, log_to_stderr


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
