"""The output of a turn before its end: reports, artifacts and files."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from mimetypes import guess_type
from os import PathLike
from pathlib import PurePath
from typing import Any

from keelbolt.errors import CommitRefused, InvalidAgentResponseError, LeaseLost
from keelbolt.kernel.blobs import BlobSource
from keelbolt.protocol.types import Part
from keelbolt.tasks.files import TaskFile, keep_file
from keelbolt.tasks.lifecycle import ProgressReport
from keelbolt.tasks.notes import ArtifactNote
from keelbolt.tasks.parts import (
    MAX_CHUNK_BYTES,
    bounded,
    content_part,
    encoded_part,
    json_bytes,
    json_text,
    plain,
    text_part,
)
from keelbolt.tasks.turn_input import TaskInput


class TurnOutput(TaskInput):
    """The part of `TaskContext` that writes before the turn ends."""

    async def send_status(self, message: str | None = None, *, data: Any = None) -> None:
        """Report progress; clients that poll or stream the task see it. ``data`` is a JSON part of the message.

        While the turn is `replaying`, nothing is written: the report of the earlier run stays, so that progress does
        not go back.
        """
        self._check()
        if self.replaying:
            return
        said = None if message is None and data is None else self._say(message, data)
        await self._run.journal.move(ProgressReport(said))

    async def emit_artifact(
        self,
        *,
        artifact_id: str = "answer",
        text: str | None = None,
        data: Any = None,
        file_bytes: bytes | None = None,
        file_url: str | None = None,
        parts: Sequence[Part] | None = None,
        media_type: str | None = None,
        filename: str | None = None,
        name: str | None = None,
        description: str | None = None,
        append: bool = False,
        last_chunk: bool = False,
        metadata: dict[str, Any] | None = None,
        extensions: Sequence[str] | None = None,
    ) -> None:
        """Create an artifact, or with ``append`` add a chunk to it; ``last_chunk`` marks it as finished.

        Clients see a chunk once it is on disk. This call waits for the disk only if the buffer is full.
        """
        if parts is None:
            given = {"text": text, "data": data, "raw": file_bytes, "url": file_url}
            content = {key: value for key, value in given.items() if value is not None}
            if len(content) != 1:
                raise InvalidAgentResponseError("an artifact needs one of text, data, file_bytes, file_url, parts")
            json = content_part(content, media_type=media_type, filename=filename)
        else:
            json = b",".join([encoded_part(part) for part in parts])
        given = {"name": name, "description": description, "metadata": metadata, "extensions": extensions}
        about = {key: value for key, value in given.items() if value is not None}
        await self._emit(self._artifact(artifact_id, json, about, append=append, last=last_chunk), len(json))

    async def emit_text_artifact(
        self, text: str, *, artifact_id: str = "answer", append: bool = False, last_chunk: bool = False
    ) -> None:
        """Call `emit_artifact` with text."""
        json = text_part(text)
        await self._emit(self._artifact(artifact_id, json, append=append, last=last_chunk), len(json))

    async def emit_data_artifact(
        self,
        data: Any,
        *,
        artifact_id: str = "answer",
        media_type: str = "application/json",
        append: bool = False,
        last_chunk: bool = False,
    ) -> None:
        """Call `emit_artifact` with JSON."""
        json = content_part({"data": data}, media_type=media_type)
        await self._emit(self._artifact(artifact_id, json, append=append, last=last_chunk), len(json))

    async def stream_text(
        self, chunks: AsyncIterable[str], *, artifact_id: str = "answer", append: bool = False
    ) -> str:
        """Emit the chunks as they come, as one text artifact, and return the whole text.

        Without ``append`` the artifact is new. A cancel raises CancelledError here and closes ``chunks``; so does every
        other error.
        """
        self._check()
        texts: list[str] = []
        try:
            async for chunk in chunks:
                if not isinstance(chunk, str):
                    raise InvalidAgentResponseError(f"a chunk of text must be a string, not {type(chunk).__name__}")
                if chunk:
                    await self.emit_text_artifact(chunk, artifact_id=artifact_id, append=append or bool(texts))
                    texts.append(plain(chunk))
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()
        return "".join(texts)

    async def emit_file(
        self,
        source: BlobSource,
        *,
        artifact_id: str = "file",
        filename: str | None = None,
        media_type: str | None = None,
        name: str | None = None,
        description: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> TaskFile:
        """Store a file of any size with the task (`keep_file`), and emit an artifact that links to it.

        ``source`` is a path, bytes, an open binary file or an asynchronous iterator of bytes. ``filename`` defaults to
        the name of the path, and the media type is guessed from it.
        """
        if filename is None and isinstance(source, str | PathLike):
            filename = PurePath(source).name
        if media_type is None and filename is not None:
            media_type = guess_type(filename)[0]
        file = await self.keep_file(source, media_type=media_type, filename=filename)
        await self.emit_artifact(
            artifact_id=artifact_id,
            file_url=file.path,
            media_type=media_type,
            filename=filename,
            name=name,
            description=description,
            metadata=metadata,
            last_chunk=True,
        )
        return file

    async def keep_file(
        self, source: BlobSource, *, media_type: str | None = None, filename: str | None = None
    ) -> TaskFile:
        """Store a file with the task, too large for an artifact; the owner downloads it from ``path`` on the server."""
        self._check()
        fence = self._run.fence()
        try:
            return await keep_file(
                self._run.scope, self.task_id, source, *fence, media_type=media_type, filename=filename
            )
        except CommitRefused as refusal:
            raise LeaseLost from refusal

    async def _emit(self, note: ArtifactNote, size: int) -> None:
        self._check()
        await self._run.journal.note(note, size)

    def _artifact(
        self,
        artifact_id: str,
        parts: bytes,
        about: dict[str, Any] | None = None,
        *,
        append: bool = False,
        last: bool = False,
    ) -> ArtifactNote:
        if not isinstance(artifact_id, str) or not artifact_id:
            raise InvalidAgentResponseError("artifact_id must be a non-empty string")
        artifact_id = plain(artifact_id)
        earlier: bytes | None = None
        if append and artifact_id not in self._touched:
            # The first chunk of this run. The handler started again, so chunks from an earlier run of the same turn are
            # dropped: the artifact is reset to its content before the turn.
            earlier = self._rewind.get(artifact_id)
            append = earlier is None and artifact_id in self._run.journal.task.view.artifacts
            if earlier:
                parts = earlier + b"," + parts
        members = b'"artifactId":' + json_text(artifact_id)
        if earlier and not about:
            members = self._run.journal.task.view.artifacts[artifact_id].about
        if about:
            members += b"," + json_bytes(about, f"artifact {artifact_id}")[1:-1]
        if len(parts) + len(members) > MAX_CHUNK_BYTES:
            bounded(parts + members, "a chunk of an artifact", MAX_CHUNK_BYTES)
        self._touched.add(artifact_id)
        return ArtifactNote(artifact_id, members, parts, append, last)
