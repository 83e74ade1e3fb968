"""A message that was sent to the agent, as a message of the thread."""

from __future__ import annotations

import json

from keelbolt.tasks import FileInfo, TaskContext
from keelbolt.turns.events import now
from keelbolt.turns.memory_bytes import InMemoryMediaReader
from keelbolt.turns.primitives import Media, Message
from keelbolt.turns.primitives.media import MediaKind

_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def incoming(task: TaskContext) -> Message:
    """Text and JSON are its content, files its attachments; of a file elsewhere the content has the address.

    Its id is the same whenever it is made, and is none that an agent or another task's client gives.
    """
    name = f"user:{task.task_id}:{task.message_id}"
    said = [task.user_text] if task.user_text else []
    said += [json.dumps(data, ensure_ascii=False) for data in task.data_parts]
    said += [file.url for file in task.files if file.url is not None]
    moment = now()
    files = [file for file in task.files if file.content is not None]
    attachments = [_media(f"{name}:{number}", file) for number, file in enumerate(files)]
    return Message(
        id=name,
        role="user",
        content="\n".join(said) or (None if attachments else "(nothing)"),
        attachments=attachments,
        created_at=moment,
        updated_at=moment,
    )


def _media(name: str, file: FileInfo) -> Media:
    mime = file.media_type or "application/octet-stream"
    return Media.user_attachment(
        kind=_KINDS.get(mime.partition("/")[0], "document"),
        id=name,
        mime_type=mime,
        filename=file.filename or "file",
        reader=InMemoryMediaReader(file.content or b""),
    )
