"""The same commands on a running agent: `--server URL` instead of `--storage URL`, through its operations API."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, TypeVar

import click

from holdfast.cli.output import print_json, print_table
from holdfast.errors import HoldfastError

Command = TypeVar("Command", bound=Callable[..., Any])

PREFIX = "/holdfast/v1"


class Remote:
    """Calls of the operations API; an error of the server is ours, in its own words."""

    def __init__(self, server: str, token: str | None, *, owner: str = "", tenant: str = "") -> None:
        import httpx2

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(base_url=server.rstrip("/") + PREFIX, headers=headers, timeout=60.0)
        self._whose = {name: value for name, value in (("owner", owner), ("tenant", tenant)) if value}

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        import httpx2

        given = {name: value for name, value in query.items() if value is not None}
        try:
            answer = self._client.request(method, path, params={**self._whose, **given}, json=body)
        except httpx2.HTTPError as error:
            raise HoldfastError(f"the server can't be reached: {error}") from None
        return _checked(answer.status_code, answer.text)

    def events(self, path: str, **query: Any) -> Iterator[Any]:
        """The events of a stream, as JSON."""
        given = {name: value for name, value in query.items() if value is not None}
        with self._client.stream("GET", path, params={**self._whose, **given}, timeout=None) as answer:
            if answer.status_code != 200:
                _checked(answer.status_code, answer.read().decode())
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))


def _checked(status: int, text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        raise HoldfastError(f"the server answered {status}, and not with JSON: is this a Holdfast agent?") from None
    if status >= 400:
        raise HoldfastError(found.get("error", {}).get("message", f"the server answered {status}"))
    return found


def or_server(instead: Callable[..., None]) -> Callable[[Command], Command]:
    """Adds --server and --token: with them ``instead`` is called, with a `Remote` and the command's other options."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def choose(*args: Any, **options: Any) -> Any:
            server, token = options.pop("server"), options.pop("token")
            if server is None:
                if options.get("url") is None:
                    raise click.UsageError("say where the tasks are: --storage URL, or --server URL of a running agent")
                return command(*args, **options)
            options.pop("url", None)
            whose = {name: options.pop(name, "") for name in ("owner", "tenant")}
            with closing(Remote(server, token, **whose)) as remote:
                return instead(remote, *args, **options)

        for parameter in choose.__click_params__:  # type: ignore[attr-defined]
            if parameter.name == "url":
                parameter.required = False
        token_option = click.option("--token", envvar="HOLDFAST_TOKEN", help="Who you are, to the agent.")
        server_option = click.option(
            "--server", metavar="URL", envvar="HOLDFAST_SERVER", help="A running agent, instead of its storage."
        )
        decorated: Command = server_option(token_option(choose))  # type: ignore[assignment]
        return decorated

    return decorate


# ------------------------------------------------------------------------------------------------------------ commands


def list_tasks(
    remote: Remote,
    *,
    everyone: bool,
    state: str | None,
    context: str | None,
    limit: int,
    page: str | None,
    json_output: bool,
) -> None:
    if everyone:
        raise click.UsageError("--all is for a storage; a server shows the tasks of one owner: --owner, --tenant")
    found = remote.call("GET", "/tasks", state=state, context=context, pageSize=limit, pageToken=page)
    if json_output:
        print_json(found)
        return
    rows = [[task["id"], _state(task), task["status"]["timestamp"], task["contextId"]] for task in found["tasks"]]
    print_table(["task", "state", "since", "context"], rows)
    if found["nextPageToken"]:
        click.echo(f"there are more: --page {found['nextPageToken']}")


def show_task(remote: Remote, task: str, *, json_output: bool) -> None:
    found = remote.call("GET", f"/tasks/{task}")
    if json_output:
        print_json(found)
        return
    work = found["work"]
    doing = "nothing to do" if work is None else f"{work['state']}, attempt {work['attempt']}"
    if work is not None and work["holder"]:
        doing += f", held by {work['holder']}"
    rows = [
        ["task", found["task"]["id"]],
        ["context", found["task"]["contextId"]],
        ["state", f"{_state(found['task'])} since {found['task']['status']['timestamp']}"],
        ["created", found["created"]],
        ["log", f"{found['version']:,} entries"],
        [
            "work",
            "nothing to do" if work is None else f"{work['state']}, attempt {work['attempt']} {work['holder'] or ''}",
        ],
    ]
    for name, value in rows:
        click.echo(f"{name:<9}{value}")
    for name, step in found["steps"].items():
        loud = step["state"] == "in doubt"
        click.secho(f"step     {name}: {step['state']}", fg="red" if loud else None, bold=loud)


def tail_task(remote: Remote, task: str, *, after: int | None, json_output: bool) -> None:
    with suppress(KeyboardInterrupt):
        for event in remote.events(f"/tasks/{task}/events", after=after):
            line = json.dumps(event, ensure_ascii=False)
            click.echo(line if json_output else f"{event['seq']:>6}  {event.get('kind', 'snapshot'):<8}  {line[:200]}")


def cancel_task(remote: Remote, task: str, *, reason: str, json_output: bool) -> None:
    found = remote.call("POST", f"/tasks/{task}/cancel", body={"reason": reason})
    if json_output:
        print_json(found)
    else:
        click.echo(f"task {found['id']} is {_state(found)}")


def requeue_task(remote: Remote, task: str, *, json_output: bool) -> None:
    found = remote.call("POST", f"/tasks/{task}/requeue", body={})
    if json_output:
        print_json(found)
    else:
        click.echo(f"it is tried anew as task {found['taskId']}")


def erase_tasks(
    remote: Remote, tasks: tuple[str, ...], *, context: str | None, everything: bool, yes: bool, json_output: bool
) -> None:
    del yes
    if not tasks or context is not None or everything:
        raise click.UsageError("with --server, name the tasks; contexts and owners are erased with --storage")
    for task in tasks:
        remote.call("DELETE", f"/tasks/{task}")
    if json_output:
        print_json({"erased": len(tasks)})
    else:
        click.echo(f"erased {len(tasks):,} task(s)")


def list_dead(remote: Remote, *, everyone: bool, limit: int, json_output: bool) -> None:
    if everyone:
        raise click.UsageError("--all is for a storage; a server shows the dead letters of one owner")
    found = remote.call("GET", "/dead", pageSize=min(limit, 100))
    if json_output:
        print_json(found)
    else:
        rows = [[letter["taskId"], str(letter["attempts"]), letter["reason"]] for letter in found["dead"]]
        print_table(["task", ">attempts", "reason"], rows)


def _state(task: dict[str, Any]) -> str:
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_").lower()
