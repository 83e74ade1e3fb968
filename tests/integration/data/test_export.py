"""Export and import of every face, between any two engines; bad files are refused, and repeats change nothing."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.data import ExportProgress, Inspection, Subject, erase, export, import_export
from keelbolt.data import importing as importing_module
from keelbolt.data.families import IMPORTS
from keelbolt.data.lines import Line, LineReader, LineWriter, body, bytes_of, check, encoded
from keelbolt.errors import BadExport, SubjectExists, SubjectNotFound
from keelbolt.kernel import Enqueue, Kernel, Put, open_storage
from keelbolt.kernel.contract import MAX_VALUE_BYTES
from keelbolt.state import StateStore
from keelbolt.state.codec import encode
from keelbolt.state.families import FAMILIES, RUNS, SESSIONS, partition_of
from keelbolt.tasks import Envelope, TaskContext, TaskEngine, TaskSettings
from tests.integration.data.filling import fill_state, fill_tasks, fill_turns, rows_of, rows_with
from tests.integration.frameworks.kept import fill_a2a, fill_adk, fill_langgraph, fill_openai
from tests.integration.state.things import binding, update
from tests.integration.tasks.conftest import ENGINES, store_url
from tests.integration.tasks.stage import message

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


async def fill(kernel: Kernel, url: str) -> None:
    """Write data of every face."""
    await fill_state(kernel, "default", "session-1", canary="one")
    await fill_turns(kernel, "acme/ada", "talk", canary="two")
    await fill_tasks(kernel, "ada", tenant="acme", canary="three")
    await fill_langgraph(kernel, "thread/1", user="ada", canary="four")
    await fill_openai(kernel, "session-1", canary="five")
    await fill_adk(kernel, "session-1", user="ada", canary="six")
    if not url.startswith("memory"):
        await fill_a2a(url, "sdk-task", owner="ada", canary="seven")


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return list(LineReader(io.BytesIO(data)))


def rewritten(lines: Iterable[dict[str, Any]]) -> bytes:
    """Return an export of these lines, with correct checksums."""
    file = io.BytesIO()
    writer = LineWriter(file)
    for line in lines:
        writer.write(encoded({name: value for name, value in line.items() if name != "crc"}))
    return file.getvalue()


async def exported(kernel: Kernel, subject: Subject | None = None) -> bytes:
    file = io.BytesIO()
    await export(kernel, subject, file)
    return file.getvalue()


@pytest.mark.parametrize("engines", [*itertools.pairwise(ENGINES), (ENGINES[-1], ENGINES[0])], ids="-".join)
async def test_everything_is_exported_and_imported(
    request: pytest.FixtureRequest, tmp_path: Path, engines: tuple[str, str]
) -> None:
    """Versions, seqs, floors, dedupe keys, blobs and holdings of all faces are equal, from each engine to another."""
    source_url, target_url = (store_url(engine, request, tmp_path) for engine in engines)
    async with open_storage(source_url) as source, open_storage(target_url) as target:
        await fill(source, source_url)
        steps: list[ExportProgress] = []
        file = io.BytesIO()
        result = await export(source, None, file, tell=steps.append)
        assert result.skipped == []
        assert result.bytes == len(file.getvalue()) > steps[-1].bytes > steps[0].bytes
        before = await rows_of(source)
        for new in (result.records, 0):  # the second import adds nothing
            file.seek(0)
            imported = await import_export(target, file)
            assert (imported.records, imported.new) == (result.records, new)
            after = await rows_of(target)
            for table, rows in before.items():
                assert after[table] == rows, table


SUBJECTS = [
    Subject(kind="session", id="session-1"),
    Subject(kind="thread", id="talk", tenant="acme", owner="ada"),
    Subject(kind="context", id="talk", tenant="acme", owner="ada"),
    Subject(kind="thread", id="thread/1"),
    Subject(kind="user", id="ada"),
    Subject(kind="tenant", id="acme"),
]


async def test_every_subject_is_exported_and_imported(tmp_path: Path) -> None:
    """An export of a subject holds the data that its erasure removes, and an import restores it."""
    url = f"sqlite:///{tmp_path}/source.db"
    async with open_storage(url) as kernel:
        await fill(kernel, url)
        whole = await rows_of(kernel)
        for subject in SUBJECTS:
            data = await exported(kernel, subject)
            await erase(kernel, subject)
            assert await rows_of(kernel) != whole
            await import_export(kernel, io.BytesIO(data))
            after = await rows_of(kernel)
            for table in whole:
                assert after[table] == whole[table], (subject, table)
        with pytest.raises(SubjectNotFound):
            await exported(kernel, Subject(kind="task", id="none"))


async def test_an_imported_task_continues(tmp_path: Path) -> None:
    """A worker of the other storage runs a task that a worker held here; a repeated send finds it."""
    running, message_ = asyncio.Event(), message("hello", context_id="talk")
    envelope = Envelope(Principal(owner="ada"), key="once")

    async def here(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("begun", artifact_id="a")
        running.set()
        await asyncio.Event().wait()

    async def there(ctx: TaskContext) -> None:
        await ctx.complete("done over there")

    settings = TaskSettings(drain_seconds=0.0)
    async with open_storage("memory:") as source, open_storage(f"sqlite:///{tmp_path}/target.db") as target:
        async with TaskEngine(source, here, settings=settings) as engine:
            sent = await engine.tasks.send(message_, envelope)
            await running.wait()
            task = sent.task.record.task_id
            data = await exported(source, Subject(kind="task", id=task, owner="ada"))
        assert b"holder" not in data
        await import_export(target, io.BytesIO(data))
        async with TaskEngine(target, there, settings=settings) as engine:
            again = await engine.tasks.send(message_, envelope)
            assert again.task.record.task_id == task
            settled = await engine.tasks.settled(again)
            assert settled.record.state.value == "TASK_STATE_COMPLETED"
        with pytest.raises(SubjectExists):  # the task has continued: the export is older
            await import_export(target, io.BytesIO(data))


async def test_bad_files_are_refused(tmp_path: Path) -> None:
    """A truncated, damaged, reordered, newer or other file is refused with its line, and nothing of it is imported."""
    async with open_storage(f"sqlite:///{tmp_path}/source.db") as source, open_storage("memory:") as target:
        await fill_state(source, "default", "session-1", canary="one")
        data = await exported(source)
        lines = data.splitlines(keepends=True)
        damaged = lines[3].replace(b"session", b"sessiom", 1)
        assert damaged != lines[3]
        newer = rewritten([{"keelbolt": "export", "format": 2}, *lines_of(data)[1:]])
        bad = {
            "cut": (b"".join(lines[:-1]), f"line {len(lines) - 1} is the last line, but not the end"),
            "cut in a line": (data[: len(b"".join(lines[:5])) + 10], "line 6 is incomplete"),
            "damaged": (b"".join([*lines[:3], damaged, *lines[4:]]), "line 4 is damaged"),
            "a line removed": (b"".join([*lines[:3], *lines[4:]]), "line 4 is damaged, or lines before it"),
            "lines moved": (b"".join([*lines[:3], lines[4], lines[3], *lines[5:]]), "line 4 is damaged"),
            "newer": (newer, "format 2"),
            "empty": (b"", "empty"),
            "something else": (b"hello\n" * 3, "line 1 "),
            "other JSON": (b'{"a": 1}\n', "line 1 is not the first line"),
        }
        for name, (file, message) in bad.items():
            with pytest.raises(BadExport, match=message):
                await import_export(target, io.BytesIO(file))
            assert not any((await rows_of(target)).values()), name


async def test_hostile_lines_are_refused() -> None:
    """Lines with correct checksums that name other partitions, unknown families or other bytes are refused."""
    async with open_storage("memory:") as source, open_storage("memory:") as target:
        await fill_tasks(source, "ada", canary="one")
        lines = lines_of(await exported(source))
        changes: list[tuple[str, Any]] = [
            ("group", lambda line: line["group"].__setitem__(1, "~state/default")),
            ("group", lambda line: line["group"].__setitem__(0, "nothing")),
            ("group", lambda line: line["group"].__setitem__(1, "\0")),
            ("keelbolt", lambda line: line.pop("format")),
            ("keelbolt", lambda line: line.update(format="1")),
            ("record", lambda line: line.update(record="data_erasures")),
            ("record", lambda line: line.update(version="x")),
            ("record", lambda line: line.update(fields=[])),
            ("chunk", lambda line: line.update(chunk="AAAA")),
            ("chunk", lambda line: line.update(chunk="not base64")),
            ("work", lambda line: line.update(work="other")),
            ("entry", lambda line: line.pop("kind")),
        ]
        for kind, change in changes:
            copy = json.loads(json.dumps(lines))
            chosen = next((line for line in copy if kind in line), None)
            if chosen is None:
                continue
            change(chosen)
            with pytest.raises(BadExport, match="line "):
                await import_export(target, io.BytesIO(rewritten(copy)))


async def test_a_subject_with_other_content_is_refused(kernel: Kernel) -> None:
    """The stored data is not changed, regardless of the part that differs."""
    from keelbolt.openai_agents.families import ITEMS, partition_of

    await fill_openai(kernel, "session-1", canary="one")
    data = await exported(kernel, Subject(kind="session", id="session-1"))
    await import_export(kernel, io.BytesIO(data))
    before = await rows_of(kernel)
    await kernel.commit(
        partition_of("default"),
        Put(ITEMS, "session-1/0000000000000007", b'j{"role":"user"}', {"session": "session-1", "number": 7}),
    )
    changed = await rows_of(kernel)
    assert changed != before
    with pytest.raises(SubjectExists, match=r"line .* items 'session-1/0000000000000007' is already stored"):
        await import_export(kernel, io.BytesIO(data))
    assert await rows_of(kernel) == changed


async def test_an_incomplete_subject_is_marked(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject of several commits is visible when it is complete; until then it is marked and can be erased."""
    async with open_storage("memory:") as source:
        await fill_openai(source, "session-1", canary="one")
        data = await exported(source)
    monkeypatch.setattr(importing_module, "BATCH", 5)
    lines = lines_of(data)
    half = rewritten(lines[: len(lines) // 2])

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    with pytest.raises(BadExport, match="truncated"):
        await import_export(kernel, Pipe(half))
    look, subject = Inspection(kernel), Subject(kind="session", id="session-1")
    (found,) = (await look.describe(subject))["found"]
    assert found["incomplete"]
    assert found["record"] is None
    assert (await look.records("openai_sessions"))["records"] == []
    await import_export(kernel, io.BytesIO(data))  # the import continues
    (found,) = (await look.describe(subject))["found"]
    assert not found["incomplete"]
    assert found["members"][0]["count"] == 30
    await erase(kernel, subject)
    with pytest.raises(BadExport):
        await import_export(kernel, Pipe(half))
    await erase(kernel, subject)
    assert await rows_with(kernel, "session-1", IMPORTS) == []


@pytest.mark.parametrize(
    "data", [b"\0" * MAX_VALUE_BYTES, b"a" * MAX_VALUE_BYTES, "é😀".encode() * 100], ids=["zeros", "letters", "mixed"]
)
def test_the_largest_value_fits_into_a_line(data: bytes) -> None:
    """Control characters need six bytes each as text; a line that is too long could not be imported."""
    file = io.BytesIO()
    writer = LineWriter(file)
    written: list[Line] = [{"keelbolt": "export", "format": 1}, {"entry": 1, **body(data)}, {"end": {}}]
    for line in written:
        writer.write(encoded(line))
    file.seek(0)
    check(file)
    file.seek(0)
    assert bytes_of(list(LineReader(file))[1]) == data


async def test_a_store_in_use_is_exported_once(tmp_path: Path) -> None:
    """A session that is used during the export moves to the end of its index; the export still contains it once."""
    moved: list[asyncio.Task[Any]] = []
    async with open_storage(f"sqlite:///{tmp_path}/agent.db") as source, open_storage("memory:") as target:
        await source.declare(*FAMILIES)
        scope = source.scoped(partition_of("default"))
        for number in range(300):
            await scope.commit(Put(SESSIONS, f"s{number}", encode(f"s{number}"), {"seen": number + 1}))

        def use(progress: ExportProgress) -> None:
            if progress.records == 10:
                again = scope.commit(Put(SESSIONS, "s3", encode("s3"), {"seen": 1000}))
                moved.append(asyncio.ensure_future(again))

        file = io.BytesIO()
        result = await export(source, None, file, tell=use)
        await moved[0]
        file.seek(0)
        imported = await import_export(target, file)
    assert (imported.new, result.records) == (300, 300)


async def test_data_without_a_session_is_exported_beside_a_session_called_none() -> None:
    async with open_storage("memory:") as source, open_storage("memory:") as target:
        async with StateStore(source, types="own") as store:
            await store.save_update(update(1, session="None"))
            await store.save_remote_binding(binding(router_session_id=None))
        await import_export(target, io.BytesIO(await exported(source)))
        assert (await rows_of(target))["record"] == (await rows_of(source))["record"]


async def test_a_taken_pause_can_be_taken_from_the_import() -> None:
    """A lease is not exported: its holder uses the other store, and it would never expire."""
    async with open_storage("memory:") as source, open_storage("memory:") as target:
        async with StateStore(source, types="own") as store:
            await store.save_planner_state("token", {"kept": True})
            assert await store.take_planner_state("token", lease_seconds=60) is not None
            await import_export(target, io.BytesIO(await exported(source)))
        async with StateStore(target, types="own") as store:
            assert await store.load_planner_state("token") == {"kept": True}


async def test_a_subject_with_more_work_than_one_commit_can_enqueue(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that is interrupted in between enqueues the rest when it is repeated."""
    keys = [f"session/{number:04}" for number in range(1100)]
    async with open_storage("memory:") as source, open_storage("memory:") as target:
        await source.declare(*FAMILIES)
        scope = source.scoped(partition_of("default"))
        await scope.commit(Put(SESSIONS, "session", encode("session"), {"seen": 1}))
        for key in keys:
            await scope.commit(Put(RUNS, key, encode({}), {"session": "session", "arrived": key}), Enqueue(RUNS, key))
        data = await exported(source)
        flush, flushes = importing_module._Group._flush, 0

        async def failing(group: Any, *, last: bool = False) -> None:
            nonlocal flushes
            flushes += last
            if last and flushes == 2:
                raise ConnectionError
            await flush(group, last=last)

        monkeypatch.setattr(importing_module._Group, "_flush", failing)
        with pytest.raises(ConnectionError):
            await import_export(target, io.BytesIO(data))
        await import_export(target, io.BytesIO(data))
        assert await rows_of(target) == await rows_of(source)
