"""`keelbolt tasks` and `keelbolt dead`, on a real SQLite file. Exit codes and output."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from keelbolt.auth.principal import Principal
from keelbolt.cli.main import main
from keelbolt.cli.options import STATES
from keelbolt.cli.worker import worker as worker_command
from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.tasks import Envelope, TaskContext, TaskEngine
from keelbolt.tasks.families import INBOX, QUEUE
from keelbolt.tasks.settings import DoubleText

ADA = Principal(owner="ada", tenant="acme")
THREE = ("done", "fail", "ask")


async def worker(ctx: TaskContext) -> None:
    await ctx.step("think", lambda: 1)
    match ctx.user_text:
        case "fail":
            await ctx.fail("it did not work")
        case "ask":
            await ctx.request_input("which one?")
        case "count":
            for number in range(40):
                await ctx.emit_text_artifact(f"{number} ", artifact_id="numbers", append=number > 0)
            await ctx.complete("counted")
        case text:
            await ctx.emit_artifact(artifact_id="text", text="a long text", name="Essay")
            await ctx.complete(f"answer to {text}")


def keelbolt(*arguments: str, input: str | None = None) -> Result:  # noqa: A002
    """Run the command; unexpected exceptions are raised."""
    result = CliRunner().invoke(main, list(arguments), input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def read(*arguments: str) -> Any:
    """Return the JSON output of the command."""
    result = keelbolt(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def run_all(url: str, *texts: str, principal: Principal | None = None) -> list[str]:
    """Send and run these messages; return the ids of their tasks."""
    ids = []
    async with open_storage(url) as kernel, TaskEngine(kernel, worker) as engine:
        for text in texts:
            message = Message(message_id=f"m-{text}", role=Role.user, parts=[Part(text=text)], context_id="talk")
            envelope = Envelope(principal or Principal())
            sent = await engine.tasks.send(message, envelope)
            ids.append((await engine.tasks.settled(sent)).record.task_id)
    return ids


async def dead_letter(url: str, text: str, principal: Principal) -> str:
    """Create a dead letter: a task whose process died in every attempt."""
    async with open_storage(url) as kernel:
        async with TaskEngine(kernel) as engine:
            message = Message(message_id=f"m-{text}", role=Role.user, parts=[Part(text=text)])
            task_id = (await engine.tasks.send(message, Envelope(principal))).task.record.task_id
        for number in range(6):
            await kernel.claim(QUEUE, f"mortal-{number}", lease_seconds=0.01)
            await asyncio.sleep(0.02)
        async with TaskEngine(kernel, worker) as engine, asyncio.timeout(10):
            while not (await engine.tasks.load(task_id, principal)).view.state.terminal:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    return task_id


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty storage, also set in the environment."""
    url = f"sqlite:///{tmp_path}/agent.db"
    monkeypatch.setenv("KEELBOLT_STORAGE", url)
    return url


def test_choices_are_the_engines_own() -> None:
    """The list of choices is duplicated, so that --help is fast."""
    assert set(STATES) == {state.name for state in TaskState}
    [double_text] = [option for option in worker_command.params if option.name == "double_text"]
    assert isinstance(double_text.type, click.Choice)
    assert set(double_text.type.choices) == set(DoubleText.__args__)  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------------------------- list


def test_list_filters_and_pages(url: str) -> None:
    ids = asyncio.run(run_all(url, *THREE))
    assert [task["id"] for task in read("tasks", "list")["tasks"]] == ids[::-1]
    assert [task["id"] for task in read("tasks", "list", "--state", "failed")["tasks"]] == [ids[1]]
    assert len(read("tasks", "list", "--context", "talk")["tasks"]) == 3
    assert read("tasks", "list", "--context", "other")["tasks"] == []
    first = read("tasks", "list", "--limit", "2")
    second = read("tasks", "list", "--limit", "2", "--page", first["nextPageToken"])
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == ids[::-1]
    assert second["nextPageToken"] == ""


def test_list_shows_whole_ids(url: str) -> None:
    [task_id] = asyncio.run(run_all(url, "done"))
    output = keelbolt("tasks", "list").stdout
    assert task_id in output
    assert "completed" in output


