"""`keelbolt card|send|stream|get|cancel URL`: talk to any A2A agent from a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keelbolt.cli.agent_output import UNFINISHED, Teller, print_answer, print_card, print_task_json
from keelbolt.cli.output import as_json, echo, print_json

if TYPE_CHECKING:
    from keelbolt.client import A2AClient, Reconnect

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--token", envvar="KEELBOLT_TOKEN", help="A bearer token, sent to the agent of this URL alone."),
    click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header more, as for API keys."),
    click.option("--binding", type=click.Choice(["JSONRPC", "HTTP+JSON", "GRPC"]), help="Speak this binding alone."),
    click.option("--protocol", type=click.Choice(["1.0", "0.3"]), help="Speak this version of A2A alone."),
    click.option(
        "--trusted-origin",
        "trusted_origins",
        multiple=True,
        metavar="URL",
        help="Another origin that may see the token and the headers, where the card leads to one.",
    ),
    click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds to wait for an answer."),
)


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent that a command calls."""

    url: str
    options: dict[str, Any]

    @asynccontextmanager
    async def opened(self, **more: Any) -> AsyncIterator[A2AClient]:
        from keelbolt.client import A2AClient

        try:
            client = A2AClient(self.url, **self.options, **more)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="URL") from None
        async with client:
            yield client


def calls_agent(command: F) -> F:
    """The argument URL, and the options of all commands that call an agent."""

    @wraps(command)
    def run(
        url: str,
        token: str | None,
        headers: tuple[str, ...],
        binding: str | None,
        protocol: str | None,
        trusted_origins: tuple[str, ...],
        timeout: float,
        **given: Any,
    ) -> Any:
        options: dict[str, Any] = {
            "auth": token or None,
            "headers": _headers(headers),
            "trusted_origins": trusted_origins,
            "timeout": timeout,
        }
        if binding is not None:
            options["bindings"] = [binding]
        if protocol is not None:
            options["versions"] = [protocol]
        return command(Agent(url, options), **given)

    decorated: Any = run
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return click.argument("url")(decorated)  # type: ignore[no-any-return]


_messages = (
    click.option("--task", "task_id", help="Go on with this task."),
    click.option("--context", "context_id", help="Belong to this conversation."),
    click.option("--message-id", help="The message's own id (default: a new one)."),
    click.option("--idempotency-key", metavar="KEY", help="A send that is repeated with this key is one task."),
    click.option("--skill", metavar="ID", help="Of an agent of modules: which of its skills is meant."),
)


def says_something(command: F) -> F:
    decorated: Any = command
    for option in reversed(_messages):
        decorated = option(decorated)
    return click.argument("text")(decorated)  # type: ignore[no-any-return]


@click.command()
@calls_agent
@click.option("--extended", is_flag=True, help="The card that the agent shows to those it knows.")
@as_json
def card(agent: Agent, extended: bool, json_output: bool) -> None:
    """Show what an agent says about itself.

    \b
    Example:
      keelbolt card http://localhost:8000
    """

    async def fetch() -> dict[str, Any]:
        async with agent.opened() as client:
            found: dict[str, Any] = await (client.get_extended_card() if extended else client.discover())
            return found

    found = _run(fetch())
    if json_output:
        print_json(found)
    else:
        print_card(found)


@click.command()
@calls_agent
@says_something
@click.option("--no-wait", is_flag=True, help="Answer with the task at once, not when its turn is over.")
@as_json
def send(agent: Agent, text: str, no_wait: bool, json_output: bool, **ids: Any) -> None:
    """Send TEXT (- reads it from stdin) to an agent, and print its answer.

    The answer goes to stdout; the task's id and state go to stderr. The exit code is 0 when the task completed, 1 when
    it failed or was canceled, 3 when it was rejected, 4 when it is unfinished: at work, or waiting for an answer.

    \b
    Example:
      keelbolt send http://localhost:8000 "Hello"
    """

    async def ask() -> Any:
        async with agent.opened() as client:
            await _check_skill(agent, client, ids["skill"])
            return await client.send_message(_text(text), return_immediately=no_wait, **ids)

    answer = _run(ask())
    code = print_answer(answer, agent.url, json_output=json_output)
    sys.exit(0 if no_wait and code == UNFINISHED else code)


@click.command()
@calls_agent
@says_something
@as_json
def stream(agent: Agent, text: str, json_output: bool, **ids: Any) -> None:
    """Send TEXT (- reads it from stdin) to an agent, and print what it says while it works.

    A connection that breaks is opened again, and continues where it was. Ctrl-C leaves; the task goes on. The exit code
    is that of "keelbolt send".

    \b
    Example:
      keelbolt stream http://localhost:8000 "count to 5"
    """
    teller = Teller(agent.url, json_output=json_output)

    def again(reconnect: Reconnect) -> None:
        teller.note(f"{reconnect.cause}; connecting again in {reconnect.seconds:.1f} s")

    async def follow() -> None:
        async with agent.opened(on_reconnect=again) as client:
            await _check_skill(agent, client, ids["skill"])
            async with aclosing(client.stream_message(_text(text), **ids)) as events:
                async for event in events:
                    teller.show(event)

    try:
        _run(follow())
    except KeyboardInterrupt:
        teller.left()
    sys.exit(teller.end())


@click.command()
@calls_agent
@click.argument("task")
@click.option("--history", type=click.IntRange(0), metavar="N", help="At most so many messages of its history.")
@as_json
def get(agent: Agent, task: str, history: int | None, json_output: bool) -> None:
    """Show a task of an agent.

    \b
    Example:
      keelbolt get http://localhost:8000 0198c2f4-7d6b-7000-8000-0123456789ab
    """

    async def load() -> Any:
        async with agent.opened() as client:
            return await client.get_task(task, history_length=history)

    found = _run(load())
    if json_output:
        print_task_json(found)
    else:
        print_answer(found, agent.url, json_output=False)


@click.command()
@calls_agent
@click.argument("task")
@as_json
def cancel(agent: Agent, task: str, json_output: bool) -> None:
    """Cancel a task of an agent.

    \b
    Example:
      keelbolt cancel http://localhost:8000 0198c2f4-7d6b-7000-8000-0123456789ab
    """

    async def end() -> Any:
        async with agent.opened() as client:
            return await client.cancel_task(task)

    found = _run(end())
    if json_output:
        print_task_json(found)
    else:
        echo(f"{found.id} is {found.status.state.name}")


async def _check_skill(agent: Agent, client: A2AClient, skill: str | None) -> None:
    """Raise InvalidValue for a skill that the agent does not have, as far as its card says.

    A card without skills allows any. A caller with credentials may see more than the public card lists: without an
    extended card, the agent decides.
    """
    if skill is None:
        return
    from keelbolt.errors import A2AClientError, InvalidValue

    cards = [await client.discover()]
    if agent.options["auth"] or agent.options["headers"]:
        try:
            cards.append(await client.get_extended_card())
        except A2AClientError:
            return
    known = [str(each.get("id")) for card in cards for each in card.get("skills") or () if isinstance(each, dict)]
    if known and skill not in known:
        close = get_close_matches(skill, known, n=3) or sorted(set(known))[:10]
        raise InvalidValue(f"the agent has no skill {skill!r}; it has {', '.join(close)}")


def _run(work: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await work

    return asyncio.run(run())


def _text(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for line in given:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter("a header is 'NAME: VALUE'", param_hint="--header")
        found[name.strip()] = value.strip()
    return found
