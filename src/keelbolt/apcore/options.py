"""The arguments of `serve`, `async_serve` and `ApcoreServer`: their names, types, defaults and other sources.

An argument that is not given comes from ``APCORE_A2A_*`` in the environment, then from the section ``apcore-a2a`` of
apcore's configuration, then from `DEFAULTS`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from keelbolt.apcore.access import SYSTEM_ROLES

if TYPE_CHECKING:
    from keelbolt.apcore.task_store import TaskStore
    from keelbolt.auth import Authenticator
    from keelbolt.data.retention import FacePolicy
    from keelbolt.kernel import Kernel
    from keelbolt.server.settings import ServerSettings
    from keelbolt.tasks.settings import TaskSettings
    from keelbolt.tasks.storage import Storage

NAMESPACE = "apcore-a2a"
ENVIRONMENT = "APCORE_A2A_"

Function = TypeVar("Function", bound=Callable[..., Any])


class AgentOptions(TypedDict, total=False):
    """Arguments of `serve` and `async_serve` besides the registry.

    - ``name``, ``description``, ``version``: for the card. Default: ``project`` in apcore's configuration.
    - ``url``: the address of the agent for its card. Default: the address of each request.
    - ``auth``: an authenticator. Without one all callers are anonymous.
    - ``storage``: where tasks are kept. ``"sqlite:///agent.db"``, ``"postgresql://…"`` and ``"redis://…"`` survive the
      process; the default is memory, where ended tasks stay for an hour.
    - ``task_store``: an object with the ten methods of a `TaskStore`, instead of ``storage``.
    - ``cors_origins``: origins whose pages may call the agent.
    - ``push_notifications``: clients may register webhooks.
    - ``explorer``: serve the explorer, at ``explorer_prefix``.
    - ``cancel_on_disconnect``: a client that leaves the stream of its message cancels the task.
    - ``shutdown_timeout``: seconds that running tasks have when the agent stops.
    - ``execution_timeout``: seconds that a module has; None is the default.
    - ``metrics``: serve ``/metrics``.
    - ``default_skill``: the module for messages that name none.
    - ``approval_handler``: decides calls of modules that require approval, instead of the executor's handler;
      `CallerApproves` asks the caller. Without a handler such calls are refused.
    - ``allow_unapproved``: run modules that require approval although there is no approval handler.
    - ``public_errors``: callers see the messages of errors that a module declares public, with ``metadata =
      {"public_errors": True}`` or a list of codes. Without it they see "Internal error".
    - ``sys_modules``: register apcore's ``system.*`` modules.
    - ``system_roles``: an authenticated caller with one of these roles may call ``system.*`` modules; for all other
      callers they do not exist.
    """

    name: str | None
    description: str | None
    version: str | None
    url: str | None
    auth: Authenticator | None
    task_store: TaskStore | None
    storage: str | Storage[Any] | Kernel | None
    cors_origins: Sequence[str] | None
    push_notifications: bool
    explorer: bool
    explorer_prefix: str
    cancel_on_disconnect: bool
    shutdown_timeout: float
    execution_timeout: float | None
    metrics: bool
    default_skill: str | None
    approval_handler: object | None
    allow_unapproved: bool
    public_errors: bool
    sys_modules: bool
    system_roles: Sequence[str]


class ServerOptions(AgentOptions, total=False):
    """Arguments of `ApcoreServer` besides the registry.

    - ``allow_anonymous``: listen on an address that other machines reach although there is no ``auth``.
    - ``watch``: the extensions directory whose changed files are loaded again.
    - ``retention``, ``settings``, ``task_settings``, ``grpc_port``: as in `A2AServer`.
    """

    allow_anonymous: bool | None
    watch: str | os.PathLike[str] | None
    retention: FacePolicy | Sequence[FacePolicy] | None
    settings: ServerSettings | None
    task_settings: TaskSettings | None
    grpc_port: int | None


DEFAULTS: ServerOptions = {
    "name": None,
    "description": None,
    "version": None,
    "url": None,
    "auth": None,
    "task_store": None,
    "storage": None,
    "cors_origins": None,
    "push_notifications": False,
    "explorer": False,
    "explorer_prefix": "/explorer",
    "cancel_on_disconnect": True,
    "shutdown_timeout": 30,
    "execution_timeout": 300,
    "metrics": False,
    "default_skill": None,
    "approval_handler": None,
    "allow_unapproved": False,
    "public_errors": False,
    "sys_modules": False,
    "system_roles": SYSTEM_ROLES,
    "allow_anonymous": None,
    "watch": None,
    "retention": None,
    "settings": None,
    "task_settings": None,
    "grpc_port": None,
}
HOW_TO = "docs/howto/migrate-from-apcore-a2a.md"


def check_names(given: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument that does not exist."""
    if unknown := sorted(given.keys() - DEFAULTS.keys()):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; {HOW_TO} lists the arguments of apcore-a2a")


def settled(
    given: Mapping[str, Any], configured: Callable[[str], Any], environ: Mapping[str, str] = os.environ
) -> ServerOptions:
    """Return all options: from the arguments, then the environment, the configuration, and the defaults.

    Raise ValueError for an invalid value in the environment or the configuration.
    """
    found: ServerOptions = {**DEFAULTS}
    for name, read in _CONFIGURABLE.items():
        variable = f"{ENVIRONMENT}{name.upper()}"
        value = environ.get(variable, "").strip() or configured(f"{NAMESPACE}.{name}")
        if value is not None:
            try:
                found[name] = read(value)  # type: ignore[literal-required]
            except (TypeError, ValueError):
                raise ValueError(f"{NAMESPACE}.{name} ({variable}) is {value!r}, which is not a valid value") from None
    found.update({name: value for name, value in given.items() if value is not None})  # type: ignore[typeddict-item]
    return found


def _flag(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if (found := words.get(str(value).lower())) is None:
        raise ValueError
    return found


def _origins(value: Any) -> tuple[str, ...]:
    found: Iterable[Any] = value.replace(",", " ").split() if isinstance(value, str) else value
    return tuple(str(one) for one in found)


_CONFIGURABLE: dict[str, Callable[[Any], Any]] = {
    "execution_timeout": float,
    "cors_origins": _origins,
    "push_notifications": _flag,
    "explorer": _flag,
    "metrics": _flag,
}
"""The keys of the section ``apcore-a2a`` with their parsers; `keelbolt.apcore.openapi` reads the key ``openapi``."""


def shows(options: type[Any]) -> Callable[[Function], Function]:
    """Show the options with their defaults in the signature of a function that takes them as ``**options``."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name])  # type: ignore[literal-required]
            for name in options.__annotations__
            if name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return decorate