def test_list_shows_one_owner_and_all_shows_every_owner(url: str) -> None:
    mine = asyncio.run(run_all(url, *THREE))
    hers = asyncio.run(run_all(url, *THREE, principal=ADA))
    assert {task["id"] for task in read("tasks", "list")["tasks"]} == set(mine)
    assert {task["id"] for task in read("tasks", "list", "--owner", "ada", "--tenant", "acme")["tasks"]} == set(hers)
    assert read("tasks", "list", "--owner", "ada")["tasks"] == []

    seen, page = [], read("tasks", "list", "--all", "--limit", "2")
    while True:
        seen += [task["id"] for task in page["tasks"]]
        if not page["nextPageToken"]:
            break
        page = read("tasks", "list", "--all", "--limit", "2", "--page", page["nextPageToken"])
    assert sorted(seen) == sorted(mine + hers)
    assert "acme/ada" in keelbolt("tasks", "list", "--all").stdout


@pytest.mark.parametrize("everyone", [[], ["--all"]])
@pytest.mark.parametrize("token", ["nonsense", "WzEsMl0=", "ü"])
def test_an_invalid_page_token_is_refused(url: str, everyone: list[str], token: str) -> None:
    asyncio.run(run_all(url, *THREE))
    result = keelbolt("tasks", "list", *everyone, "--page", token)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the page token")


# --------------------------------------------------------------------------------------------------------- show, tail


