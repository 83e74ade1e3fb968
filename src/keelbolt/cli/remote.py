"""The same commands on a running agent: `--server URL` instead of `--storage URL`, through its operations API."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, TypeVar
from urllib.parse import quote

import click

from keelbolt.cli.output import echo, echo_json, escaped, print_json, print_table, print_traceback
from keelbolt.errors import KeelboltError

Command = TypeVar("Command", bound=Callable[..., Any])

PREFIX = "/keelbolt/v1"


class Remote:
    """Calls of the operations API; an error of the server is ours, in its own words."""

    def __init__(self, server: str, token: str | None, *, owner: str = "", tenant: str = "") -> None:
        import httpx2

        from keelbolt.client.address import check_url

        try:
            address = check_url(server)
        except ValueError as error:
            raise KeelboltError(f"--server: {error}") from None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(base_url=address + PREFIX, headers=headers, timeout=60.0)
        self._whose = {name: value for name, value in (("owner", owner), ("tenant", tenant)) if value}

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        import httpx2

        given = {name: value for name, value in query.items() if value is not None}
        try:
            answer = self._client.request(method, path, params={**self._whose, **given}, json=body)
        except httpx2.HTTPError as error:
            raise KeelboltError(f"the server can't be reached: {error}") from None
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
        raise KeelboltError(f"the server answered {status}, and not with JSON: is this a Keelbolt agent?") from None
    if status >= 400:
        raise KeelboltError(found.get("error", {}).get("message", f"the server answered {status}"))
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
        token_option = click.option("--token", envvar="KEELBOLT_TOKEN", help="Who you are, to the agent.")
        server_option = click.option(
            "--server", metavar="URL", envvar="KEELBOLT_SERVER", help="A running agent, instead of its storage."
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
        echo(f"there are more: --page {found['nextPageToken']}")


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
        echo(f"{name:<9}{value}")
    for name, step in found["steps"].items():
        loud = step["state"] == "in doubt"
        echo(f"step     {name}: {step['state']}", fg="red" if loud else None, bold=loud)
    if error := found.get("exception"):
        echo(f"error    {error['type']}: {error['message']}", fg="red")
        print_traceback(error["traceback"])


def tail_task(remote: Remote, task: str, *, after: int | None, json_output: bool) -> None:
    with suppress(KeyboardInterrupt):
        for event in remote.events(f"/tasks/{task}/events", after=after):
            line = json.dumps(event, ensure_ascii=False)
            if json_output:
                echo_json(line)
            else:
                data = event.get("data") or {}
                error = data if event.get("kind") == "error" and "type" in data else None
                about = f"{error['type']}: {error['message']}" if error else escaped(line)
                echo(f"{event['seq']:>6}  {event.get('kind', 'snapshot'):<8}  {about[:200]}")
                if error:
                    print_traceback(error["traceback"])


def cancel_task(remote: Remote, task: str, *, reason: str, json_output: bool) -> None:
    found = remote.call("POST", f"/tasks/{task}/cancel", body={"reason": reason})
    if json_output:
        print_json(found)
    else:
        echo(f"task {found['id']} is {_state(found)}")


def requeue_task(remote: Remote, task: str, *, json_output: bool) -> None:
    found = remote.call("POST", f"/tasks/{task}/requeue", body={})
    if json_output:
        print_json(found)
    else:
        echo(f"it is tried anew as task {found['taskId']}")


def erase_tasks(
    remote: Remote, tasks: tuple[str, ...], *, context: str | None, everything: bool, yes: bool, json_output: bool
) -> None:
    del yes
    if everything or bool(tasks) == (context is not None):
        raise click.UsageError("with --server, name tasks or --context ID; owners are erased with --storage")
    count = len(tasks)
    for task in tasks:
        remote.call("DELETE", f"/tasks/{task}")
    if context is not None:
        count = remote.call("DELETE", "/tasks", context=context)["erased"]
    if json_output:
        print_json({"erased": count})
    else:
        echo(f"erased {count:,} task(s)")


def steer_task(remote: Remote, task: str, kind: str, *, payload: str | None, reason: str, json_output: bool) -> None:
    body = {"kind": kind, "reason": reason, "payload": read_payload(payload)}
    remote.call("POST", f"/tasks/{task}/steer", body=body)
    told_steering(task, kind, json_output=json_output)


def read_payload(text: str | None) -> dict[str, Any]:
    """What a task is steered with. Raises UsageError."""
    try:
        found = json.loads(text) if text is not None else {}
    except ValueError:
        raise click.UsageError("--payload is JSON") from None
    if not isinstance(found, dict):
        raise click.UsageError("--payload is a JSON object")
    return found


def told_steering(task: str, kind: str, *, json_output: bool) -> None:
    if json_output:
        print_json({"taskId": task, "kind": kind})
    else:
        echo(f"task {task} is told: {kind}")


def fork_task(remote: Remote, task: str, *, seq: int, json_output: bool) -> None:
    found = remote.call("POST", f"/tasks/{task}/fork", body={"seq": seq})
    if json_output:
        print_json(found)
    else:
        echo(f"it goes on from there as task {found['taskId']}")


def list_dead(remote: Remote, *, everyone: bool, limit: int, json_output: bool) -> None:
    if everyone:
        raise click.UsageError("--all is for a storage; a server shows the dead letters of one owner")
    found = remote.call("GET", "/dead", pageSize=min(limit, 100))
    if json_output:
        print_json(found)
    else:
        rows = [[letter["taskId"], str(letter["attempts"]), letter["reason"]] for letter in found["dead"]]
        print_table(["task", ">attempts", "reason"], rows)


def requeue_dead(remote: Remote, tasks: tuple[str, ...], *, everyone: bool, json_output: bool) -> None:
    _named(tasks, everyone=everyone)
    requeued = [(task, remote.call("POST", f"/tasks/{task}/requeue", body={})["taskId"]) for task in tasks]
    if json_output:
        print_json({"requeued": [{"old": old, "new": new} for old, new in requeued], "kept": []})
    else:
        for old, new in requeued:
            echo(f"task {old} is tried anew as {new}")


def drop_dead(remote: Remote, tasks: tuple[str, ...], *, everyone: bool, json_output: bool) -> None:
    _named(tasks, everyone=everyone)
    for task in tasks:
        remote.call("DELETE", f"/dead/{task}")
    if json_output:
        print_json({"dropped": len(tasks)})
    else:
        echo(f"dropped {len(tasks):,} dead letter(s)")


def _named(tasks: tuple[str, ...], *, everyone: bool) -> None:
    if everyone or not tasks:
        raise click.UsageError("with --server, name the tasks; --all is for a storage")


def list_webhooks(
    remote: Remote, task: str | None, *, everyone: bool, failed: bool, limit: int, json_output: bool
) -> None:
    if everyone:
        raise click.UsageError("--all is for a storage; a server shows the webhooks of one owner: --owner, --tenant")
    if task is not None:
        listed = remote.call("GET", f"/tasks/{task}/webhooks")["webhooks"]
        hooks = [hook for hook in listed if not failed or hook["status"] == "failed"]
        found: dict[str, Any] = {"webhooks": hooks[:limit], "more": len(hooks) > limit}
    else:
        found = remote.call("GET", "/webhooks", state="failed" if failed else None, limit=min(limit, 500))
    if json_output:
        print_json(found)
        return
    names = ("taskId", "id", "url", "status", "cursor", "failures", "error")
    rows = [[str(hook[name]) for name in names] for hook in found["webhooks"]]
    print_table(["task", "config", "url", "status", ">told", ">failures", "error"], rows)
    if found["more"]:
        echo("there are more; see them with a larger --limit")


def check_replay(task: str | None, *, everyone: bool, failed: bool, after: int | None) -> None:
    """Raises UsageError for what can't be meant."""
    if (task is None) != failed:
        raise click.UsageError("name a task, or --failed")
    if task is not None and everyone:
        raise click.UsageError("a task is one owner's: name it with --owner and --tenant")
    if failed and after is not None:
        raise click.UsageError("--after is about the events of one task; name it")


