"""`keelbolt card|send|stream|get|cancel URL`: commands that call any A2A agent."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keelbolt.cli.agent_output import (
    UNFINISHED,
    StreamPrinter,
    print_answer,
    print_card,
    print_left,
    print_note,
    print_sent,
    print_task_json,
)
from keelbolt.cli.output import as_json, echo, print_json

if TYPE_CHECKING:
    from keelbolt.client import A2AClient, Part, Reconnect, Task

MAX_FILE_BYTES = 256 * 1024 * 1024  # of an attached file; agents accept 10 MiB by default
POLL_SECONDS = (0.05, 2.0)  # first and longest delay between polls of a task

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--token", envvar="KEELBOLT_TOKEN", help="A bearer token; sent only to this agent."),
    click.option(
        "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="An additional header; repeatable."
    ),
    click.option("--binding", type=click.Choice(["JSONRPC", "HTTP+JSON", "GRPC"]), help="Use only this binding."),
    click.option("--protocol", type=click.Choice(["1.0", "0.3"]), help="Use only this version of A2A."),
    click.option(
        "--trusted-origin",
        "trusted_origins",
        multiple=True,
        metavar="URL",
        help="Another origin of the card's URLs that may receive the token and headers; repeatable.",
    ),
    click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds to wait for each response."),
)


@dataclass(frozen=True, slots=True)
class TargetAgent:
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
    """Add the argument URL and the options of all commands that call an agent."""

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
        return command(TargetAgent(url, options), **given)

    decorated: Any = run
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return click.argument("url")(decorated)  # type: ignore[no-any-return]


_messages = (
    click.option("--data", multiple=True, metavar="JSON", help="A JSON part (- reads it from stdin); repeatable."),
    click.option(
        "--file", "files", multiple=True, type=click.Path(path_type=Path), help="A file to attach; repeatable."
    ),
    click.option("--task", "task_id", help="Continue this task."),
    click.option("--context", "context_id", help="Add the message to this context."),
    click.option("--message-id", help="The id of the message (default: a new one)."),
    click.option("--idempotency-key", metavar="KEY", help="Repeated sends with this key create one task."),
    click.option("--skill", metavar="ID", help="The skill to call."),
)


def says_something(command: F) -> F:
    """Add the argument TEXT and the options of a message; the command gets its parts as ``said``."""

    @wraps(command)
    def run(agent: TargetAgent, text: str | None, data: tuple[str, ...], files: tuple[Path, ...], **given: Any) -> Any:
        return command(agent, said=_parts(text, data, files), **given)

    decorated: Any = run
    for option in reversed(_messages):
        decorated = option(decorated)
    return click.argument("text", required=False)(decorated)  # type: ignore[no-any-return]


def _parts(text: str | None, data: tuple[str, ...], files: tuple[Path, ...]) -> list[Part]:
    """Return the parts of a message: the text, the JSON values, the files. Raise UsageError."""
    from keelbolt.client import Part

    found = [] if text is None else [Part(text=_text(text))]
    for value in data:
        given = _text(value)
        try:
            found.append(Part(data=json.loads(given), media_type="application/json"))
        except ValueError:
            raise click.BadParameter(f"{value[:100]!r} is not JSON", param_hint="--data") from None
    for path in files:
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--file") from None
        if len(raw) > MAX_FILE_BYTES:
            raise click.BadParameter(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB", param_hint="--file")
        found.append(Part(raw=raw, filename=path.name, media_type=guess_type(path.name)[0]))
    if not found:
        raise click.UsageError("nothing to send: add TEXT, --data or --file")
    return found


@click.command()
@calls_agent
@click.option("--extended", is_flag=True, help="Show the card for authenticated callers.")
@as_json
def card(agent: TargetAgent, extended: bool, json_output: bool) -> None:
    """Show the card of an agent.

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
@click.option(
    "--wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Maximum time to wait for the end.  [default: no limit]",
)
@click.option("--no-wait", is_flag=True, help="Print the new task without waiting.")
@as_json
def send(
    agent: TargetAgent, said: list[Part], wait: float | None, no_wait: bool, json_output: bool, **ids: Any
) -> None:
    """Send TEXT (- reads it from stdin) to an agent, wait for the result, and print it.

    The result goes to stdout; the task's id, before the wait, and its state go to stderr. Ctrl-C stops waiting; the
    task continues. The exit code is 0 if the task completed, 1 if it failed or was canceled, 3 if it was rejected, 4
    if it is unfinished: working, or waiting for input.

    \b
    Example:
      keelbolt send http://localhost:8000 "Hello"
      keelbolt send http://localhost:8000 "Describe it" --file photo.png --data '{"language": "en"}' --wait 60
    """
    from keelbolt.client import Task

    sent: list[str] = []  # the task's id, once known

    async def ask() -> Any:
        async with agent.opened() as client:
            await _check_skill(agent, client, ids["skill"])
            answer = await client.send_message(said, return_immediately=True, **ids)
            if not isinstance(answer, Task) or no_wait or _over(answer):
                return answer
            sent.append(answer.id)
            print_sent(answer.id)
            return await _wait(client, answer, wait)

    try:
        answer = _run(ask())
    except KeyboardInterrupt:
        if sent:
            print_left(agent.url, sent[0])
        sys.exit(UNFINISHED)
    code = print_answer(answer, agent.url, json_output=json_output)
    if sent and not _over(answer):
        print_left(agent.url, sent[0])
    sys.exit(0 if no_wait and code == UNFINISHED else code)


