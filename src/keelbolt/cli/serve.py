"""`keelbolt serve`: serves a worker or apcore modules as a complete A2A agent."""

from __future__ import annotations

import inspect
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from keelbolt.cli.failure import FAILED
from keelbolt.cli.loading import load, load_worker
from keelbolt.cli.options import policies_of
from keelbolt.cli.output import echo
from keelbolt.cli.serve_options import DEFAULT_STORAGE, ServeCommand, check_together, serve_options
from keelbolt.observability.logs import log_to_stderr

if TYPE_CHECKING:
    from keelbolt.auth import Authenticator
    from keelbolt.grpc.address import GrpcAddress
    from keelbolt.protocol.card import AgentCardConfig
    from keelbolt.server.settings import ServerSettings
    from keelbolt.tasks.worker import AnyWorker


@click.command(cls=ServeCommand)
@serve_options
@click.pass_context
def serve(ctx: click.Context, /, **given: Any) -> None:
    """Serve a worker, or apcore modules, as an A2A agent, until SIGTERM or Ctrl-C.

    MODULE:WORKER is a Worker, a subclass of it or an async function; the current directory is on the import path.
    Without it, every apcore module below --extensions-dir is a skill of the agent. Clients use A2A 0.3 or 1.0 over
    JSON-RPC, REST or gRPC. Tasks survive the process and continue after a restart.

    \b
    Example:
      keelbolt serve agent:Echo --storage sqlite:///agent.db --port 8000
      keelbolt serve --extensions-dir ./extensions --auth-type bearer --auth-key key.pem
    """
    check_together(ctx)
    if given["reload"]:
        arguments = sys.argv[1:]
        sys.exit(serve_and_reload([each for each in arguments if each != "--reload"]))
    log_to_stderr(as_json=given["log_format"] == "json", level=given["log_level"])
    if given["worker"] is None:
        from keelbolt.cli.modules import serve_modules

        serve_modules(given)
    else:
        _serve_worker(given)


def listed(text: str | None) -> tuple[str, ...] | None:
    """Return the items of a comma-separated list; None if it was not given."""
    return None if text is None else tuple(item.strip() for item in text.split(",") if item.strip())


def settings_of(given: Mapping[str, Any]) -> ServerSettings:
    """Return the server settings of both kinds of agents."""
    from keelbolt.server.settings import ServerSettings

    return ServerSettings.of(
        url=given["public_url"],
        grpc_url=given["grpc_url"],
        protocols=listed(given["protocols"]),
        metrics=given["metrics"],
        cors_origins=given["cors_origins"] or None,
        allow_anonymous=given["allow_anonymous"],
        allowed_hosts=given["allowed_hosts"] or None,
        operators=given["operators"],
        explorer=given["explorer"],
        explorer_prefix=given["explorer_prefix"],
        cancel_on_disconnect=given["cancel_on_disconnect"],
    )


def auth_of(given: Mapping[str, Any]) -> Authenticator | None:
    """Return the authenticator of the options: callers need a token that this key verifies."""
    from keelbolt.errors import AuthMisconfigured

    key: str | None = given["auth_key"]
    if key is None:
        if given["auth_type"] is not None:
            raise AuthMisconfigured("--auth-key is required when --auth-type is bearer")
        if given["auth_issuer"] or given["auth_audience"] or given["tenant_claim"]:
            raise AuthMisconfigured("--auth-key is required with --auth-issuer, --auth-audience and --tenant-claim")
        return None
    from keelbolt.auth.claims import ClaimMapping
    from keelbolt.auth.jwt import JWTAuthenticator

    claim: str | None = given["tenant_claim"]
    if claim is not None and not all(claim.split(".")):
        raise AuthMisconfigured(
            "--tenant-claim must be the name of a claim, or names joined by dots for a nested claim"
        )
    path = tuple(claim.split(".")) if claim is not None else None
    return JWTAuthenticator(
        key,
        issuer=given["auth_issuer"],
        audience=given["auth_audience"],
        claim_mapping=ClaimMapping(tenant_claim=path),
    )


