"""Runs modules as tasks: one turn is one call through the executor."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_core import from_json

from keelbolt.apcore.access import SYSTEM_ROLES, AccessPolicy, identity_of, is_system
from keelbolt.apcore.approvals import (
    NO_HANDLER,
    SERVED,
    ApprovalAnswer,
    ApprovalGuard,
    Pending,
    answer_var,
    digest_of,
    preview_of,
    read_answer,
    reason_of,
    refuses_var,
)
from keelbolt.apcore.calls import ModuleCall, ModuleCallReader, RecordedFailure, SkillAdmission, call_once
from keelbolt.apcore.catalog import Module, SkillCatalog
from keelbolt.apcore.delegation import TASK, TaskBinding
from keelbolt.apcore.elicitation import conversing
from keelbolt.apcore.errors_map import GATE, ErrorMapper, MappedError, hides, origin_of, sanitized, without_error_texts
from keelbolt.apcore.inputs import RESERVED, Input
from keelbolt.apcore.library import (
    ApprovalDeniedError,
    ApprovalPendingError,
    CancelToken,
    Context,
    ExecutionCancelledError,
    ModuleTimeoutError,
    TraceContext,
)
from keelbolt.apcore.outputs import output_to_parts
from keelbolt.apcore.schemas import TEXT
from keelbolt.apcore.views import Running, look_through_views, running_var
from keelbolt.errors import (
    InvalidAgentResponseError,
    InvalidParamsError,
    KeelboltError,
    ProtocolError,
    SkillInputError,
    SkillNotFoundError,
    StepFailed,
)
from keelbolt.protocol.errors import describe
from keelbolt.protocol.types import Part, encode
from keelbolt.tasks.context import TaskContext
from keelbolt.tasks.worker import Worker

logger = logging.getLogger("keelbolt.apcore")

ARTIFACT = "result"
GRACE_SECONDS = 0.5  # after the deadline, at which apcore ends a call itself; then the worker ends it


class TaskCancelToken(CancelToken):  # type: ignore[misc]  # apcore has no types
    """Cancelled with its task; in a clean-up run after a cancel, only after the recorded steps were replayed."""

    def __init__(self, ctx: TaskContext) -> None:
        super().__init__()
        self._ctx = ctx

    @property
    def is_cancelled(self) -> bool:
        return super().is_cancelled or (self._ctx.is_cancelled and not self._ctx.replaying)


class ApcoreWorker(Worker):
    """Calls the module that a message names, through the executor.

    worker = ApcoreWorker(catalog, executor)
    server = A2AServer(worker=worker, admission=worker.admission, agent_card=builder.build(), …)
    catalog.on_change(lambda: server.replace_card(builder.build))

    ``default_skill`` is the module for messages that name none. Calls that need an approval are refused if the
    executor has no approval handler, unless ``allow_unapproved``.

    While a worker is open, its executor sees the modules through views; `close` restores the executor.
    """

    def __init__(
        self,
        catalog: SkillCatalog,
        executor: Any,
        *,
        execution_timeout: float = 300.0,
        default_skill: str | None = None,
        allow_unapproved: bool = False,
        public_errors: bool = False,
        system_roles: Iterable[str] = SYSTEM_ROLES,
    ) -> None:
        self.catalog = catalog
        self.executor = executor
        self.access = AccessPolicy(executor, system_roles=system_roles)
        self.admission = SkillAdmission(catalog, self.access, default_skill=default_skill)
        self._calls = ModuleCallReader(catalog, self.admission)
        self._timeout = execution_timeout
        self._errors = ErrorMapper(public=public_errors)
        self._gate = None if allow_unapproved else ApprovalGuard(executor)
        self._view, self._undo_views = look_through_views(executor)
        self._call = _with_context(executor.call_async)
        self._stream = _with_context(stream) if callable(stream := getattr(executor, "stream", None)) else None

    @contextlib.contextmanager
    def keeping(self, module_id: str) -> Iterator[None]:
        """Keep the current module served while the registry replaces it, for calls and cards."""
        with self.catalog.keeping(module_id), self._view.keeping(module_id) if self._view else contextlib.nullcontext():
            yield

    def close(self) -> None:
        """Restore the executor. Further calls do nothing."""
        self._undo_views()
        self._undo_views = _nothing
        if self._gate is not None:
            self._gate.close()

    async def handle(self, ctx: TaskContext) -> None:
        try:
            call = self._calls.of(ctx)
            if not self.access.has_role(ctx.principal, call.module.id):
                raise SkillNotFoundError(call.module.id)
        except ProtocolError as error:
            await self._refuse(ctx, error)
            return
        if call.pending is not None and (call.early or call.wrong is not None):
            await self._ask_again(ctx, call.pending, call.wrong)
            return
        if self._gate is not None and not self._gate.refuses and call.module.requires_approval:
            await ctx.reject(f"Approval denied: {NO_HANDLER}", data={"type": "ApprovalDeniedError"})
            return
        started = time.monotonic()
        try:
            # The cancel token reports the cancel to the module, which then has cancel_seconds to end.
            shield = contextlib.nullcontext() if ctx.is_cancelled else ctx.shielded()
            async with shield, asyncio.timeout(self._timeout + GRACE_SECONDS if self._timeout > 0 else None):
                parts = await self._run(ctx, call)
        except ApprovalPendingError as error:
            await self._wait(ctx, call, error)
        except ExecutionCancelledError as error:
            if not ctx.is_cancelled:  # the module cancelled itself
                await self._fail(ctx, call, error)
        except RecordedFailure as error:
            await ctx.fail(str(error), data=error.data)
        except StepFailed as error:
            await ctx.fail(str(error), data={"code": -32603, "message": str(error), "data": {"type": "StepFailed"}})
        except TimeoutError:
            await self._fail(ctx, call, ModuleTimeoutError(call.module.id, int(self._timeout * 1000)))
        except KeelboltError as error:
            if not isinstance(error, ProtocolError | InvalidAgentResponseError):
                raise
            await self._fail(ctx, call, error)
        except Exception as error:  # noqa: BLE001 - a module may raise anything
            if isinstance(error, ModuleTimeoutError):
                self._say_who_cut(call.module, time.monotonic() - started)
            await self._fail(ctx, call, error)
        else:
            await self._complete(ctx, parts)  # outside of the timeout: the module has ended

    # ----------------------------------------------------------------------------------------------------- the call

    async def _run(self, ctx: TaskContext, call: ModuleCall) -> list[Part]:
        context = await self._context(ctx)
        inputs = dict(call.inputs)
        answer = None
        pending = call.pending
        if call.token is not None:
            inputs[RESERVED] = call.token
        if pending is not None and pending.approval_id is not None:
            decided = None if pending.by_module else read_answer(ctx.message)
            answer = ApprovalAnswer(pending.approval_id, decided, ctx.principal.owner, pending.approved)
        answer_var.set(answer)
        refuses_var.set(self._gate is not None)
        running_var.set(running := Running())
        try:
            output = partial(self._output, ctx, call.module, inputs, context)
            if call.module.only_once:
                return await call_once(ctx, call.module, output, partial(self._parts, ctx), self._errors)
            return await output()
        except BaseException:
            context.cancel_token.cancel()  # reports to a module that still runs that its result is no longer needed
            running.stop()
            raise

    async def _output(self, ctx: TaskContext, module: Module, inputs: Input, context: Context[Any]) -> list[Part]:
        """Call the module. If the module and the client stream, its chunks are written as artifacts."""
        if not module.streams or self._stream is None or not ctx.is_streamed:
            found = await self._call(module.id, inputs, context)
            if is_system(module.id):
                found = without_error_texts(found)
            elif module.gives_text and isinstance(found, dict) and found.keys() == {TEXT}:
                found = found[TEXT]
            return await self._parts(ctx, found)
        name = artifact_of(ctx)
        async with contextlib.aclosing(self._stream(module.id, inputs, context)) as chunks:
            async for chunk in chunks:
                if parts := await self._parts(ctx, chunk):
                    await ctx.emit_artifact(artifact_id=name, parts=parts, append=True)
        return []

    async def _complete(self, ctx: TaskContext, parts: list[Part]) -> None:
        if ctx.is_cancelled:  # too late for a result
            return
        await ctx.complete(parts=parts, artifact_id=artifact_of(ctx))

    async def _parts(self, ctx: TaskContext, output: Any) -> list[Part]:
        async def keep(content: bytes, media_type: str, filename: str) -> str:
            file = await ctx.keep_file(content, media_type=media_type, filename=filename)
            return file.path

        return await output_to_parts(output, keep)

    async def _context(self, ctx: TaskContext) -> Context[Any]:
        """Return the apcore Context of a call: identity, deadline, trace, cancel token and task."""
        headers = ctx.trace
        identity = identity_of(ctx.principal)
        context: Context[Any] = Context.create(
            identity=identity,
            trace_parent=TraceContext.extract(headers) if headers else None,
            cancel_token=TaskCancelToken(ctx),
            global_deadline=time.time() + self._timeout if self._timeout > 0 else None,
            data={
                "a2a": {
                    "taskId": ctx.task_id,
                    "contextId": ctx.context_id,
                    "turn": ctx.turn,
                    "text": ctx.user_text,
                    "history": [from_json(encode(message)) for message in await ctx.conversation()],
                }
            },
        )
        context.data[TASK] = TaskBinding(ctx)
        context.data.update(conversing(ctx))
        context.data[SERVED] = self._gate is not None
        return context

    # ---------------------------------------------------------------------------------------------- ending the task

    async def _wait(self, ctx: TaskContext, call: ModuleCall, error: ApprovalPendingError) -> None:
        """Ask for the approval, and store the call that it is for."""
        origin = origin_of(error)
        by_module = origin is None or origin.step != GATE
        about = (error.details or {}).get("module_id")
        answer = answer_var.get()
        pending = Pending(
            call.module.id,
            call.messages,
            ctx.turn,
            digest_of(call.inputs),
            error.approval_id or (None if by_module else call.token),
            about if isinstance(about, str) else None,
            answer.given if answer is not None else (),
            by_module,
            call.token if by_module else None,
        )
        reason = sanitized(reason_of(error) or "") or None
        preview = None
        if not by_module and about == call.module.id:  # the input of a nested module is not known here
            preview = await preview_of(self.executor, call.module.id, call.inputs, await self._context(ctx))
        await ctx.request_input(pending.question(reason, preview), data=pending.json(reason, preview))

    async def _ask_again(self, ctx: TaskContext, pending: Pending, wrong: SkillInputError | None) -> None:
        """Keep waiting: the answer does not match the module's input, or the message was sent before the question."""
        data = replace(pending, turn=ctx.turn).json()
        if wrong is None:
            question = f"Your last message was sent before this question and is no answer to it. {pending.question()}"
        else:
            question = f"The answer does not match the input schema of {pending.skill_id}. Send another answer."
            data["errors"] = (describe(wrong).data or {}).get("errors", [])
        await ctx.request_input(question, data=data)

    async def _fail(self, ctx: TaskContext, call: ModuleCall, error: Exception) -> None:
        self._errors.log(error, call.module.id, ctx.task_id)
        if hides(error, call.module.id):  # the skill was removed or denied since admission
            await self._refuse(ctx, SkillNotFoundError(call.module.id))
            return
        mapped = self._errors.map(error, call.module)
        if isinstance(error, ApprovalDeniedError):
            await ctx.reject(mapped.message, data=mapped.json())
        else:
            await ctx.fail(mapped.message, data=mapped.json(), error=error)

    async def _refuse(self, ctx: TaskContext, error: ProtocolError) -> None:
        """End the task because its message can't become a call; admission normally refuses such messages earlier."""
        failure = describe(error)
        kind = (failure.data or {}).get("type", failure.row.name)
        shown = MappedError(failure.row.code, sanitized(failure.message), {**(failure.data or {}), "type": kind})
        logger.warning("task %s: %s", ctx.task_id, sanitized(str(error)))
        await (ctx.reject if isinstance(error, InvalidParamsError) else ctx.fail)(shown.message, data=shown.json())

    def _say_who_cut(self, module: Module, seconds: float) -> None:
        if self._timeout > 0 and seconds < self._timeout - GRACE_SECONDS:
            logger.warning(
                "module %s was stopped after %.1f s, before the execution_timeout of %g s: its own resources.timeout, "
                "or executor.default_timeout in the executor's Config (milliseconds; 0 for none), is shorter",
                module.id,
                seconds,
                self._timeout,
            )


def _nothing() -> None:
    """Do nothing: the views are already undone."""


def _with_context(call: Callable[..., Any]) -> Callable[[str, Input, Any], Any]:
    """Return an executor's method; if a custom executor's method takes no context, the context is dropped."""
    try:
        inspect.signature(call).bind("", {}, None)
    except TypeError:
        return lambda module_id, inputs, _context: call(module_id, inputs)
    return call


def artifact_of(ctx: TaskContext) -> str:
    """Return the artifact id of this turn, different from those of earlier calls in the same task."""
    earlier = {artifact.artifact_id for artifact in ctx.previous_artifacts} if ctx.turn > 1 else ()
    return f"{ARTIFACT}-{ctx.turn}" if ARTIFACT in earlier else ARTIFACT
