"""Relays between a task's clients and its turn: the turn's reports to clients, a client's message to the thread.

Clients get messages and thoughts as they grow, and tool calls as they progress. Each is an artifact of the task, as is
each attachment of an assistant's message. Its metadata has under ``keelbolt.turns`` its ``kind`` (message, thought,
tool_call, media), its ``id`` in the turn, and whether it was ``discarded``: an interrupted iteration reported it, and
the repeated one did not.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic_core import to_jsonable_python

from keelbolt.tasks import FileInfo, TaskContext
from keelbolt.turns.durable.adapter import DurableStorage
from keelbolt.turns.durable.scope import TurnLike
from keelbolt.turns.events import Listener, TextReport, ToolCallReport, now
from keelbolt.turns.in_memory import InMemoryMediaReader
from keelbolt.turns.primitives import Media, Message, Tokenizable
from keelbolt.turns.primitives.content import MediaKind
from keelbolt.turns.readers import MediaReader

METADATA = "keelbolt.turns"
SHOWN = ("message", "thought", "tool_call")
INLINE_BYTES = 256 * 1024  # larger attachments are files of the task


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The next content to show: more text with ``append``, otherwise the whole content."""

    kind: str
    id: str
    text: str = ""
    data: Any = None
    name: str = ""
    last: bool = False
    append: bool = False
    discarded: bool = False
    media: Media | None = None


class ReportRelay:
    """Reports that are not shown yet, in order."""

    def __init__(self, task: TaskContext, turn: str, shown: Collection[str]) -> None:
        self._task = task
        self._prefix = turn.rpartition(".")[2]  # separates the artifacts of two turns of one task
        self._shown = shown
        self._waiting: deque[_Chunk] = deque()
        self._news = asyncio.Event()
        self._begun: set[str] = set()
        self._unfinished: set[str] = set()
        self._closed = False

    def hooks(self) -> Mapping[str, Listener]:
        """Return the listeners for the turn's events."""
        found: dict[str, Listener] = {"stored_message": self._stored}
        if "message" in self._shown:
            found["message"] = lambda report: self._text("message", report)
        if "thought" in self._shown:
            found["thought"] = lambda report: self._text("thought", report)
        if "tool_call" in self._shown:
            found["tool_call"] = self._call
        return found

    def catch_up(self, stored: Collection[Message]) -> None:
        """Show stored messages of earlier runs that may not have been shown; note the ones left unfinished."""
        shown, prefix = self._task.artifact_ids, self._artifact("message", "")
        kept = {self._artifact("message", message.id) for message in stored}
        self._unfinished = {
            artifact.removeprefix(prefix)
            for artifact, finished in shown.items()
            if artifact.startswith(prefix) and artifact not in kept and not finished
        }
        for message in stored:
            if message.attachments or not shown.get(self._artifact("message", message.id), False):
                self._stored(message)

    def resume(self, task: TaskContext) -> None:
        """Continue in the next turn of the task, after ``close(ended=False)``."""
        self._task = task
        self._closed = False

    async def pump(self) -> None:
        """Show all reports until the relay is closed and empty."""
        while not (self._closed and not self._waiting):
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            await self._show(self._next())

    def close(self, *, ended: bool) -> None:
        """Accept no more reports; ``ended``: later runs of the turn won't report either."""
        for name in sorted(self._unfinished) if ended else ():
            if self._artifact("message", name) not in self._begun:
                self._put(_Chunk("message", name, last=True, discarded=True))
        self._closed = True
        self._news.set()

    # ------------------------------------------------------------------------------------------------------ reports

    def _text(self, kind: str, report: TextReport) -> None:
        began = report.full == report.delta  # in this run: text of an earlier run is replaced
        self._put(_Chunk(kind, report.id, report.delta, last=report.is_complete, append=not began))

    def _call(self, report: ToolCallReport) -> None:
        data = {
            "tool": report.tool,
            "args": _plain(report.args),
            "results": _plain(report.results),
            "isError": report.is_error,
            "isComplete": report.is_complete,
        }
        name = report.tool or ""
        self._put(_Chunk("tool_call", report.id, data=data, name=name, last=report.is_complete))

    def _stored(self, message: Message) -> None:
        """Show an assistant message that was not reported while it grew, and the attachments of any message."""
        known = self._artifact("message", message.id) in self._begun
        if message.role != "assistant":
            return
        if message.content is not None and not known:
            self._put(_Chunk("message", message.id, str(message.content), last=True))
        for number, media in enumerate(message.attachments):
            name = f"{message.id}-{number}"
            if not self._task.artifact_ids.get(self._artifact("media", name), False):
                self._put(_Chunk("media", name, name=media.filename, last=True, media=media))

    def _put(self, chunk: _Chunk) -> None:
        self._begun.add(self._artifact(chunk.kind, chunk.id))
        self._waiting.append(chunk)
        self._news.set()

    # ------------------------------------------------------------------------------------------------------ showing

    def _next(self) -> _Chunk:
        """Return the next chunk; queued texts of one message are merged."""
        chunk = self._waiting.popleft()
        while self._waiting and not chunk.last:
            more = self._waiting[0]
            if (more.kind, more.id, more.append) != (chunk.kind, chunk.id, True):
                break
            self._waiting.popleft()
            chunk = replace(chunk, text=chunk.text + more.text, last=more.last)
        return chunk

    async def _show(self, chunk: _Chunk) -> None:
        artifact = self._artifact(chunk.kind, chunk.id)
        about: dict[str, Any] = {"kind": chunk.kind, "id": chunk.id}
        if chunk.discarded:
            about["discarded"] = True
        if chunk.media is not None:
            await self._show_media(artifact, chunk.media, about)
            return
        await self._task.emit_artifact(
            artifact_id=artifact,
            text=chunk.text if chunk.data is None else None,
            data=chunk.data,
            name=None if chunk.append else chunk.name or chunk.kind,
            metadata=None if chunk.append else {METADATA: about},
            append=chunk.append,
            last_chunk=chunk.last,
        )

    async def _show_media(self, artifact: str, media: Media, about: dict[str, Any]) -> None:
        """Show media: inline in the artifact, or, above INLINE_BYTES or of unknown length, as a file of the task."""
        length = await media.byte_length()
        if length is not None and length <= INLINE_BYTES:
            content: dict[str, Any] = {"file_bytes": await media.as_bytes()}
        else:
            kept = await self._task.keep_file(media.stream(), media_type=media.mime_type, filename=media.filename)
            content = {"file_url": kept.path}
        await self._task.emit_artifact(
            artifact_id=artifact,
            media_type=media.mime_type,
            filename=media.filename,
            name=media.filename,
            metadata={METADATA: about},
            last_chunk=True,
            **content,
        )

    def _artifact(self, kind: str, report_id: str) -> str:
        return f"{kind}-{self._prefix}-{report_id}"


