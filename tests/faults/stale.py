"""Every write that a holder of a task can make, tried by one who may hold it no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.errors import HoldfastError
from holdfast.storage import Append, Draft
from holdfast.tasks import TaskContext, TaskState
from holdfast.tasks.families import EVENTS
from holdfast.tasks.journal import Journal
from holdfast.tasks.lifecycle import End, Report
from holdfast.tasks.notes import ArtifactNote, OtherNote

STALE = "stale"


async def stale_writes(ctx: TaskContext) -> dict[str, str]:
    """What came of each: the name of the error, or ``written``. First as workers write, then past all good manners:
    a journal for each write that knows of no refusal, and the store itself.
    """
    run = ctx._run
    claim = run.journal.claim

    def journal() -> Journal:
        return Journal(run.store, run.runner.events, run.journal.task, claim)

    async def chunk() -> None:
        pen = journal()
        await pen.note(ArtifactNote("answer", b'"artifactId":"answer"', b'{"text":"stale"}', append=True), 10)
        await pen.settle()

    entry = Append(EVENTS, ctx.task_id, (Draft("touch", b'{"by":"stale"}'),))
    commit = run.store.kernel.commit
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "ctx.emit_text_artifact": lambda: ctx.emit_text_artifact(STALE, last_chunk=True),
        "ctx.send_status": lambda: ctx.send_status(STALE),
        "ctx.step": lambda: ctx.step(STALE, lambda: STALE),
        "ctx.update_context": lambda: ctx.update_context(STALE),
        "ctx.complete": lambda: ctx.complete(STALE),
        "a chunk": chunk,
        "a step": lambda: journal().write([OtherNote("step", {"step": STALE, "state": "done", "result": STALE})]),
        "a status": lambda: journal().move(Report()),
        "the end": lambda: journal().move(End(TaskState.completed), claim.complete()),
        "a fenced entry": lambda: commit(run.partition, claim.fenced(), entry),
        "release": lambda: commit(run.partition, claim.release(), entry),
        "bury": lambda: commit(run.partition, claim.bury(STALE), entry),
        "complete": lambda: commit(run.partition, claim.complete(), entry),
    }
    outcomes: dict[str, str] = {}
    for name, write in writes.items():
        try:
            await write()
        except HoldfastError as error:
            outcomes[name] = type(error).__name__
        else:
            outcomes[name] = "written"
    return outcomes
