"""The operations API for the lifecycle of data: erasing a subject, sweeping by policies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_json

from keelbolt.data import Subject, erase, faces, resume_erasures
from keelbolt.data.erasing import declare
from keelbolt.data.retention import parse_policies
from keelbolt.data.sweeping import retain, sweep_expired
from keelbolt.errors import (
    InvalidParamsError,
    InvalidValue,
    MethodNotFoundError,
    SubjectInUse,
    SubjectNotFound,
    UnsupportedOperationError,
)
from keelbolt.kernel import Kernel, Swept
from keelbolt.operations.call import OpsCall
from keelbolt.tasks.engine import TaskEngine

Frames = AsyncGenerator[tuple[bytes, int | None], None]
Tell = Callable[[Any], None]

SUBJECTS = ("task", "context", "session", "trace", "memory", "thread", "user", "tenant")


class DataOperations:
    """The handlers of the routes for erasure and retention.

    Both take long: they are streams of ``{"progress": …}``, which end with ``{"result": …}``.
    """

    def __init__(self, engine: TaskEngine) -> None:
        self._kernel: Kernel = engine.kernel

    async def erase_subject(self, call: OpsCall) -> Frames:
        kind, dry = call.text("kind"), _flag(call, "dryRun")
        if kind not in SUBJECTS or not call.text("id"):
            raise InvalidParamsError(f"kind must be one of {', '.join(SUBJECTS)}, and id must name a subject")
        subject = Subject(kind=kind, id=call.text("id"), tenant=call.text("tenant"), owner=call.text("owner"))

        async def work(tell: Tell) -> dict[str, Any]:
            await declare(self._kernel)
            if not dry:
                await resume_erasures(self._kernel)
            erased = await erase(self._kernel, subject, dry_run=dry, if_idle=_flag(call, "ifIdle"), tell=tell)
            if not dry:
                while await self._kernel.sweep() != Swept():
                    pass
                await self._kernel.scrub()
            return {"dryRun": dry, "erased": dict(sorted(erased.records.items())), "total": erased.total}

        try:
            async for frame in _progress_frames(work):
                yield frame
        except SubjectNotFound as missing:
            raise MethodNotFoundError(str(missing)) from None
        except SubjectInUse as used:
            raise UnsupportedOperationError(str(used)) from None

    async def sweep(self, call: OpsCall) -> Frames:
        texts, dry = call.body.get("retain") or [], _flag(call, "dryRun")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidParamsError("retain must be a list of texts such as completed=30d")
        try:
            policies = parse_policies(texts, [face.policy for face in faces() if face.policy is not None])
        except InvalidValue as wrong:
            raise InvalidParamsError(str(wrong)) from None

        async def work(tell: Tell) -> dict[str, Any]:
            removed: dict[str, Mapping[str, int]] = {}
            for policy in policies:
                tell(policy.face)
                removed[policy.face] = await retain(policy, self._kernel, dry=dry)
            if not dry:
                tell("expired data")
                removed["expired"] = await sweep_expired(self._kernel)
            return {"dryRun": dry, "removed": removed}

        async for frame in _progress_frames(work):
            yield frame


def _flag(call: OpsCall, name: str) -> bool:
    value = call.body.get(name, False)
    if not isinstance(value, bool):
        raise InvalidParamsError(f"{name} must be true or false")
    return value


async def _progress_frames(work: Callable[[Tell], Awaitable[dict[str, Any]]]) -> Frames:
    """Yield the progress (at most one pending frame) and the result of the work. Closing this cancels the work."""
    news: asyncio.Queue[Any] = asyncio.Queue(1)

    def tell(progress: Any) -> None:
        if news.full():
            news.get_nowait()
        news.put_nowait(progress)

    async def run() -> dict[str, Any]:
        return await work(tell)

    working = asyncio.create_task(run(), name="operation")
    try:
        while not working.done():
            reading = asyncio.ensure_future(news.get())
            await asyncio.wait((working, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                yield to_json({"progress": reading.result()}), None
            reading.cancel()
        yield to_json({"result": working.result()}), None
    finally:
        working.cancel()
        await asyncio.wait((working,))
