"""ADK's artifacts on Keelbolt's storage: versions 0, 1, 2…, with their bytes in blobs."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import msgspec
from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from keelbolt.errors import BlobNotFound, CommitRefused, SchemaTooNew, StorageBusy
from keelbolt.google_adk.families import ARTIFACT_FAMILIES, ARTIFACTS, FILES
from keelbolt.google_adk.service import ATTEMPTS, Service, as_json
from keelbolt.kernel import (
    Absent,
    Attach,
    Delete,
    Detach,
    Insert,
    Kernel,
    Operation,
    Query,
    Record,
    Replace,
    Scalar,
    Scope,
)
from keelbolt.state.names import joined

FORMAT = 1
INLINE_BYTES = 16 * 1024  # larger content is stored as a blob
LOADS = 5  # attempts to load an artifact that is deleted meanwhile
BATCH = 500  # operations in a commit
REFERENCES = 5  # maximum number of references to follow between artifacts

_USER = "user:"


class _Stored(msgspec.Struct, frozen=True):
    format: int
    part: bytes  # JSON, without inline bytes
    data: bytes  # the inline bytes if they are not in a blob
    version: dict[str, Any]


class _Address(NamedTuple):
    """A file of a session, or of a user."""

    app: str
    user: str
    session: str | None
    filename: str

    def keys(self) -> tuple[str, str]:
        """Return (scope, file): the key of the file's owner and of the file. Raise ADK's InputValidationError."""
        _check(self.app, self.user, None)
        if _is_user(self.filename):
            owner = _USER
        elif self.session is None:
            raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
        else:
            _check(self.app, self.user, self.session)
            owner = self.session
        return joined(self.app, self.user, owner), joined(self.app, self.user, owner, self.filename)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


class KeelboltArtifactService(Service, BaseArtifactService):
    """Stores artifacts on SQLite, PostgreSQL, Redis/Valkey or in memory.

    ``storage`` is a URL, which is opened at the first call, or an open storage. Versions of a file are numbered without
    gaps, also when several processes save it at once. Equal bytes are stored once.
    """

    def __init__(self, storage: str | Kernel, *, tenant: str = "default") -> None:
        super().__init__(storage, tenant, ARTIFACT_FAMILIES)

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        scope, file = _Address(app_name, user_id, session_id, filename).keys()
        part = ensure_part(artifact)
        uri = f"keelbolt://apps/{app_name}/users/{user_id}"
        uri += f"/artifacts/{filename}" if _is_user(filename) else f"/sessions/{session_id}/artifacts/{filename}"
        described = {
            "canonical_uri": uri,
            "custom_metadata": as_json(custom_metadata or {}),
            "create_time": time.time(),
            "mime_type": _mime_type(part, app_name, user_id, session_id),
        }
        data = b""
        if part.inline_data is not None and part.inline_data.data is not None:
            data = part.inline_data.data
            part = part.model_copy(update={"inline_data": part.inline_data.model_copy(update={"data": b""})})
        stored = _Stored(FORMAT, part.model_dump_json(exclude_none=True).encode(), data, described)
        save = partial(self._save, group=scope, file=file, name=filename, stored=stored)
        return await self._call(save)

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        where = _Address(app_name, user_id, session_id, filename)
        return await self._resolve(where, version, REFERENCES)

    async def _resolve(self, where: _Address, version: int | None, depth: int) -> types.Part | None:
        """Load an artifact, following at most ``depth`` references."""
        _, file = where.keys()
        found = await self._call(partial(self._load, file=file, version=version))
        if found is None:
            return None
        stored, data = found
        part = types.Part.model_validate_json(stored.part)
        if artifact_util.is_artifact_ref(part):
            assert part.file_data is not None
            assert part.file_data.file_uri is not None
            target = artifact_util.resolve_artifact_reference(
                file_uri=part.file_data.file_uri,
                app_name=where.app,
                user_id=where.user,
                session_id=where.session,
                remaining_depth=depth,
            )
            there = _Address(target.app_name, target.user_id, target.session_id, target.filename)
            return await self._resolve(there, target.version, depth - 1)
        if part.inline_data is not None:
            part.inline_data.data = data
        if part == types.Part() or artifact_util._is_rewind_tombstone(part):  # noqa: SLF001  (as ADK's own services)
            return None
        return part

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        scopes = [joined(app_name, user_id, _USER)]
        _check(app_name, user_id, session_id)
        if session_id is not None:
            scopes.append(joined(app_name, user_id, session_id))

        async def names(scope: Scope) -> list[str]:
            return sorted(
                [
                    record.body.decode("utf-8", "surrogatepass")
                    for each in scopes
                    async for record in scope.scan(Query(FILES, equal={"scope": each}))
                ]
            )

        return await self._call(names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        _, file = _Address(app_name, user_id, session_id, filename).keys()
        await self._call(partial(self._delete, file=file))

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        versions = await self.list_artifact_versions(
            app_name=app_name, user_id=user_id, filename=filename, session_id=session_id
        )
        return [version.version for version in versions]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        _, file = _Address(app_name, user_id, session_id, filename).keys()

        async def versions(scope: Scope) -> list[Record]:
            return [each async for each in scope.scan(Query(ARTIFACTS, equal={"file": file}, order="version"))]

        return [_version(record) for record in await self._call(versions)]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        _, file = _Address(app_name, user_id, session_id, filename).keys()
        record = await self._call(partial(_find, file=file, version=version))
        return _version(record) if record is not None else None

    # ------------------------------------------------------------------------------------------- in the kernel's loop

    async def _save(self, scope: Scope, group: str, file: str, name: str, stored: _Stored) -> int:
        for _ in range(ATTEMPTS):
            record = await scope.get(FILES, file)
            version = int(record.fields["versions"] or 0) if record is not None else 0
            body = name.encode("utf-8", "surrogatepass")
            count: dict[str, Scalar] = {"scope": group, "versions": version + 1}
            key = _key(file, version)
            fields: dict[str, Scalar] = {"file": file, "version": version}
            operations: list[Operation] = []
            kept = stored
            if len(stored.data) > INLINE_BYTES:
                blob = await scope.stage_blob(stored.data)
                operations.append(Attach(blob.digest, f"{ARTIFACTS}/{key}"))
                fields["blob"] = blob.digest
                kept = msgspec.structs.replace(stored, data=b"")
            operations.append(Insert(ARTIFACTS, key, _encode(kept), fields))
            if record is None:
                operations.append(Insert(FILES, file, body, count))
            else:
                operations.append(Replace(FILES, file, record.version, body, count))
            try:
                await scope.commit(*operations)
            except CommitRefused:
                continue
            return version
        raise StorageBusy

    async def _load(self, scope: Scope, file: str, version: int | None) -> tuple[_Stored, bytes] | None:
        for left in reversed(range(LOADS)):
            record = await _find(scope, file, version)
            if record is None:
                return None
            stored, blob = _stored(record), record.fields.get("blob")
            if not isinstance(blob, str):
                return stored, stored.data
            try:
                return stored, await (await scope.open_blob(blob)).read()
            except BlobNotFound:  # deleted, and perhaps replaced, since it was found
                if not left:
                    raise
        raise AssertionError

    async def _delete(self, scope: Scope, file: str) -> None:
        """Delete all versions; the last commit also deletes the file, unless a version was saved meanwhile."""
        for _ in range(ATTEMPTS):
            record = await scope.get(FILES, file)
            doomed: list[Operation] = []
            async for version in scope.scan(Query(ARTIFACTS, equal={"file": file}, order="version")):
                if len(doomed) >= BATCH:
                    await scope.commit(*doomed)
                    doomed = []
                doomed.append(Delete(ARTIFACTS, version.key))
                if isinstance(blob := version.fields.get("blob"), str):
                    doomed.append(Detach(blob, f"{ARTIFACTS}/{version.key}"))
            doomed.append(Absent(FILES, file) if record is None else Delete(FILES, file, record.version))
            try:
                await scope.commit(*doomed)
            except CommitRefused:
                continue
            return
        raise StorageBusy


async def _find(scope: Scope, file: str, version: int | None) -> Record | None:
    if version is not None:
        return await scope.get(ARTIFACTS, _key(file, version)) if version >= 0 else None
    query = Query(ARTIFACTS, equal={"file": file}, order="version", newest_first=True)
    page = await scope.find(query, limit=1)
    return page.records[0] if page.records else None


def _key(file: str, version: int) -> str:
    return f"{file}/{version:010}"


def _stored(record: Record) -> _Stored:
    stored = _decode(record.body)
    if stored.format > FORMAT:
        raise SchemaTooNew("a newer Keelbolt wrote this artifact; use that version")
    return stored


def _version(record: Record) -> ArtifactVersion:
    found = _stored(record).version
    number = int(record.fields["version"] or 0)
    uri = f"{found['canonical_uri']}/versions/{number}"
    return ArtifactVersion(**{**found, "version": number, "canonical_uri": uri})


def _is_user(filename: str) -> bool:
    return filename.startswith(_USER)


def _check(app_name: str, user_id: str, session_id: str | None) -> None:
    artifact_util.validate_path_segment(app_name, "app_name")
    artifact_util.validate_path_segment(user_id, "user_id")
    if session_id is not None:
        artifact_util.validate_path_segment(session_id, "session_id")


def _mime_type(part: types.Part, app_name: str, user_id: str, session_id: str | None) -> str | None:
    if part.inline_data is not None:
        return part.inline_data.mime_type
    if part.text is not None:
        return "text/plain"
    if part.file_data is None:
        raise InputValidationError("Not supported artifact type.")
    if not artifact_util.is_artifact_ref(part):
        return part.file_data.mime_type
    parsed = artifact_util.parse_artifact_uri(part.file_data.file_uri or "")
    if not parsed:
        raise InputValidationError(f"Invalid artifact reference URI: {part.file_data.file_uri}")
    artifact_util.validate_artifact_reference_scope(
        app_name=app_name, user_id=user_id, session_id=session_id, parsed_uri=parsed
    )
    return None
