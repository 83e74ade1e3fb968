"""ADK's sessions on Keelbolt's storage: a record for the state, a log for the events, one commit for both."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse

from keelbolt.errors import CommitRefused, SchemaTooNew, StorageBusy
from keelbolt.google_adk.families import EVENTS, SESSION_FAMILIES, SESSIONS, STATES
from keelbolt.google_adk.service import ATTEMPTS, Service, as_json
from keelbolt.kernel import (
    Append,
    Delete,
    Draft,
    Drop,
    Entry,
    FieldIn,
    Insert,
    Kernel,
    Operation,
    Query,
    Record,
    Replace,
    Scalar,
    Scope,
    new_id,
)
from keelbolt.state.names import joined

FORMAT = 1
PAGE = 500


class _Stored(msgspec.Struct, frozen=True):
    format: int
    app: str
    user: str
    id: str
    made: str  # distinguishes a session from an earlier one with the same id
    state: dict[str, Any]


class _Stamp(msgspec.Struct):
    timestamp: float


_stamp = msgspec.json.Decoder(_Stamp).decode


def _encode(stored: _Stored) -> bytes:
    return json.dumps(msgspec.structs.asdict(stored)).encode()


class KeelboltSessionService(Service, BaseSessionService):
    """Stores sessions on SQLite, PostgreSQL, Redis/Valkey or in memory.

        runner = Runner(app_name="shop", agent=agent, session_service=KeelboltSessionService("sqlite:///agent.db"))

    ``storage`` is a URL, which is opened at the first call, or an open storage. ``append_event`` stores the event and
    the state of session, user and app in one commit. It raises ADK's StaleSessionError if another process has changed
    the session since the session object was loaded. ``recent_events`` limits how many events ``get_session`` loads by
    default, so that a long conversation is not read completely at each turn.
    """

    def __init__(self, storage: str | Kernel, *, tenant: str = "default", recent_events: int | None = None) -> None:
        super().__init__(storage, tenant, SESSION_FAMILIES)
        self._recent = GetSessionConfig(num_recent_events=recent_events)

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        wanted = session_id.strip() if session_id else ""
        deltas = _split(state or {})
        create = partial(self._create, app=app_name, user=user_id, session=wanted or new_id(), deltas=deltas)
        return await self._call(create)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        asked = config if config is not None else self._recent
        key = joined(app_name, user_id, session_id.strip())
        found = await self._call(partial(self._get, key=key, config=asked))
        if found is None:
            return None
        record, shared, entries = found
        session = _session(record, shared)
        session.events = [Event.model_validate_json(entry.data) for entry in entries]
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        found = await self._call(partial(self._list, app=app_name, user=user_id))
        sessions = [_session(record, shared) for record, shared in found]
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        key = joined(app_name, user_id, session_id.strip())

        async def delete(scope: Scope) -> None:
            await scope.commit(Delete(SESSIONS, key), Drop(EVENTS, key))

        await self._call(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        async def get(scope: Scope) -> dict[str, Any]:
            return _state(await scope.get(STATES, joined(app_name, user_id)))

        return await self._call(get)

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        if any(known == event for known in session.events if known.id == event.id):
            return event  # delivered again
        body = event.model_dump_json(exclude_none=True).encode()
        draft = Draft("event", body, dedupe=f"{event.id}/{hashlib.sha256(body).hexdigest()}")
        last = session.events[-1].id if session.events else None
        append = partial(
            self._append,
            key=joined(session.app_name, session.user_id, session.id),
            session=session,
            last=last,
            draft=draft,
            deltas=_split(event.actions.state_delta),
            at=event.timestamp,
        )
        marker = await self._call(append)
        self._commit_event_to_session(session, event)
        session.last_update_time = event.timestamp
        session._storage_update_marker = marker  # noqa: SLF001  (ADK's place for it)
        return event

    # ------------------------------------------------------------------------------------------- in the kernel's loop

    async def _create(
        self, scope: Scope, app: str, user: str, session: str, deltas: Mapping[str, dict[str, Any]]
    ) -> Session:
        key, now = joined(app, user, session), time.time()
        stored = _Stored(FORMAT, app, user, session, new_id(), deltas["session"])
        fields: dict[str, Scalar] = {"app": joined(app), "owner": joined(app, user), "updated": now}
        for _ in range(ATTEMPTS):
            shared, writes = await self._share(scope, app, user, deltas)
            insert = Insert(SESSIONS, key, _encode(stored), fields)
            try:
                await scope.commit(insert, *writes)
            except CommitRefused as refusal:
                if refusal.check == insert:
                    raise AlreadyExistsError(f"Session with id {session} already exists.") from refusal
                continue
            return _session(Record(SESSIONS, key, 1, insert.body, fields), shared)
        raise StorageBusy

    async def _get(
        self, scope: Scope, key: str, config: GetSessionConfig
    ) -> tuple[Record, list[dict[str, Any]], list[Entry]] | None:
        record = await scope.get(SESSIONS, key)
        if record is None:
            return None
        stored = _load(record)
        entries: list[Entry] = []
        limit = config.num_recent_events
        before: int | None = None
        while limit is None or len(entries) < limit:
            asked = PAGE if limit is None else min(PAGE, limit - len(entries))
            page = await scope.read_log(EVENTS, key, before=before, limit=asked, backward=True)
            recent = list(takewhile(partial(_is_since, config.after_timestamp), page.entries))
            entries.extend(recent)
            if len(recent) < len(page.entries) or not recent or (before := recent[-1].seq) <= page.floor + 1:
                break
        entries.reverse()
        return record, await self._shared(scope, stored.app, stored.user), entries

    async def _list(self, scope: Scope, app: str, user: str | None) -> list[tuple[Record, list[dict[str, Any]]]]:
        equal = {"app": joined(app)} if user is None else {"owner": joined(app, user)}
        found: list[tuple[Record, list[dict[str, Any]]]] = []
        states: dict[str, list[dict[str, Any]]] = {}
        async for record in scope.scan(Query(SESSIONS, equal=equal, order="updated")):
            owner = str(record.fields["owner"])
            if owner not in states:
                stored = _load(record)
                states[owner] = await self._shared(scope, stored.app, stored.user)
            found.append((record, states[owner]))
        return found

    async def _append(
        self,
        scope: Scope,
        key: str,
        session: Session,
        last: str | None,
        draft: Draft,
        deltas: Mapping[str, dict[str, Any]],
        at: float,
    ) -> str:
        """Store the event and the state; return the marker of the session's new revision."""
        for _ in range(ATTEMPTS):
            record = await scope.get(SESSIONS, key)
            if record is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            if not await self._is_current(scope, key, record, session, last):
                assert draft.dedupe is not None
                if await scope.seq_of(EVENTS, key, draft.dedupe) is not None:
                    return _marker(record, record.version)  # the response to an earlier call was lost
                raise StaleSessionError(
                    f"The session {session.id} has newer events in the storage than this session object; the event "
                    "was not stored. Get the session again."
                )
            stored = _load(record)
            stored = msgspec.structs.replace(stored, state={**stored.state, **deltas["session"]})
            _, writes = await self._share(scope, stored.app, stored.user, deltas)
            fields = {**record.fields, "updated": at}
            try:
                await scope.commit(
                    # Versions restart at 1 when a session is deleted and created again, so its time is compared, too.
                    FieldIn(SESSIONS, key, "updated", (record.fields["updated"],)),
                    Replace(SESSIONS, key, record.version, _encode(stored), fields),
                    Append(EVENTS, key, (draft,)),
                    *writes,
                )
            except CommitRefused:
                continue  # read again: the session is stale, or only the state of the app or the user has changed
            return _marker(record, record.version + 1)
        raise StorageBusy

    async def _is_current(self, scope: Scope, key: str, record: Record, session: Session, last: str | None) -> bool:
        """Return whether the caller's object has the newest event, independent of clocks."""
        marker = session._storage_update_marker  # noqa: SLF001  (ADK's place for it)
        if marker is not None:
            return marker == _marker(record, record.version)
        # The object was created from JSON, or by another service: compare the newest event.
        page = await scope.read_log(EVENTS, key, limit=1, backward=True)
        newest = Event.model_validate_json(page.entries[0].data).id if page.entries else None
        return newest == last

    async def _shared(self, scope: Scope, app: str, user: str) -> list[dict[str, Any]]:
        """Return the states of the app and of the user."""
        return [_state(record) for record in await scope.get_many(STATES, [joined(app), joined(app, user)])]

    async def _share(
        self, scope: Scope, app: str, user: str, deltas: Mapping[str, dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[Operation]]:
        """Return the changed states of the app and of the user, and the operations that write the changes."""
        states: list[dict[str, Any]] = []
        writes: list[Operation] = []
        keys = [joined(app), joined(app, user)]
        changes = [deltas["app"], deltas["user"]]
        for key, change, record in zip(keys, changes, await scope.get_many(STATES, keys), strict=True):
            state = {**_state(record), **change}
            states.append(state)
            if change:
                body = json.dumps(state).encode()
                writes.append(Replace(STATES, key, record.version, body) if record else Insert(STATES, key, body))
        return states, writes


def _is_since(moment: float | None, entry: Entry) -> bool:
    return moment is None or _stamp(entry.data).timestamp >= moment


def _session(record: Record, shared: list[dict[str, Any]]) -> Session:
    stored = _load(record)
    state = dict(stored.state)
    state.update({State.APP_PREFIX + key: value for key, value in shared[0].items()})
    state.update({State.USER_PREFIX + key: value for key, value in shared[1].items()})
    session = Session(
        id=stored.id,
        app_name=stored.app,
        user_id=stored.user,
        state=state,
        last_update_time=float(record.fields["updated"] or 0.0),
    )
    session._storage_update_marker = _marker(record, record.version)  # noqa: SLF001  (ADK's place for it)
    return session


def _marker(record: Record, version: int) -> str:
    return f"{_load(record).made}/{version}"


def _split(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Split the state by owner: app, user or session; ``temp:`` keys are dropped."""
    deltas: dict[str, dict[str, Any]] = {"app": {}, "user": {}, "session": {}}
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            deltas["app"][key.removeprefix(State.APP_PREFIX)] = as_json(value)
        elif key.startswith(State.USER_PREFIX):
            deltas["user"][key.removeprefix(State.USER_PREFIX)] = as_json(value)
        elif not key.startswith(State.TEMP_PREFIX):
            deltas["session"][key] = as_json(value)
    return deltas


def _state(record: Record | None) -> dict[str, Any]:
    if record is None:
        return {}
    state: dict[str, Any] = json.loads(record.body)
    return state


def _load(record: Record) -> _Stored:
    found = json.loads(record.body)
    if found.get("format", 0) > FORMAT:
        raise SchemaTooNew("a newer Keelbolt wrote this session; use that version")
    return _Stored(**found)
