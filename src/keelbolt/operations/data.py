"""The operations API for stored data: lists, counts and records of all families, erasure and retention."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_json

from keelbolt.data import Subject, erase, faces, resume_erasures
from keelbolt.data.erasing import declare
from keelbolt.data.inspection import Inspection
from keelbolt.data.retention import parse_policies
from keelbolt.data.sweeping import retain, sweep_expired
from keelbolt.errors import (
    InvalidName,
    InvalidParamsError,
    InvalidValue,
    MethodNotFoundError,
    SubjectInUse,
    SubjectNotFound,
    UnsupportedOperationError,
)
from keelbolt.kernel import Kernel, Swept
from keelbolt.operations.call import OpsCall, entries_asked, json_of, page_asked
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
            try:
                erased = await erase(self._kernel, subject, dry_run=dry, if_idle=_flag(call, "ifIdle"), tell=tell)
            except SubjectNotFound:
                if not dry:
                    await self._kernel.scrub()  # the scrub after an earlier erasure may have failed
                raise
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


# ----------------------------------------------------------------------------------------------------------- inspection


class InspectionOperations:
    """The handlers of the routes for families. Only for operators, because a family holds the data of all owners."""

    def __init__(self, engine: TaskEngine) -> None:
        self._kernel = engine.kernel
        self._made: Inspection | None = None

    @property
    def _look(self) -> Inspection:
        if self._made is None:  # the faces are loaded on first use
            self._made = Inspection(self._kernel)
        return self._made

    async def data_families(self, _call: OpsCall) -> bytes:
        return json_of({"families": self._look.families()})

    async def data_records(self, call: OpsCall) -> bytes:
        return await _found(self._look.records(self._family(call), **_whose(call), **page_asked(call)))

    async def data_count(self, call: OpsCall) -> bytes:
        return await _found(self._look.count(self._family(call), **_whose(call)))

    def _family(self, call: OpsCall) -> str:
        known = [each["family"] for each in self._look.families()]
        if (name := call.names["family"]) not in known:
            raise MethodNotFoundError(f"there is no such family; there are {', '.join(known)}")
        return name

    async def data_subject(self, call: OpsCall) -> bytes:
        subject = _subject(call)
        if subject is None:
            raise InvalidParamsError("kind and id are required; they name a subject")
        return await _found(self._look.describe(subject))

    async def data_record(self, call: OpsCall) -> bytes:
        return await _found(self._look.show(call.names["data_ref"]))

    async def data_entries(self, call: OpsCall) -> bytes:
        return await _found(self._look.entries(call.names["data_ref"], call.names["log"], **entries_asked(call)))


async def _found(look: Awaitable[Any]) -> bytes:
    try:
        return json_of(await look)
    except SubjectNotFound as missing:
        raise MethodNotFoundError(str(missing)) from None
    except (InvalidValue, InvalidName) as wrong:
        raise InvalidParamsError(str(wrong)) from None


def _subject(call: OpsCall) -> Subject | None:
    kind, id_ = call.query.get("kind"), call.query.get("id")
    if kind is None and id_ is None:
        return None
    if not kind or not id_:
        raise InvalidParamsError("kind and id must be passed together; they name a subject")
    return Subject(kind=kind, id=id_, tenant=call.text("tenant"), owner=call.text("owner"))


def _whose(call: OpsCall) -> dict[str, Any]:
    subject = _subject(call)
    if subject is not None:
        return {"of": subject}
    return {"tenant": call.text("tenant"), "owner": call.text("owner")}
