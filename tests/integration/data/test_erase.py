"""Erasure removes all data of a subject on every engine, and does not change other data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.data import Subject, erase, faces, resume_erasures
from keelbolt.data.erasing import PARTITION, declare
from keelbolt.data.families import ERASURES
from keelbolt.data.families import face as face_named
from keelbolt.errors import InvalidValue, SubjectInUse, SubjectNotFound
from keelbolt.kernel import Enqueue, Kernel, Operation, Put, Receipt, Wiped
from keelbolt.state import StateStore
from keelbolt.state.families import SESSIONS, partition_of
from keelbolt.tasks.families import QUEUE, TASKS
from tests.integration.data.filling import fill_state, fill_tasks, fill_turns, rows_with, run_session

GONE, STAYS = "canary-of-the-erased", "canary-of-the-others"


async def fill(kernel: Kernel, tenant: str, canary: str) -> str:
    """Write data of each face. Return the id of the task."""
    partition = Principal(owner="ada", tenant=tenant).partition
    await fill_state(kernel, tenant, f"session-{canary}", canary=canary)
    await fill_turns(kernel, partition, "talk", canary=canary)
    return await fill_tasks(kernel, "ada", tenant=tenant, canary=canary)


async def counted(kernel: Kernel) -> int:
    return sum((await kernel.stats()).records.values())


async def test_all_data_of_a_subject_is_erased_and_nothing_else(kernel: Kernel) -> None:
    """For each kind of subject, the dry run counts the erased data, and afterwards no row contains it."""
    gone, stays = await fill(kernel, "gone", GONE), await fill(kernel, "stays", STAYS)
    kept = len(await rows_with(kernel, STAYS, stays))
    for subject in (
        Subject(kind="session", id=f"session-{GONE}", tenant="gone"),
        Subject(kind="task", id=gone, tenant="gone", owner="ada"),
        Subject(kind="thread", id="talk", tenant="gone", owner="ada"),
        Subject(kind="context", id="talk", tenant="gone", owner="ada"),
    ):
        records = await counted(kernel)
        would = await erase(kernel, subject, dry_run=True)
        assert await counted(kernel) == records
        erased = await erase(kernel, subject)
        assert erased.records == would.records
        with pytest.raises(SubjectNotFound):
            await erase(kernel, subject)
    assert await rows_with(kernel, GONE, gone) == []
    assert len(await rows_with(kernel, STAYS, stays)) == kept


@pytest.mark.parametrize("kind", ["tenant", "user"])
async def test_a_tenant_or_a_user_is_erased_completely(kernel: Kernel, kind: str) -> None:
    gone, stays = await fill(kernel, "gone", GONE), await fill(kernel, "stays", STAYS)
    kept = len(await rows_with(kernel, STAYS, stays))
    if kind == "tenant":  # anonymous callers of the tenant
        await fill_turns(kernel, Principal(tenant="gone").partition, "talk", canary=GONE)
    subject = Subject(kind="tenant", id="gone") if kind == "tenant" else Subject(kind="user", id="ada", tenant="gone")
    would = await erase(kernel, subject, dry_run=True)
    erased = await erase(kernel, subject)
    assert erased.records == would.records
    left = await rows_with(kernel, GONE, gone)
    if kind == "user":  # sessions have no user, but memory does
        assert all("state_" in row and "state_memory" not in row for row in left)
    else:
        assert left == []
        assert await rows_with(kernel, "'gone/ada'", "~turns/gone", "~state/gone") == []
    assert len(await rows_with(kernel, STAYS, stays)) == kept


async def test_unknown_and_foreign_subjects_give_the_same_error(kernel: Kernel) -> None:
    """The session of another tenant is refused exactly like one that does not exist."""
    await fill_state(kernel, "acme", "session-1", canary=STAYS)
    messages = set()
    for tenant, session in (("other", "session-1"), ("acme", "session-2")):
        with pytest.raises(SubjectNotFound) as refused:
            await erase(kernel, Subject(kind="session", id=session, tenant=tenant))
        messages.add(str(refused.value).replace(session, "…"))
    assert len(messages) == 1
    assert await kernel.get(partition_of("acme"), SESSIONS, "session-1") is not None
    with pytest.raises(InvalidValue, match="not a kind of subject"):
        await erase(kernel, Subject(kind="planet", id="1"))


async def test_a_subject_in_use(kernel: Kernel) -> None:
    """The erasure is refused with if_idle; otherwise the subject is erased."""
    task = await fill_tasks(kernel, "ada", canary=GONE)
    await kernel.commit("ada", Enqueue(QUEUE, task))
    await fill_state(kernel, "default", "session-1", canary=GONE)
    await run_session(kernel, "default", "session-1")
    for subject in (
        Subject(kind="task", id=task, owner="ada"),
        Subject(kind="context", id="talk", owner="ada"),
        Subject(kind="user", id="ada"),
        Subject(kind="session", id="session-1"),
    ):
        with pytest.raises(SubjectInUse):
            await erase(kernel, subject, if_idle=True)
    assert await kernel.get("ada", TASKS, task) is not None
    for subject in (Subject(kind="user", id="ada"), Subject(kind="session", id="session-1")):
        await erase(kernel, subject)
    assert await rows_with(kernel, GONE, task) == []


@pytest.mark.parametrize("commits", [1, 2, 3, 5, 8, 13, 21])
async def test_an_interrupted_erasure_is_finished_by_another_process(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    monkeypatch.setattr("keelbolt.data.erasing.RESUME_SECONDS", 0.0)
    monkeypatch.setattr("keelbolt.data.erasing.BATCH", 3)
    gone = await fill(kernel, "gone", GONE)
    await fill(kernel, "stays", STAYS)
    kept = len(await rows_with(kernel, STAYS))
    commit, wipe, left = kernel.commit, kernel.wipe, commits

    def die() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise SystemError("killed")

    def dying(partition: str, *operations: Operation) -> Awaitable[Receipt]:
        die()
        return commit(partition, *operations)

    async def dying_wipe(partition: str, family: Wiped, *, limit: int) -> int | None:
        if (count := await wipe(partition, family, limit=limit)) is not None:
            die()
        return count

    with monkeypatch.context() as patched:
        patched.setattr(kernel, "commit", dying)
        patched.setattr(kernel, "wipe", dying_wipe)
        with pytest.raises((SystemError, ExceptionGroup)):
            await erase(kernel, Subject(kind="tenant", id="gone"))
    await asyncio.sleep(0.05)
    assert await resume_erasures(kernel) >= 1
    assert await rows_with(kernel, GONE, gone, "data_erasures") == []
    assert len(await rows_with(kernel, STAYS)) == kept
    assert await resume_erasures(kernel) == 0


async def test_writers_beside_an_erasure(kernel: Kernel) -> None:
    """Other subjects can be written and read while a tenant is erased."""
    for number in range(5):
        await fill_state(kernel, "gone", f"session-{number}", canary=GONE)
    done = asyncio.Event()

    async def write() -> int:
        count = 0
        while not done.is_set():
            count += 1
            await fill_state(kernel, "stays", f"session-{count}", canary=STAYS)
            await asyncio.sleep(0)
        return count

    writer = asyncio.create_task(write())
    await erase(kernel, Subject(kind="tenant", id="gone"))
    done.set()
    written = await writer
    found = [
        record async for record in kernel.scan(partition_of("stays"), face_named("state").families[0].queries()[0])
    ]
    assert len(found) == written
    assert await rows_with(kernel, GONE) == []


async def test_segments_of_older_versions(kernel: Kernel) -> None:
    """These segments have no field that names their task; their keys name it."""
    from keelbolt.tasks.families import SEGMENTS

    gone = await fill_tasks(kernel, "ada", canary=GONE)
    await kernel.commit("ada", Put(SEGMENTS, f"{gone}/a/1", b"old"), Put(SEGMENTS, f"{gone}0/a/1", STAYS.encode()))
    counted = await erase(kernel, Subject(kind="task", id=gone, owner="ada"), dry_run=True)
    erased = await erase(kernel, Subject(kind="task", id=gone, owner="ada"))
    assert erased.records == counted.records
    assert await rows_with(kernel, f"{gone}/") == []
    assert len(await rows_with(kernel, STAYS)) == 1
    await erase(kernel, Subject(kind="user", id="ada"))
    assert await rows_with(kernel, STAYS) == []


async def test_every_face_declares_every_collection_once(kernel: Kernel) -> None:
    """A collection that no family deletes would outlive its subject."""
    await declare(kernel)
    names = [family.name for face in faces() for family in face.families]
    assert len(names) == len(set(names))
    beside = {name for face in faces() for family in face.families for name in family.beside}
    operational = {"state_sweepers", "turn_formats", "state_artifact_totals"}
    for face in faces():
        for family in face.families:
            reached = family.found_by or family.queries() or family.name in beside
            assert reached or family.name in operational, family.name
            for kind in family.found_by:
                assert kind in face.kinds or face.root(kind) is not None or kind == "owner", (family.name, kind)


@pytest.mark.parametrize("name", ["\0", "x" * 5000, "\ud800"], ids=["NUL", "long", "surrogate"])
async def test_a_name_that_no_record_can_have_is_not_found(kernel: Kernel, name: str) -> None:
    """The call fails, and leaves no unfinished erasure behind that would stop every later one."""
    for kind in ("task", "context", "session", "trace", "memory", "thread", "user", "tenant"):
        for subject in (Subject(kind=kind, id=name), Subject(kind=kind, id=name, tenant=name, owner=name)):
            for dry_run in (True, False):
                with pytest.raises(SubjectNotFound):
                    await erase(kernel, subject, dry_run=dry_run, if_idle=True)
    assert await resume_erasures(kernel) == 0
    assert not (await kernel.list_work(PARTITION, ERASURES, state="waiting")).items


async def test_an_erasure_that_fails_does_not_stop_the_others(kernel: Kernel) -> None:
    gone = await fill_tasks(kernel, "ada", canary=GONE)
    for number, ref in enumerate(("\0", gone)):
        body = json.dumps({"face": "tasks", "subjects": [["task", ref]]}).encode()
        scope = kernel.scoped(Principal(owner="ada").partition)
        await scope.commit(Put(ERASURES, str(number), body), Enqueue(ERASURES, str(number), max_attempts=1000))
    assert await resume_erasures(kernel) == 1
    with pytest.raises(SubjectNotFound):
        await erase(kernel, Subject(kind="task", id=gone, owner="ada"))


async def test_a_memory_with_any_name_is_erased(kernel: Kernel) -> None:
    """The state store accepts every text as a key, also half of a character."""
    async with StateStore(kernel, tenant="acme") as store:
        await store.save_memory_state("half \ud800", {"canary": GONE})
    assert (await erase(kernel, Subject(kind="memory", id="half \ud800", tenant="acme"))).total == 1
    assert await rows_with(kernel, GONE) == []