def test_show_prints_the_process_of_each_attempt(url: str) -> None:
    [task_id] = asyncio.run(run_all(url, "done"))
    shown = read("tasks", "show", task_id)
    assert shown["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    report = shown["report"]
    assert [(each["turn"], each["attempt"]) for each in report["attempts"]] == [(1, 1)]
    assert [(each["step"], each["state"], each["inDoubt"]) for each in report["steps"]] == [("think", "done", False)]
    assert report["artifacts"][0]["name"] == "Essay"
    assert shown["work"] is None
    output = keelbolt("tasks", "show", task_id).stdout
    for word in (task_id, "completed since", "think", "Essay", report["attempts"][0]["worker"]):
        assert word in output


def test_a_step_in_doubt_is_shown(url: str) -> None:
    """The process died after the start of the step, so the outcome of the step is unknown."""

    async def interrupted() -> str:
        async def charge(ctx: TaskContext) -> None:
            await ctx.step("charge", asyncio.sleep, 600)

        async with open_storage(url) as kernel, TaskEngine(kernel, charge) as engine:
            message = Message(message_id="1", role=Role.user, parts=[Part(text="go")])
            sent = await engine.tasks.send(message)
            assert sent.run is not None
            assert engine.runner is not None
            while not sent.run.journal.task.view.steps:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            sent.run.stop("drain")
            await sent.run.finished()
            await engine.runner.stop()
        return sent.task.record.task_id

    task_id = asyncio.run(interrupted())
    assert "IN DOUBT: the step 'charge' of turn 1" in keelbolt("tasks", "show", task_id).stdout
    steps = read("tasks", "show", task_id)["report"]["steps"]
    assert [step["step"] for step in steps if step["inDoubt"]] == ["charge"]


def test_tail_resumes_anywhere(url: str) -> None:
    [task_id] = asyncio.run(run_all(url, "done"))
    lines = [
        json.loads(line) for line in keelbolt("tasks", "tail", task_id, "--after", "0", "--json").stdout.splitlines()
    ]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    rest = keelbolt("tasks", "tail", task_id, "--after", str(len(lines) - 2), "--json").stdout.splitlines()
    assert [json.loads(line) for line in rest] == lines[-2:]
    [now] = keelbolt("tasks", "tail", task_id, "--json").stdout.splitlines()
    assert json.loads(now)["snapshot"]["status"]["state"] == "TASK_STATE_COMPLETED"
    text = keelbolt("tasks", "tail", task_id, "--after", "0").stdout
    for words in ("message   done", "status    working", "artifact  text  a long text", "status    completed"):
        assert words in text


def test_tail_reports_a_gap(url: str) -> None:
    [task_id] = asyncio.run(run_all(url, "count"))
    assert read("sweep", "--retain", "log=0s")["removed"]["tasks"] == {"logs": 1}
    assert (
        "gap: older entries were removed; the task is completed"
        in keelbolt("tasks", "tail", task_id, "--after", "1").stdout
    )


# -------------------------------------------------------------------------------------------- send, cancel and requeue


def test_send_makes_a_task_and_continues_it(url: str) -> None:
    """A missing storage is created; no worker runs the task in this test."""
    sent = read("tasks", "send", "--text", "ask", "--context", "talk", "--owner", "ada", "--tenant", "acme")
    assert (sent["status"]["state"], sent["contextId"]) == ("TASK_STATE_SUBMITTED", "talk")
    output = keelbolt(
        "tasks", "send", "--text", "more", "--task", sent["id"], "--owner", "ada", "--tenant", "acme"
    ).stdout
    assert output == f"task {sent['id']} is submitted\n"


def test_cancel_and_its_reason(url: str) -> None:
    [task_id] = asyncio.run(run_all(url, "ask"))
    assert keelbolt("tasks", "cancel", task_id, "--reason", "too slow").stdout == f"task {task_id} is canceled\n"
    assert [each["reason"] for each in read("tasks", "show", task_id)["report"]["steering"]] == ["too slow"]
    result = keelbolt("tasks", "cancel", task_id)
    assert result.exit_code == 3
    assert "nothing to cancel" in result.stderr


def test_requeue_makes_a_new_task_that_refers_to_the_old_one(url: str) -> None:
    """A second requeue returns the same task."""
    done, failed, _ = asyncio.run(run_all(url, *THREE))
    new = read("tasks", "requeue", failed)["taskId"]
    assert new != failed
    task = read("tasks", "show", new)["task"]
    history = task["history"]
    assert task["contextId"] == "talk"
    assert [(each["parts"], each["referenceTaskIds"]) for each in history] == [([{"text": "fail"}], [failed])]
    assert read("tasks", "requeue", failed)["taskId"] == new
    assert read("tasks", "show", failed)["task"]["status"]["state"] == "TASK_STATE_FAILED"
    result = keelbolt("tasks", "requeue", done)
    assert result.exit_code == 3
    assert "the task is completed" in result.stderr


# ------------------------------------------------------------------------------------------------------ erase and sweep


def test_erase_one_a_context_or_everything(url: str) -> None:
    ids = asyncio.run(run_all(url, *THREE))
    assert read("tasks", "erase", ids[0]) == {"erased": 1}
    missing = keelbolt("tasks", "erase", ids[0])
    assert (missing.exit_code, missing.stdout) == (3, "erased 0 task(s)\n")
    assert read("tasks", "erase", "--context", "talk") == {"erased": 2}
    asyncio.run(run_all(url, *THREE, principal=ADA))
    ada = ("--owner", "ada", "--tenant", "acme")
    refused = keelbolt("tasks", "erase", "--everything", *ada, input="n\n")
    assert refused.exit_code == 1
    assert "Erase all tasks of ada?" in refused.stderr
    assert read("tasks", "erase", "--everything", "--yes", *ada) == {"erased": 3}
    assert read("tasks", "list", "--all")["tasks"] == []


@pytest.mark.parametrize("arguments", [[], ["x", "--context", "c"], ["--context", "c", "--everything"]])
def test_erase_requires_exactly_one_choice(url: str, arguments: list[str]) -> None:
    result = keelbolt("tasks", "erase", *arguments)
    assert result.exit_code == 2
    assert "name tasks, or use --context ID or --everything" in result.stderr


def test_sweep_by_options_or_by_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(run_all(url, *THREE))
    dry = read("sweep", "--retain", "completed=0s", "--retain", "failed=1d", "--dry-run")
    assert dry == {"dryRun": True, "removed": {"tasks": {"tasks": 1}}}
    assert read("sweep", "--retain", "completed=30d")["removed"]["tasks"] == {}
    monkeypatch.setenv("KEELBOLT_RETAIN", "completed=0s failed=0s,log=1h")
    assert read("sweep")["removed"]["tasks"] == {"tasks": 2}
    assert [task["status"]["state"] for task in read("tasks", "list")["tasks"]] == ["TASK_STATE_INPUT_REQUIRED"]


@pytest.mark.parametrize("retain", [["completed"], ["working=1d"], ["completed=soon"], ["completed=-1d"]])
def test_sweep_refuses_an_invalid_policy(url: str, retain: list[str]) -> None:
    asyncio.run(run_all(url, *THREE))
    result = keelbolt("sweep", *(word for each in retain for word in ("--retain", each)))
    assert result.exit_code == 2
    assert len(read("tasks", "list")["tasks"]) == 3


# --------------------------------------------------------------------------------------------------------------- dead


def test_dead_letters_are_listed_requeued_and_dropped(url: str) -> None:
    first, second = asyncio.run(dead_letter(url, "one", ADA)), asyncio.run(dead_letter(url, "two", Principal()))
    assert [letter["taskId"] for letter in read("dead", "list")["dead"]] == [second]
    listed = read("dead", "list", "--all")["dead"]
    assert {letter["taskId"] for letter in listed} == {first, second}
    assert {(letter["state"], letter["attempts"]) for letter in listed} == {("failed", 5)}
    assert read("dead", "list", "--all", "--limit", "1")["more"]
    assert "process died each time" in keelbolt("dead", "list", "--all").stdout
    assert "dead after" in keelbolt("tasks", "show", second).stdout

    assert keelbolt("dead", "drop", first).exit_code == 3  # the dead letter belongs to another owner
    assert read("dead", "drop", second) == {"dropped": 1}
    [requeued] = read("dead", "requeue", "--all")["requeued"]
    assert requeued["taskId"] == first
    new = read("tasks", "show", requeued["newTaskId"], "--owner", "ada", "--tenant", "acme")
    assert new["task"]["history"][0]["referenceTaskIds"] == [first]
    assert read("dead", "list", "--all")["dead"] == []
    assert read("tasks", "show", second)["task"]["status"]["state"] == "TASK_STATE_FAILED"


@pytest.mark.parametrize("command", ["requeue", "drop"])
def test_tasks_or_all(url: str, command: str) -> None:
    for arguments in ([], ["x", "--all"]):
        result = keelbolt("dead", command, *arguments)
        assert result.exit_code == 2
        assert "name tasks or use --all" in result.stderr


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "command",
    [
        ("tasks", "show", "x"),
        ("tasks", "tail", "x"),
        ("tasks", "cancel", "x"),
        ("tasks", "requeue", "x"),
        ("tasks", "send", "--text", "a", "--task", "x"),
        ("tasks", "show", "x" * 300),
        ("tasks", "show", "\n"),
        ("dead", "requeue", "x"),
    ],
    ids=" ".join,
)
def test_a_missing_task_is_an_error(url: str, command: tuple[str, ...]) -> None:
    asyncio.run(run_all(url))
    result = keelbolt(*command)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "Task not found" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("tasks", "list"), ("dead", "list"), ("sweep", "--retain", "log=1h")])
