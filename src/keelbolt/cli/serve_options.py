"""The options of `keelbolt serve`: flags first, then ``KEELBOLT_X``, then (for modules) the plain ``X``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from keelbolt.cli.failure import WrongArguments
from keelbolt.cli.options import log_format_options, log_level_options, retain_option, task_options, variable_of

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_STORAGE = "sqlite:///keelbolt.db"
DEFAULT_EXTENSIONS = "./extensions"

OF_MODULES = (
    "extensions_dir",
    "push_notifications",
    "task_store_ttl",
    "task_store_max",
    "execution_timeout",
    "default_skill",
    "approval",
    "watch",
    "public_errors",
    "system_roles",
    "from_openapi",
    "openapi_base_url",
    "openapi_prefix",
    "openapi_include",
    "openapi_exclude",
    "openapi_headers",
    "openapi_no_deprecated",
)


class ServeCommand(click.Command):
    """Exits with 1 for wrong arguments when serving modules, as for every error before the start."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(_repeated(args, "--cors-origins")))
        except click.UsageError as error:
            if _names_worker(ctx):
                raise
            raise WrongArguments(error.format_message(), error.ctx) from error


class ServeOption(click.Option):
    """An option that is also read from a variable without ``KEELBOLT_``, unless a worker is served.

    Containers of apcore agents are configured by such names; for other programs HOST may mean something else. A
    ``filled`` option must not be empty: an empty value would accept more callers than the operator intended.
    """

    def __init__(
        self, *names: Any, plain: str | None = None, also: str | None = None, filled: bool = False, **options: Any
    ) -> None:
        super().__init__(*names, **options)
        self.plain = plain
        self.also = also
        self.filled = filled

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        found = super().resolve_envvar_value(ctx)
        names = [self.envvar] if isinstance(self.envvar, str) else []
        for name in (self.plain, self.also):
            if name is not None and not _names_worker(ctx):
                names.append(name)
                found = found or os.environ.get(name) or None
        if self.filled:
            for name in names:
                if name in os.environ and not os.environ[name].strip():
                    raise click.UsageError(f"{name} is set but empty; set a value or unset it", ctx)
        return found

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        if self.filled and isinstance(value, str) and not value.strip():
            raise click.UsageError(f"{self.opts[0]} is empty; set a value", ctx)
        return super().process_value(ctx, value)


def _repeated(args: Iterable[str], flag: str) -> Iterator[str]:
    """Yield ``--flag a b`` as ``--flag a --flag b``; click has no option with any number of values."""
    more = False
    for one in args:
        if one == flag:
            more = True
        elif one.startswith("-"):
            more = False
            yield one
        else:
            yield from (flag, one) if more else (one,)


def _names_worker(ctx: click.Context) -> bool:
    return isinstance(ctx.params.get("worker"), str)  # eager: parsed first