def task_settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the task engine that both kinds of agents share."""
    return {name: given[name] for name in ("concurrency", "lease_seconds", "double_text")}


def _serve_worker(given: Mapping[str, Any]) -> None:
    from keelbolt.server import A2AServer
    from keelbolt.tasks.settings import TaskSettings

    worker: str = given["worker"]
    found = load_worker(worker)
    server = A2AServer(
        worker=found,
        agent_card=_card(worker, found, given),
        storage=given["url"] or DEFAULT_STORAGE,
        auth=auth_of(given),
        settings=settings_of(given),
        task_settings=TaskSettings.of(**task_settings_of(given), drain_seconds=given["drain_seconds"]),
        retention=policies_of(given["retain"]),
        grpc_port=given["grpc_port"],
    )
    examples = [example for skill in server.agent_card.skills for example in skill.examples or ()]
    try:
        server.run(
            host=given["host"],
            port=given["port"],
            processes=given["processes"],
            ready=lambda address: _tell(
                address,
                (examples or ["Hello"])[0],
                server.grpc_at,
                operators=server.settings.operators == "loopback",
                page="" if server.settings.explorer is False else f"{address}{server.settings.explorer_prefix}",
            ),
        )
    except SystemExit as ended:  # uvicorn's exit codes; its log has the reason
        raise SystemExit(FAILED if ended.code else 0) from None


def _card(reference: str, worker: AnyWorker, given: Mapping[str, Any]) -> AgentCardConfig:
    """Return the card of --card, or the module's own, or one built from the worker and the options."""
    from keelbolt.errors import InvalidValue
    from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig

    card: str | None = given.get("card")
    if card is not None:
        found = load(card)
    else:
        try:
            found = load(f"{reference.partition(':')[0]}:card")
        except InvalidValue:
            found = None
    if isinstance(found, AgentCardConfig):
        return found
    if card is not None:
        raise InvalidValue(f"{card} is not an AgentCardConfig")
    kind: Any = worker if inspect.isfunction(worker) else type(worker)
    description = given.get("description") or inspect.getdoc(kind) or f"The agent {kind.__name__}."
    return AgentCardConfig(
        name=given.get("name") or kind.__name__,
        description=description.splitlines()[0],
        version=given.get("agent_version") or "1.0.0",
        capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
    )


def _tell(address: str, example: str, grpc_at: GrpcAddress | None, *, operators: bool, page: str = "") -> None:
    """Print commands to paste, with message ids that are new on this storage."""
    run = run_tag()
    lines = (
        f"The agent listens at {address}" + (f", gRPC at {grpc_at}" if grpc_at is not None else ""),
        *([f"Explorer, in a browser on this machine: {page}"] if page else []),
        "",
        f"  card:   curl {address}/.well-known/agent-card.json",
        "  send:   " + curl(address, "SendMessage", f"hello-{run}", {"text": "Hello"}),
        "  stream: " + curl(address, "SendStreamingMessage", f"watch-{run}", {"text": example}, "-N "),
        f"  tasks:  curl {address}/tasks",
        *([f"  system: curl {address}/keelbolt/v1/system"] if operators else []),
        "",
        *(["Callers on this machine are operators: do not run the agent behind a proxy.", ""] if operators else []),
        "Messages with the same messageId create one task. Stop the agent with Ctrl-C.",
    )
    echo("\n".join(lines))


# ----------------------------------------------------------------------------------------------------- example commands


def run_tag() -> str:
    """Return a random tag that makes the ids of pasted messages unique on this storage."""
    return secrets.token_hex(3)


AS_BEARER = '-H "Authorization: Bearer $TOKEN" '
"""For agents that require a token; the user sets TOKEN."""


def curl(address: str, method: str, message_id: str, part: dict[str, Any], option: str = "", **more: Any) -> str:
    """Return a curl command that calls an agent over JSON-RPC; ``more`` are members of the message."""
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [part], **more}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}})
    quoted = body.replace("'", "'\\''")
    return f"curl {option}{address}/ -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' -d '{quoted}'"


# --------------------------------------------------------------------------------------------------------------- reload


LOOK_SECONDS = 0.5
DRAIN_SECONDS = "1"  # then running tasks are released and continue in the new process
SKIPPED = {"node_modules", "__pycache__", "venv", "site-packages"}

Seen = dict[str, int]


def serve_and_reload(arguments: list[str]) -> int:
    """Serve with these arguments until SIGINT or SIGTERM; return the exit code."""
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    command = [sys.executable, "-m", "keelbolt", *arguments]
    environment = {"KEELBOLT_DRAIN_SECONDS": DRAIN_SECONDS, **os.environ}
    seen = look(Path.cwd())
    child = subprocess.Popen(command, env=environment)
    echo(f"watching {len(seen)} Python files below {Path.cwd()}", err=True, dim=True)
    failed = False
    while not stopping:
        time.sleep(LOOK_SECONDS)
        if child.poll() is not None and not failed and not stopping:
            failed = True
            echo(f"the agent exited with code {child.returncode}; it restarts when a file changes", err=True, fg="red")
        if (now := look(Path.cwd())) != seen and not stopping:
            changed = ", ".join(sorted(Path(path).name for path, _ in now.items() ^ seen.items())[:3])
            echo(f"{changed} changed; restarting", err=True, dim=True)
            seen, failed = now, False
            if child.poll() is None:
                child.terminate()
                child.wait()
            child = subprocess.Popen(command, env=environment)
    if child.poll() is None:
        child.terminate()
    return max(0, child.wait())  # negative: the signal came before the agent had started


def look(folder: Path) -> Seen:
    """Return the modification time of each Python file below the folder, without hidden folders and libraries."""
    return dict(_files(str(folder)))


def _files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        elif entry.name.endswith(".py"):
            try:
                yield entry.path, entry.stat().st_mtime_ns
            except OSError:  # removed meanwhile
                continue
