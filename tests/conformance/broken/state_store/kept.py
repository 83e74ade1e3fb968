"""A small StateStore that obeys every law: it stores copies in dictionaries, separately for each place."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from keelbolt.errors import StateConflict
from keelbolt.state.artifacts.record import Owner, artifact_ids
from keelbolt.state.codec import dump_fields
from keelbolt.state.events.steering import checked
from keelbolt.state.events.traces import HistoryPage
from keelbolt.state.types import ArtifactRef


class Data:
    """The data of one place."""

    def __init__(self) -> None:
        self.events: dict[str, list[Any]] = defaultdict(list)
        self.bindings: dict[tuple[str, str | None, str], Any] = {}
        self.pauses: dict[str, Any] = {}
        self.leases: dict[str, float] = {}
        self.memory: dict[str, Any] = {}
        self.versions: dict[str, int] = defaultdict(int)
        self.tasks: dict[str, dict[str, Any]] = defaultdict(dict)
        self.updates: dict[str, dict[str, Any]] = defaultdict(dict)
        self.steering: dict[str, dict[str, Any]] = defaultdict(dict)
        self.trajectories: dict[tuple[str, str], Any] = {}
        self.planner_events: dict[str, list[Any]] = defaultdict(list)
        self.artifacts: dict[str, tuple[Any, bytes]] = {}


PLACES: dict[str, Data] = defaultdict(Data)


def same(one: Any, two: Any) -> bool:
    return json.dumps(dump_fields(one), default=str) == json.dumps(dump_fields(two), default=str)


@dataclass
class Waiting:
    token: str
    payload: Any


class Lease:
    def __init__(self, store: Kept, token: str, until: float) -> None:
        self.store, self.token, self.until = store, token, until
        self.payload = store.data.pauses[token]

    def mine(self) -> bool:
        return self.store.leased(self.token) and self.store.data.leases[self.token] == self.until

    async def confirm(self) -> bool:
        if not self.mine():
            return False
        self.store.data.pauses.pop(self.token, None)
        return await self.release()

    async def release(self) -> bool:
        if not self.mine():
            return False
        del self.store.data.leases[self.token]
        return True


class Kept:
    """A store without a fault."""

    def __init__(self, place: str) -> None:
        self.data = PLACES[place]

    async def save_event(self, event: Any) -> None:
        events = self.data.events[event.trace_id or "__global__"]
        if not any(same(event, known) for known in events):
            events.append(copy.deepcopy(event))

    async def save_events_bulk(self, events: Any) -> None:
        for event in (events := list(events)):
            dump_fields(event)
        for event in events:
            await self.save_event(event)

    async def load_history(self, trace_id: str) -> Any:
        return copy.deepcopy(sorted(self.data.events.get(trace_id, []), key=lambda event: event.ts))

    async def iter_history(self, trace_id: str) -> AsyncIterator[Any]:
        for event in self.data.events.get(trace_id, []):
            yield copy.deepcopy(event)

    async def load_history_page(self, trace_id: str, *, after: int = 0, limit: int = 1000) -> HistoryPage:
        events = self.data.events.get(trace_id, [])
        return HistoryPage(events[after : after + limit], after + limit if after + limit < len(events) else None)

    async def save_remote_binding(self, binding: Any) -> None:
        key = (binding.trace_id, binding.context_id, binding.task_id)
        self.data.bindings.pop(key, None)
        self.data.bindings[key] = copy.deepcopy(binding)

    async def find_binding(self, **wanted: Any) -> Any:
        wanted = {"tenant_id": None, "user_id": None, **wanted, "is_terminal": False}
        for binding in reversed(self.data.bindings.values()):
            if all(getattr(binding, name) == value for name, value in wanted.items()):
                return copy.deepcopy(binding)
        return None

    async def list_bindings(self, *, router_session_id: str) -> Any:
        return [found for found in self.data.bindings.values() if found.router_session_id == router_session_id]

    async def mark_binding_terminal(self, *, trace_id: str, context_id: str | None, task_id: str) -> None:
        binding = self.data.bindings.get((trace_id, context_id, task_id))
        if binding is not None:
            binding.is_terminal = True

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        self.data.pauses[token] = copy.deepcopy(payload)

    async def load_planner_state(self, token: str) -> Any:
        if self.leased(token):
            return None
        return self.data.pauses.pop(token, None)

    def leased(self, token: str) -> bool:
        return self.data.leases.get(token, 0.0) > time.monotonic()

    async def take_planner_state(self, token: str, *, lease_seconds: float) -> Any:
        if token not in self.data.pauses or self.leased(token):
            return None
        self.data.leases[token] = until = time.monotonic() + lease_seconds
        return Lease(self, token, until)

    async def list_pauses(self, limit: int = 50) -> list[Any]:
        return [Waiting(token, payload) for token, payload in reversed(self.data.pauses.items())][:limit]

    async def get_pause(self, token: str) -> Any:
        return Waiting(token, self.data.pauses[token]) if token in self.data.pauses else None

    async def cancel_pause(self, token: str) -> bool:
        return self.data.pauses.pop(token, None) is not None

    async def save_memory_state(self, key: str, state: dict[str, Any], if_version: int | None = None) -> None:
        if if_version not in (None, self.data.versions[key]):
            raise StateConflict("save_memory_state", ValueError(if_version))
        self.data.versions[key] += 1
        self.data.memory[key] = copy.deepcopy(state)

    async def load_memory_version(self, key: str) -> tuple[Any, int]:
        return copy.deepcopy(self.data.memory.get(key)), self.data.versions[key]

    async def load_memory_state(self, key: str) -> Any:
        return copy.deepcopy(self.data.memory.get(key))

    async def save_task(self, state: Any) -> None:
        self.data.tasks[state.session_id][state.task_id] = copy.deepcopy(state)

    async def list_tasks(self, session_id: str) -> Any:
        return copy.deepcopy(list(self.data.tasks[session_id].values()))

    async def save_update(self, update: Any) -> None:
        self.data.updates[update.session_id].setdefault(update.update_id, update)

    async def list_updates(self, session_id: str, **wanted: Any) -> Any:
        return self.page(self.data.updates[session_id], **wanted)

    async def save_steering(self, event: Any) -> None:
        self.data.steering[event.session_id].setdefault(event.event_id, checked(event)[0])

    async def list_steering(self, session_id: str, **wanted: Any) -> Any:
        return self.page(self.data.steering[session_id], **wanted)

    def page(
        self, found: dict[str, Any], *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> list[Any]:
        names = list(found)
        known = since_id in found
        rest = names[names.index(str(since_id)) + 1 :] if known else names
        wanted = [found[name] for name in rest if task_id in (None, found[name].task_id)]
        return wanted[:limit] if known else wanted[-limit:]

    async def save_trajectory(self, trace_id: str, session_id: str, trajectory: Any) -> None:
        self.data.trajectories.pop((trace_id, session_id), None)
        self.data.trajectories[trace_id, session_id] = copy.deepcopy(trajectory)

    async def get_trajectory(self, trace_id: str, session_id: str) -> Any:
        return copy.deepcopy(self.data.trajectories.get((trace_id, session_id)))

    async def list_traces(self, session_id: str, limit: int = 50) -> list[str]:
        return [trace for trace, session in reversed(self.data.trajectories) if session == session_id][:limit]

    async def save_planner_event(self, trace_id: str, event: Any) -> None:
        if not any(same(event, known) for known in self.data.planner_events[trace_id]):
            self.data.planner_events[trace_id].append(event)

    async def list_planner_events(self, trace_id: str) -> list[Any]:
        return list(self.data.planner_events[trace_id])

    @property
    def artifact_store(self) -> Any:
        return Artifacts(self.data)


class Artifacts:
    """The seven methods."""

    def __init__(self, data: Data) -> None:
        self.kept = data.artifacts

    def name(self, digest: str, namespace: str | None, scope: Any) -> str:
        return next(artifact_ids(digest, namespace, Owner.of(scope)))

    async def put_bytes(self, data: bytes, **named: Any) -> Any:
        digest = hashlib.sha256(data).hexdigest()
        name = self.name(digest, named.get("namespace"), named.get("scope"))
        scope, meta = named.pop("scope", None), named.pop("meta", None)
        fields: dict[str, Any] = {"id": name, "size_bytes": len(data), "sha256": digest, "source": meta or {}}
        ref = ArtifactRef(**named, **fields, scope=None if scope is None else scope.model_dump())
        self.kept[name] = (ref, data)
        return ref

    async def put_text(self, text: str, **named: Any) -> Any:
        return await self.put_bytes(text.encode(), **{"mime_type": "text/plain", **named})

    async def get(self, artifact_id: str) -> bytes | None:
        return self.kept[artifact_id][1] if artifact_id in self.kept else None

    async def get_ref(self, artifact_id: str) -> Any:
        return self.kept[artifact_id][0] if artifact_id in self.kept else None

    async def exists(self, artifact_id: str) -> bool:
        return artifact_id in self.kept

    async def delete(self, artifact_id: str) -> bool:
        return self.kept.pop(artifact_id, None) is not None

    async def list(self, *, scope: Any = None) -> list[Any]:
        return [ref for ref, _ in self.kept.values() if Owner.of(ref.scope).matches(Owner.of(scope))]