def test_a_mistyped_path_creates_nothing(command: tuple[str, ...], tmp_path: Path) -> None:
    result = keelbolt(*command, "--storage", f"sqlite:///{tmp_path}/agnet.db")
    assert result.exit_code == 3
    assert "no storage exists" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("tasks", "list"), ("worker", "json:dumps"), ("tasks", "send", "--text", "a")])
def test_memory_storage_is_refused(command: tuple[str, ...]) -> None:
    result = keelbolt(*command, "--storage", "memory:")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize(
    "options",
    [["--concurrency", "0"], ["--lease-seconds", "-1"], ["--drain-seconds", "nan"], ["--retain", "completed"]],
)
def test_an_invalid_setting_is_refused(url: str, options: list[str]) -> None:
    result = keelbolt("worker", "some:worker", *options)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


# ------------------------------------------------------------------------------------------------------- steer, fork


def test_a_task_that_waits_for_a_worker_is_steered(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    task = read("tasks", "send", "--storage", url, "--text", "hello")["id"]
    words = ("inject", "--payload", '{"note": 7}', "--reason", "late", "--storage", url)
    assert read("tasks", "steer", task, *words) == {"taskId": task, "kind": "inject"}
    assert keelbolt("tasks", "steer", task, "inject", "--payload", "[]", "--storage", url).exit_code == 2

    async def inbox() -> bytes:
        async with open_storage(url) as kernel, TaskEngine(kernel):
            return (await kernel.read_log("~anonymous", INBOX, task)).entries[0].data

    assert json.loads(asyncio.run(inbox()))["payload"] == {"note": 7}


def test_a_task_is_forked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    [done] = asyncio.run(run_all(url, "done"))
    forked = read("tasks", "fork", done, "--seq", "1", "--storage", url)["taskId"]
    assert read("tasks", "list", "--storage", url)["tasks"][0]["id"] == forked
    assert keelbolt("tasks", "fork", done, "--seq", "9999", "--storage", url).exit_code == 2