def _option(*names: str, plain: str | None = None, **options: Any) -> Callable[[Command], Command]:
    if plain is not None:
        options.setdefault("envvar", f"KEELBOLT_{plain}")
    return click.option(*names, cls=ServeOption, plain=plain, **options)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("worker", metavar="[MODULE:WORKER]", required=False, is_eager=True),
    _option(
        "--extensions-dir",
        plain="EXTENSIONS_DIR",
        metavar="DIR",
        help=f"Serve the apcore modules below this directory.  [default: {DEFAULT_EXTENSIONS}]",
    ),
    _option(
        "--from-openapi",
        metavar="SPEC",
        help="Serve the operations of an OpenAPI document: URL or path (modules). Needs keelbolt[openapi].",
    ),
    _option("--openapi-base-url", metavar="URL", help="Base URL of its operations.  [default: its first server]"),
    _option("--openapi-prefix", metavar="ID", help="Prefix of their ids; required with --extensions-dir."),
    _option("--openapi-include", metavar="REGEX", help="Serve only operations with a matching id."),
    _option("--openapi-exclude", metavar="REGEX", help="Omit operations with a matching id."),
    _option(
        "--openapi-header",
        "openapi_headers",
        multiple=True,
        metavar="KEY:VALUE",
        help="A header for fetching the document, not for its operations; repeatable.",
    ),
    _option("--openapi-no-deprecated", is_flag=True, help="Omit deprecated operations."),
    _option(
        "--storage",
        "url",
        envvar="KEELBOLT_STORAGE",
        metavar="URL",
        help=f"The storage of the tasks.  [default: {DEFAULT_STORAGE}]",
    ),
    _option(
        "--host",
        plain="HOST",
        default="127.0.0.1",
        show_default=True,
        help="The address to listen on. 0.0.0.0 (all addresses) needs --auth-key or --allow-anonymous.",
    ),
    _option(
        "--allow-anonymous",
        envvar="KEELBOLT_ALLOW_ANONYMOUS",
        is_flag=True,
        default=None,
        help="Allow other machines to call the agent without authentication.",
    ),
    _option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="Without authentication: accept this Host name, besides this machine's and --url's; repeatable.",
    ),
    _option(
        "--port",
        plain="PORT",
        type=click.IntRange(0, 65535),
        default=8000,
        show_default=True,
        help="0 uses a free port.",
    ),
    _option(
        "--grpc-port",
        type=click.IntRange(0, 65535),
        help="Serve gRPC on this port, too; 0 uses a free port. Needs keelbolt[grpc].",
    ),
    _option("--grpc-url", metavar="HOST:PORT", help="The gRPC address in the card."),
    _option(
        "--processes",
        type=click.IntRange(1, 64),
        default=1,
        show_default=True,
        help="Number of processes that share the port.",
    ),
    _option("--url", "public_url", metavar="URL", help="The agent's public URL in its card."),
    _option("--name", plain="AGENT_NAME", help="The agent's name, unless a card sets it."),
    _option("--description", plain="AGENT_DESCRIPTION", help="The agent's description, unless a card sets it."),
    _option(
        "--version-str",
        "agent_version",
        plain="AGENT_VERSION",
        metavar="VERSION",
        help="The agent's version, unless a card sets it.",
    ),
    _option("--card", metavar="MODULE:CARD", help="The AgentCardConfig.  [default: MODULE:card, if there is one]"),
    _option("--auth-type", type=click.Choice(["bearer"]), help="Require a JSON Web Token."),
    _option(
        "--auth-key",
        plain="JWT_KEY",
        also="APCORE_JWT_SECRET",
        metavar="KEY",
        filled=True,
        help="The key that verifies tokens: a secret, or the path of a file with a secret, a PEM or a JWK.",
    ),
    _option("--auth-issuer", plain="JWT_ISSUER", metavar="URL", filled=True, help="The required issuer of tokens."),
    _option("--auth-audience", plain="JWT_AUDIENCE", metavar="WORD", filled=True, help="Their required audience."),
    _option(
        "--tenant-claim",
        plain="JWT_TENANT_CLAIM",
        metavar="CLAIM",
        filled=True,
        help="The claim with the caller's tenant; a.b is the claim b within a. Tokens without it are refused.",
    ),
    _option(
        "--push-notifications", plain="PUSH_NOTIFICATIONS", is_flag=True, default=None, help="Allow webhooks (modules)."
    ),
    _option(
        "--explorer/--no-explorer",
        envvar="KEELBOLT_EXPLORER",
        default=None,
        help="Serve the explorer, a web page.  [default: to loopback clients, or with --auth-key; modules: no]",
    ),
    _option(
        "--explorer-prefix",
        envvar="KEELBOLT_EXPLORER_PREFIX",
        metavar="PATH",
        help="The explorer's path.  [default: /explorer]",
    ),
    _option(
        "--task-store-ttl",
        plain="TASK_STORE_TTL",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Retention of ended tasks (modules).",
    ),
    _option(
        "--task-store-max",
        plain="TASK_STORE_MAX",
        type=click.IntRange(1),
        metavar="COUNT",
        help="Maximum number of tasks in memory (modules).",
    ),
    _option(
        "--execution-timeout",
        plain="EXECUTION_TIMEOUT",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="Maximum duration of a module call.  [default: 300]",
    ),
    _option(
        "--drain-seconds",
        "--shutdown-timeout",  # apcore agents' name
        "drain_seconds",
        envvar="KEELBOLT_DRAIN_SECONDS",
        plain="SHUTDOWN_TIMEOUT",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="At shutdown: time for running tasks to end before they are released.  [default: 10; modules: 30]",
    ),
    _option(
        "--cancel-on-disconnect/--no-cancel-on-disconnect",
        envvar="KEELBOLT_CANCEL_ON_DISCONNECT",
        default=None,
        help="Cancel a task when its client closes the stream of its message.  [default: no; modules: yes]",
    ),
    _option("--default-skill", metavar="ID", help="The module for messages that name none (modules)."),
    _option(
        "--approval",
        type=click.Choice(["refuse", "caller", "skip"]),
        default="refuse",
        show_default=True,
        help="For calls that require approval: refuse, ask the caller, or skip the approval (modules).",
    ),
    _option("--watch", is_flag=True, help="Reload files when they change (modules)."),
    _option("--reload", is_flag=True, help="Restart when a Python file below this directory changes (workers)."),
    *(_option(flag, envvar=variable_of(flag), **options) for flag, options in task_options),
    retain_option,
    _option(
        "--public-errors",
        envvar="KEELBOLT_PUBLIC_ERRORS",
        is_flag=True,
        default=None,
        help="Show callers the messages of errors that a module declares public (modules).",
    ),
    _option(
        "--system-role",
        "system_roles",
        envvar="KEELBOLT_SYSTEM_ROLES",
        multiple=True,
        metavar="ROLE",
        help="A role that may call apcore's system modules; repeatable (modules).  [default: operator:all]",
    ),
    _option(
        "--operators",
        type=click.Choice(["none", "loopback"]),
        help="The callers that see all tasks under /keelbolt/v1/; loopback: callers on this machine.  [default: none]",
    ),
    _option("--protocols", metavar="LIST", help="The versions of A2A, comma-separated.  [default: 1.0,0.3]"),
    _option("--metrics", is_flag=True, default=None, help="Serve /metrics."),
    _option(
        "--cors",
        "--cors-origins",  # apcore-a2a's name; takes several values
        "cors_origins",
        multiple=True,
        metavar="ORIGIN",
        help="Allow web pages of this origin to call the agent; repeatable.",
    ),
    _option(
        "--log-level",
        plain="LOG_LEVEL",
        **log_level_options,
    ),
    _option("--log-format", **log_format_options),
)


def serve_options(command: Command) -> Command:
    """Add all options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_together(ctx: click.Context) -> None:
    """Raise UsageError for flags that do not apply to the served kind; such variables are ignored, except PORT."""
    typed = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if not _names_worker(ctx):
        if "card" in typed:
            raise WrongArguments("--card requires MODULE:WORKER; the card of modules is generated", ctx)
        if "reload" in typed:
            raise WrongArguments("--reload requires MODULE:WORKER; use --watch to reload modules", ctx)
    elif ctx.get_parameter_source("port") is ParameterSource.DEFAULT and not (os.environ.get("PORT") or "0").isdigit():
        problem = f"PORT is {os.environ['PORT']!r}, which is not a port number"
        raise click.UsageError(f"{problem}; unset it, or set the worker's port with --port or KEELBOLT_PORT", ctx)
    elif "extensions_dir" in typed:
        raise click.UsageError("give MODULE:WORKER or --extensions-dir, not both", ctx)
    elif wrong := [name for name in OF_MODULES if name in typed]:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise click.UsageError(f"{flags}: only for modules; use --extensions-dir", ctx)
