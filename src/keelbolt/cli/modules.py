"""`keelbolt serve --extensions-dir` and `keelbolt skills`: serves apcore modules, and lists their skills."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.failure import FAILED, AgentFailed, WrongConfiguration
from keelbolt.cli.options import policies_of
from keelbolt.cli.output import as_json, echo, print_json, print_table
from keelbolt.cli.serve import AS_BEARER, curl, run_tag
from keelbolt.cli.serve_options import DEFAULT_EXTENSIONS, DEFAULT_STORAGE
from keelbolt.errors import ExtensionsError, ExtensionsNotFound, KeelboltError

if TYPE_CHECKING:
    from keelbolt.apcore.catalog import Module
    from keelbolt.apcore.server import ApcoreServer

logger = logging.getLogger("keelbolt.apcore")

SHUTDOWN_SECONDS = 30.0


def serve_modules(given: Mapping[str, Any]) -> None:
    """Serve apcore modules until a signal arrives. Raise CommandFailure.

    The exit code is 0 after SIGTERM or Ctrl-C, 1 if the configuration is invalid (a directory, a module, a key), and 2
    if the agent could not start or failed.
    """
    try:
        server = _server(given)
    except (KeelboltError, TypeError, ValueError) as error:
        raise WrongConfiguration(str(error)) from error
    try:
        server.run(
            host=given["host"],
            port=given["port"],
            processes=given["processes"],
            ready=lambda address: _tell(address, server, AS_BEARER if given["auth_key"] else ""),
        )
    except SystemExit:  # the log has the reason
        raise AgentFailed("the agent did not start; see its log for the cause") from None
    except KeelboltError as error:
        raise AgentFailed(str(error)) from error
    except Exception as error:
        logger.exception("the agent failed")
        raise AgentFailed("the agent failed; see its log for the cause") from error


def _server(given: Mapping[str, Any]) -> ApcoreServer:
    path = given["extensions_dir"] or DEFAULT_EXTENSIONS
    openapi = _openapi(given)
    if given["extensions_dir"] is None and not openapi and not Path(path).is_dir():  # a worker needs no apcore
        raise WrongConfiguration(
            f"{ExtensionsNotFound(path)}; set --extensions-dir, or name a worker as module:name, for example "
            "agent:Echo for Echo in agent.py"
        )
    from keelbolt.apcore.approvals import CallerApproves
    from keelbolt.apcore.server import ApcoreServer
    from keelbolt.cli.serve import auth_of, settings_of, task_settings_of
    from keelbolt.tasks.settings import TaskSettings

    auth = auth_of(given)
    settings = settings_of(given)
    if openapi and given["watch"] and given["extensions_dir"] is None:
        raise ValueError("--watch requires --extensions-dir")
    return ApcoreServer(
        _modules(given["extensions_dir"], openapi) if openapi else path,
        name=given["name"],
        description=given["description"],
        version=given["agent_version"],
        auth=auth,
        push_notifications=given["push_notifications"],
        explorer=given["explorer"],
        explorer_prefix=settings.explorer_prefix,
        cors_origins=given["cors_origins"] or None,
        cancel_on_disconnect=given["cancel_on_disconnect"] is not False,
        shutdown_timeout=given["drain_seconds"] or SHUTDOWN_SECONDS,
        execution_timeout=given["execution_timeout"],
        default_skill=given["default_skill"],
        approval_handler=CallerApproves() if given["approval"] == "caller" else None,
        allow_unapproved=given["approval"] == "skip",
        public_errors=bool(given["public_errors"]),
        **({"system_roles": given["system_roles"]} if given["system_roles"] else {}),
        watch=path if given["watch"] else None,
        settings=settings,
        task_settings=TaskSettings.of(**task_settings_of(given)),
        grpc_port=given["grpc_port"],
        **_kept(given),
    )


def _openapi(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an OpenAPI document: the configuration's, overridden by flags. Empty if there is none."""
    flags = {
        "spec": given["from_openapi"],
        "base_url": given["openapi_base_url"],
        "prefix": given["openapi_prefix"],
        "include": given["openapi_include"],
        "exclude": given["openapi_exclude"],
        "headers": _headers(given["openapi_headers"]),
        "include_deprecated": False if given["openapi_no_deprecated"] else None,
    }
    chosen = {name: value for name, value in flags.items() if value is not None}
    configured: dict[str, Any] = {}
    if find_spec("apcore") is not None:
        from keelbolt.apcore.openapi import configured_settings

        configured = configured_settings()
    found = {**configured, **chosen}
    if found and not found.get("spec"):
        raise ValueError("no OpenAPI document: set --from-openapi or apcore-a2a.openapi.spec")
    return found