def _plain(value: Any) -> Any:
    if isinstance(value, Tokenizable):
        return str(value)
    return to_jsonable_python(value, fallback=lambda other: f"({type(other).__name__})")


# ------------------------------------------------------------------------------------------------------------- incoming


_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


async def incoming(task: TaskContext, storage: DurableStorage, turn: TurnLike) -> Message:
    """Return the message of this task's turn: text and JSON are its content, files its attachments.

    Files of more than `INLINE_BYTES` are first written to the blobs of the storage. A file given by URL is downloaded
    when it is read. The id is the same at each call, and can't collide with ids of agents or of other tasks' clients.
    """
    name = f"user:{task.task_id}:{task.message_id}"
    said = [task.user_text] if task.user_text else []
    said += [json.dumps(data, ensure_ascii=False) for data in task.data_parts]
    attachments: list[Media] = []
    for number, file in enumerate(task.files):
        media_id = f"{name}:{number}"
        attachments.append(_media(media_id, file, await _reader(file, media_id, storage, turn)))
    moment = now()
    return Message(
        id=name,
        role="user",
        content="\n".join(said) or (None if attachments else "(nothing)"),
        attachments=attachments,
        created_at=moment,
        updated_at=moment,
    )


async def _reader(file: FileInfo, name: str, storage: DurableStorage, turn: TurnLike) -> MediaReader:
    if file.url is not None:
        return storage.media_at(file.url)
    content = file.content or b""
    if len(content) <= INLINE_BYTES:
        return InMemoryMediaReader(content)
    return await storage.blobs.media(turn).write(name, content)


def _media(name: str, file: FileInfo, reader: MediaReader) -> Media:
    mime = file.media_type or "application/octet-stream"
    return Media.user_attachment(
        kind=_KINDS.get(mime.partition("/")[0], "document"),
        id=name,
        mime_type=mime,
        filename=file.filename or _last_name(file.url) or "file",
        source=file.url or None,
        reader=reader,
    )


def _last_name(url: str | None) -> str:
    """Return the name of the file at this URL; empty if the URL does not end with one."""
    try:
        return unquote(urlsplit(url or "").path).rpartition("/")[2]
    except ValueError:
        return ""
