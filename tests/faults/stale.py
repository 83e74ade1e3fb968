"""Every write that a holder of a task can make, tried by a process that may have lost it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from keelbolt.errors import KeelboltError
from keelbolt.kernel import Append, Draft
from keelbolt.tasks import TaskContext, TaskState
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.journal import TaskJournal
from keelbolt.tasks.lifecycle import End, ProgressReport
from keelbolt.tasks.notes import ArtifactNote, OtherNote

STALE = "stale"


async def stale_writes(ctx: TaskContext) -> dict[str, str]:
    """Return the result of each: the name of the error, or ``written``. First through the worker's API, then below it:
    with a new journal for each write, which has seen no refusal, and directly on the store.
    """
    run = ctx._run
    claim = run.journal.claim

    def journal() -> TaskJournal:
        return TaskJournal(run.store, run.runner.events, run.journal.task, claim)

    async def chunk() -> None:
        own_journal = journal()
        await own_journal.note(ArtifactNote("answer", b'"artifactId":"answer"', b'{"text":"stale"}', append=True), 10)
        await own_journal.settle()

    entry = Append(EVENTS, ctx.task_id, (Draft("touch", b'{"by":"stale"}'),))
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "ctx.emit_text_artifact": lambda: ctx.emit_text_artifact(STALE, last_chunk=True),
        "ctx.send_status": lambda: ctx.send_status(STALE),
        "ctx.step": lambda: ctx.step(STALE, lambda: STALE),
        "ctx.update_context": lambda: ctx.update_context(STALE),
        "ctx.complete": lambda: ctx.complete(STALE),
        "a chunk": chunk,
        "a step": lambda: journal().write([OtherNote("step", {"step": STALE, "state": "done", "result": STALE})]),
        "a status": lambda: journal().move(ProgressReport()),
        "the end": lambda: journal().move(End(TaskState.completed), claim.complete()),
        "a fenced entry": lambda: run.scope.commit(claim.fenced(), entry),
        "release": lambda: run.scope.commit(claim.release(), entry),
        "bury": lambda: run.scope.commit(claim.bury(STALE), entry),
        "complete": lambda: run.scope.commit(claim.complete(), entry),
    }
    outcomes: dict[str, str] = {}
    for name, write in writes.items():
        try:
            await write()
        except KeelboltError as error:
            outcomes[name] = type(error).__name__
        else:
            outcomes[name] = "written"
    return outcomes