def _over(task: Task) -> bool:
    return task.status.state.terminal or task.status.state.paused


async def _wait(client: A2AClient, task: Task, seconds: float | None) -> Task:
    """Return the task when its turn is over, or its state after ``seconds`` (None: no limit).

    If the agent can't be reached meanwhile, keep polling: its task survives a restart.
    """
    from keelbolt.client import A2AClientError, A2AConnectionError
    from keelbolt.errors import BusyError

    loop = asyncio.get_running_loop()
    ends = None if seconds is None else loop.time() + seconds
    pause, reached = POLL_SECONDS[0], True
    while not _over(task) and (ends is None or loop.time() < ends):
        left = pause if ends is None else ends - loop.time()
        await asyncio.sleep(max(0.0, min(pause, left)))
        pause = min(1.5 * pause, POLL_SECONDS[1])
        try:
            task = await client.get_task(task.id)
            reached = True
        except (A2AConnectionError, BusyError) as error:
            if reached:
                print_note(f"{error}; trying again")
            reached = False
        except A2AClientError as error:
            print_note(f"the task can't be loaded: {error}")
            break
    return task


@click.command()
@calls_agent
@says_something
@as_json
def stream(agent: TargetAgent, said: list[Part], json_output: bool, **ids: Any) -> None:
    """Send TEXT (- reads it from stdin) to an agent, and print its output as it arrives.

    A broken connection is opened again and resumes at the same event. Ctrl-C stops printing; the task continues. The
    exit codes are those of "keelbolt send".

    \b
    Example:
      keelbolt stream http://localhost:8000 "count to 5"
    """
    teller = StreamPrinter(agent.url, json_output=json_output)

    def again(reconnect: Reconnect) -> None:
        teller.note(f"{reconnect.cause}; connecting again in {reconnect.seconds:.1f} s")

    async def follow() -> None:
        async with agent.opened(on_reconnect=again) as client:
            await _check_skill(agent, client, ids["skill"])
            async with aclosing(client.stream_message(said, **ids)) as events:
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
@click.option("--history", type=click.IntRange(0), metavar="N", help="Maximum number of messages of its history.")
@as_json
def get(agent: TargetAgent, task: str, history: int | None, json_output: bool) -> None:
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
def cancel(agent: TargetAgent, task: str, json_output: bool) -> None:
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


async def _check_skill(agent: TargetAgent, client: A2AClient, skill: str | None) -> None:
    """Raise InvalidValue for a skill that the agent's card does not list.

    A card without skills allows any. A caller with credentials may have more skills than the public card lists: without
    an extended card, the agent decides.
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
        raise InvalidValue(f"the agent has no skill {skill!r}; use one of {', '.join(close)}")


def _run(work: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await work

    return asyncio.run(run())


def _text(text: str) -> str:
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text; send other data with --file") from None


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for line in given:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter("a header must be 'NAME: VALUE'", param_hint="--header")
        found[name.strip()] = value.strip()
    return found
