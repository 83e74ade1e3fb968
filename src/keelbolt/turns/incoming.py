"""Converts a message that was sent to the agent to a message of the thread."""

from __future__ import annotations

import json
from urllib.parse import unquote, urlsplit

from keelbolt.tasks import FileInfo, TaskContext
from keelbolt.turns.durable.adapter import DurableStorage
from keelbolt.turns.durable.scope import TurnLike
from keelbolt.turns.events import now
from keelbolt.turns.memory_bytes import InMemoryMediaReader
from keelbolt.turns.primitives import Media, Message
from keelbolt.turns.primitives.media import MediaKind
from keelbolt.turns.readers import MediaReader
from keelbolt.turns.relay import INLINE_BYTES

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
