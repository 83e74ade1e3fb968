"""`holdfast serve`: a worker, served as a complete A2A agent."""

from __future__ import annotations

import inspect
import json
import secrets
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.loading import load, load_worker
from holdfast.observability.logs import LEVELS, log_to_stderr

if TYPE_CHECKING:
    from holdfast.grpc.address import Address
    from holdfast.protocol.card import AgentCardConfig
    from holdfast.tasks.worker import AnyWorker

DEFAULT_STORAGE = "sqlite:///holdfast.db"


@click.command()
@click.argument("worker", metavar="MODULE:WORKER")
@click.option(
    "--storage",
    "url",
    envvar="HOLDFAST_STORAGE",
    default=DEFAULT_STORAGE,
    show_default=True,
    metavar="URL",
    help="Where tasks are kept.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines in.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    help="Serve gRPC too, at this port; 0 takes a free one. Needs holdfast[grpc].",
)
@click.option("--grpc-url", metavar="HOST:PORT", help="Where clients reach gRPC, for the card.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="They share the port.")
@click.option("--url", "public_url", metavar="URL", help="Where clients reach the agent, for its card.")
@click.option("--name", help="The agent's name, when the module has no card.")
@click.option("--card", metavar="MODULE:CARD", help="The AgentCardConfig.  [default: MODULE:card, if there is one]")
@click.option("--concurrency", type=int, help="How many tasks run at once in a process.  [default: 100]")
@click.option(
    "--operators",
    type=click.Choice(["none", "loopback"]),
    help="Who sees everybody's tasks under /holdfast/v1/; loopback: who sits at this machine.  [default: none]",
)
@click.option("--metrics", is_flag=True, default=None, help="Serve /metrics.")
@click.option(
    "--cors", "cors_origins", multiple=True, metavar="ORIGIN", help="A page of this origin may call the agent."
)
@click.option(
    "--log-level",
    envvar="HOLDFAST_LOG_LEVEL",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="How much is told on stderr.",
)
@click.option("--json", "json_output", is_flag=True, help="Log JSON, a line each, for programs.")
def serve(
    worker: str,
    url: str,
    host: str,
    port: int,
    grpc_port: int | None,
    grpc_url: str | None,
    processes: int,
    public_url: str | None,
    name: str | None,
    card: str | None,
    concurrency: int | None,
    operators: str | None,
    metrics: bool | None,
    cors_origins: tuple[str, ...],
    log_level: str,
    json_output: bool,
) -> None:
    """Serve this worker as an A2A agent, until SIGTERM or Ctrl-C.

    MODULE:WORKER names a Worker, a class of it or an async function; modules are also looked for in the current
    directory. Clients speak A2A 0.3 or 1.0 to it, by JSON-RPC, REST or gRPC. Tasks survive the process: start it
    again, and they go on.

    \b
    Example:
      holdfast serve agent:Echo --storage sqlite:///agent.db --port 8000
    """
    from holdfast.server import A2AServer
    from holdfast.server.settings import ServerSettings
    from holdfast.tasks.settings import TaskSettings

    log_to_stderr(as_json=json_output, level=log_level)
    found = load_worker(worker)
    server = A2AServer(
        worker=found,
        agent_card=_card(worker, found, card, name),
        storage=url,
        settings=ServerSettings.of(
            url=public_url,
            grpc_url=grpc_url,
            metrics=metrics,
            cors_origins=cors_origins or None,
            operators=operators,
        ),
        task_settings=TaskSettings.of(concurrency=concurrency),
        grpc_port=grpc_port,
    )
    examples = [example for skill in server.agent_card.skills for example in skill.examples or ()]
    server.run(
        host=host,
        port=port,
        processes=processes,
        ready=lambda address: _tell(
            address,
            (examples or ["Hello"])[0],
            server.grpc_at,
            operators=server.settings.operators == "loopback",
        ),
    )


def _card(reference: str, worker: AnyWorker, card: str | None, name: str | None) -> AgentCardConfig:
    """The card that is named, the module's own, or one made from the worker."""
    from holdfast.errors import InvalidValue
    from holdfast.protocol.card import AgentCardConfig, CapabilitiesConfig

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
        raise InvalidValue(f"{card} is no AgentCardConfig")
    kind: Any = worker if inspect.isfunction(worker) else type(worker)
    description = inspect.getdoc(kind) or f"The agent {kind.__name__}."
    return AgentCardConfig(
        name=name or kind.__name__,
        description=description.splitlines()[0],
        capabilities=CapabilitiesConfig(streaming=True, push_notifications=True),
    )


def _tell(address: str, example: str, grpc_at: Address | None, *, operators: bool) -> None:
    """What to try, in lines that can be pasted; with ids that no agent on this storage was sent before."""
    run = secrets.token_hex(3)
    lines = (
        f"The agent listens at {address}" + (f", and by gRPC at {grpc_at}" if grpc_at is not None else ""),
        "",
        f"  its card:      curl {address}/.well-known/agent-card.json",
        "  say hello:     " + _curl(address, "SendMessage", f"hello-{run}", "Hello"),
        "  watch it work: " + _curl(address, "SendStreamingMessage", f"watch-{run}", example, "-N "),
        f"  its tasks:     curl {address}/tasks",
        *([f"  its inside:    curl {address}/holdfast/v1/system"] if operators else []),
        "",
        *(["Whoever sits at this machine is its operator: put no proxy before it.", ""] if operators else []),
        "A message that is sent twice (the same messageId) is one task. Stop the agent with Ctrl-C.",
    )
    click.echo("\n".join(lines))


def _curl(address: str, method: str, message_id: str, text: str, option: str = "") -> str:
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}})
    quoted = body.replace("'", "'\\''")
    return f"curl {option}{address}/ -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' -d '{quoted}'"