def _headers(lines: Sequence[str]) -> dict[str, str] | None:
    """Return the headers of KEY:VALUE lines. The error omits an invalid line, since it may hold a secret."""
    pairs = [line.partition(":") for line in lines]
    if any(not colon or not name.strip() for name, colon, _ in pairs):
        raise ValueError("--openapi-header must be KEY:VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs} or None


def _modules(path: str | None, openapi: Mapping[str, Any]) -> object:
    """Return the modules of an OpenAPI document, and those of a directory if one is given."""
    from keelbolt.apcore.extensions import load_extensions
    from keelbolt.apcore.openapi import from_settings

    if path is None:
        return from_settings(openapi)
    found = load_extensions(path)
    from_settings(openapi, found.registry)
    return found


def _kept(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the storage of tasks and its retention."""
    from keelbolt.apcore.task_store import InMemoryTaskStore
    from keelbolt.kernel.urls import MEMORY
    from keelbolt.tasks.settings import RetentionPolicy

    url, ttl, most = given["url"], given["task_store_ttl"], given["task_store_max"]
    in_memory = url in MEMORY or (url is None and (ttl is not None or most is not None))
    if in_memory and given["processes"] > 1:
        raise ValueError("several processes need a shared storage; set one with --storage")
    if in_memory and (ttl is not None or most is not None):
        bounds = {"ttl_seconds": ttl, "max_capacity": most}
        return {"task_store": InMemoryTaskStore(**{name: each for name, each in bounds.items() if each is not None})}
    if most is not None:
        logger.warning("--task-store-max (TASK_STORE_MAX) is ignored: it limits tasks in memory only")
    policies = policies_of(given["retain"])
    if ttl is not None:
        if any(policy.face == RetentionPolicy.face for policy in policies):
            raise ValueError("--retain and --task-store-ttl both set the retention of tasks; use only one")
        policies.append(RetentionPolicy(completed=ttl, failed=ttl, canceled=ttl, rejected=ttl))
    return {"storage": url or DEFAULT_STORAGE, "retention": policies}


def _tell(address: str, server: ApcoreServer, option: str) -> None:
    """Print commands to paste."""
    shown = {skill.id for skill in server.agent_card.skills}
    modules = [module for module in server.catalog.modules.values() if module.id in shown]
    count = len(server.catalog)
    lines = [f"The agent listens at {address}, with {count} skill{'' if count == 1 else 's'}", ""]
    lines.append(f"  card:     curl {address}/.well-known/agent-card.json")
    if modules:
        lines.append(f"  call:     {_call(address, min(modules, key=_caution_key), option)}")
    if server.settings.explorer:
        lines.append(f"  explorer: {address}{server.settings.explorer_prefix}/")
    else:
        lines.append("  explorer: off; start the agent with --explorer")
    echo("\n".join([*lines, "", "Stop the agent with Ctrl-C."]))


def _caution_key(module: Module) -> tuple[bool, bool, bool]:
    """Return a sort key: harmless modules first, then read-only ones, then those with an example."""
    annotations = ((module.skill.extensions or {}).get("apcore") or {}).get("annotations") or {}
    return (
        module.requires_approval or module.only_once,
        not annotations.get("readonly"),
        not getattr(module.descriptor, "examples", None),
    )


def _call(address: str, module: Module, option: str) -> str:
    from keelbolt.apcore.schemas import sample_input

    examples = getattr(module.descriptor, "examples", None) or ()
    inputs = examples[0].inputs if examples else sample_input(module.input_schema)
    metadata = {"skillId": module.id}
    return curl(address, "SendMessage", f"try-{run_tag()}", {"data": inputs}, option, metadata=metadata)


# --------------------------------------------------------------------------------------------------------------- skills


@click.command()
@click.option(
    "--extensions-dir",
    envvar=["KEELBOLT_EXTENSIONS_DIR", "EXTENSIONS_DIR"],
    default=DEFAULT_EXTENSIONS,
    show_default=True,
    metavar="DIR",
    help="The directory of the apcore modules.",
)
@as_json
def skills(extensions_dir: str, json_output: bool) -> None:
    """List the skills that `keelbolt serve --extensions-dir` would serve, and the problems of other modules.

    This command loads the modules: it executes their files. The exit code is 1 if there is a problem.

    \b
    Example:
      keelbolt skills --extensions-dir ./extensions
    """
    from keelbolt.apcore.catalog import SkillCatalog
    from keelbolt.apcore.extensions import load_extensions

    try:
        found = load_extensions(extensions_dir, tell=False)
    except ExtensionsError as error:
        raise WrongConfiguration(str(error)) from error
    modules = list(SkillCatalog(found.registry).modules.values())
    left_out = [
        f"{module_id}: no description; add one to the module"
        for module_id in found.registry.list()
        if module_id not in {module.id for module in modules}
    ]
    problems = [*found.problems, *left_out]
    if json_output:
        print_json({"skills": [_skill(module) for module in modules], "problems": problems})
    else:
        rows = [(module.id, module.skill.name, _about(module), module.skill.description) for module in modules]
        print_table(("skill", "name", "properties", "description"), rows)
        for problem in problems:
            echo(f"problem: {problem}", err=True)
    if problems:
        raise SystemExit(FAILED)


def _skill(module: Any) -> dict[str, Any]:
    found: dict[str, Any] = module.skill.model_dump(mode="json", exclude_none=True)
    return {**found, "streams": module.streams, "requiresApproval": module.requires_approval}


def _about(module: Any) -> str:
    words = {"streams": module.streams, "needs approval": module.requires_approval}
    return ", ".join(word for word, true in words.items() if true) or "-"