def replay_webhooks(
    remote: Remote,
    task: str | None,
    config: str | None,
    *,
    everyone: bool,
    failed: bool,
    after: int | None,
    json_output: bool,
) -> None:
    check_replay(task, everyone=everyone, failed=failed, after=after)
    if everyone:
        raise click.UsageError("--all is for a storage; a server has the webhooks of one owner: --owner, --tenant")
    if task is not None:
        listed = remote.call("GET", f"/tasks/{task}/webhooks")["webhooks"]
        hooks = [hook for hook in listed if config is None or hook["id"] == config]
    else:
        hooks = remote.call("GET", "/webhooks", state="failed", limit=500)["webhooks"]
    for hook in hooks:
        path = f"/tasks/{hook['taskId']}/webhooks/{quote(hook['id'], safe='')}/replay"
        remote.call("POST", path, body={} if after is None else {"after": after})
    if json_output:
        print_json({"replayed": [{"task": hook["taskId"], "config": hook["id"]} for hook in hooks]})
    else:
        echo(f"{len(hooks):,} webhook(s) are delivered to again")
    if task is not None and not hooks:
        raise SystemExit(1)


def _state(task: dict[str, Any]) -> str:
    state: str = task["status"]["state"]
    return state.removeprefix("TASK_STATE_").lower()
