"""Faults of events, bindings, pauses and memory."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

from keelbolt.state.events.traces import HistoryPage
from tests.conformance.broken.state_store.fault import caught_by
from tests.conformance.broken.state_store.kept import Kept

# ------------------------------------------------------------------------------------------------------------ events


@caught_by("events_are_loaded")
class ForgetsTheNode(Kept):
    async def load_history(self, trace_id: str) -> Any:
        history = await super().load_history(trace_id)
        for event in history:
            event.node_id = None
        return history


@caught_by("an_unknown_trace_has_no_history")
class RaisesForUnknownTraces(Kept):
    async def load_history(self, trace_id: str) -> Any:
        if trace_id not in self.data.events:
            raise LookupError(trace_id)
        return await super().load_history(trace_id)


@caught_by("methods_are_coroutine_functions")
class AnswersWithAnAwaitable(Kept):
    def save_event(self, event: Any) -> Any:
        return asyncio.ensure_future(super().save_event(event))


@caught_by("history_is_ordered_by_time")
class OrdersByArrival(Kept):
    async def load_history(self, trace_id: str) -> Any:
        return copy.deepcopy(self.data.events.get(trace_id, []))


@caught_by("events_of_one_moment_keep_their_order")
class OrdersByNode(Kept):
    async def load_history(self, trace_id: str) -> Any:
        return sorted(await super().load_history(trace_id), key=lambda event: (event.ts, event.node_name))


@caught_by("an_event_saved_again_is_stored_once", "events_survive")
class KeepsRepeats(Kept):
    async def save_event(self, event: Any) -> None:
        self.data.events[event.trace_id or "__global__"].append(copy.deepcopy(event))


@caught_by("different_events_are_all_stored")
class KnowsEventsByTheirTime(Kept):
    async def save_event(self, event: Any) -> None:
        if all(known.ts != event.ts for known in self.data.events[event.trace_id or ""]):
            await super().save_event(event)


@caught_by("traces_are_separate")
class TakesBeginningsOfTraces(Kept):
    async def load_history(self, trace_id: str) -> Any:
        found = [trace for trace in self.data.events if trace.startswith(trace_id)]
        return [event for trace in found for event in await super(TakesBeginningsOfTraces, self).load_history(trace)]


@caught_by("events_without_a_trace_are_saved")
class NeedsATrace(Kept):
    async def save_event(self, event: Any) -> None:
        if event.trace_id is None:
            raise ValueError(event.trace_id)
        await super().save_event(event)


@caught_by("unknown_kinds_are_stored")
class KnowsItsKinds(Kept):
    async def save_event(self, event: Any) -> None:
        if event.kind.startswith(("node_", "remote_", "session.")):
            await super().save_event(event)


@caught_by("payloads_are_lossless")
class KeepsNumbersAsFloats(Kept):
    async def save_event(self, event: Any) -> None:
        event = copy.deepcopy(event)
        event.payload = json.loads(json.dumps(dict(event.payload)), parse_int=float)
        await super().save_event(event)


@caught_by("a_saved_event_is_a_copy")
class KeepsTheCallersEvent(Kept):
    async def save_event(self, event: Any) -> None:
        self.data.events[event.trace_id or "__global__"].append(event)


@caught_by("a_history_is_a_sequence")
class StreamsItsHistory(Kept):
    async def load_history(self, trace_id: str) -> Any:
        return iter(await super().load_history(trace_id))


@caught_by("save_events_bulk_is_atomic")
class SavesTheFirstOfABulk(Kept):
    async def save_events_bulk(self, events: Any) -> None:
        for event in events:
            await self.save_event(event)


@caught_by("a_long_history_is_read_in_pages")
class LeavesOutTheFirstOfEachPage(Kept):
    async def load_history_page(self, trace_id: str, *, after: int = 0, limit: int = 1000) -> Any:
        page = await super().load_history_page(trace_id, after=after, limit=limit)
        return HistoryPage(page.events[1:] if after else page.events, page.next)


@caught_by("an_awaited_save_is_committed")
class AcknowledgesBeforeTheCommit(Kept):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.behind: list[Any] = []

    async def save_event(self, event: Any) -> None:
        self.behind.append(event)

    async def load_history(self, trace_id: str) -> Any:
        await self.close()
        return await super().load_history(trace_id)

    async def close(self) -> None:
        while self.behind:
            await super().save_event(self.behind.pop(0))


# ---------------------------------------------------------------------------------------------------------- bindings


@caught_by("bindings_are_saved")
class RefusesKnownBindings(Kept):
    async def save_remote_binding(self, binding: Any) -> None:
        if (binding.trace_id, binding.context_id, binding.task_id) in self.data.bindings:
            raise RuntimeError(binding)
        await super().save_remote_binding(binding)


@caught_by("an_open_binding_is_found")
class LosesTheMetadata(Kept):
    async def find_binding(self, **wanted: Any) -> Any:
        binding = await super().find_binding(**wanted)
        if binding is not None:
            binding.metadata = {}
        return binding


@caught_by("the_last_open_binding_is_found")
class FindsTheFirst(Kept):
    async def find_binding(self, **wanted: Any) -> Any:
        self.data.bindings = dict(reversed(self.data.bindings.items()))
        return await super().find_binding(**wanted)


@caught_by("an_ended_binding_is_not_found")
class NeverEnds(Kept):
    async def mark_binding_terminal(self, **_wanted: Any) -> None: ...


@caught_by("bindings_of_others_are_not_found")
class FindsForEverybody(Kept):
    async def find_binding(self, **wanted: Any) -> Any:
        for binding in self.data.bindings.values():
            if binding.router_session_id == wanted["router_session_id"]:
                return binding
        return None


@caught_by("bindings_are_keyed_by_trace_context_and_task")
class KnowsBindingsByTraceAndTask(Kept):
    async def save_remote_binding(self, binding: Any) -> None:
        self.data.bindings[binding.trace_id, None, binding.task_id] = binding


# ------------------------------------------------------------------------------------------------- pauses and memory


@caught_by("a_pause_is_loaded")
class KeepsThePayloadAlone(Kept):
    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        await super().save_planner_state(token, {key: value for key, value in payload.items() if value is not None})


@caught_by("a_pause_is_taken_once")
class GivesPausesTwice(Kept):
    async def load_planner_state(self, token: str) -> Any:
        return copy.deepcopy(self.data.pauses.get(token))


@caught_by("one_of_many_takes_a_pause")
class ReadsThenDeletes(Kept):
    async def load_planner_state(self, token: str) -> Any:
        found = self.data.pauses.get(token)
        await asyncio.sleep(0)
        self.data.pauses.pop(token, None)
        return found


@caught_by("an_unknown_token_is_none")
class AnswersAnEmptyPause(Kept):
    async def load_planner_state(self, token: str) -> Any:
        return await super().load_planner_state(token) or {}


@caught_by("a_pause_saved_again_is_replaced")
class KeepsTheFirstPause(Kept):
    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        self.data.pauses.setdefault(token, copy.deepcopy(payload))


@caught_by("a_saved_pause_is_a_copy")
class CopiesPausesFlat(Kept):
    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        self.data.pauses[token] = dict(payload)


@caught_by("waiting_pauses_are_listed_and_stay")
class TakesWhatItShows(Kept):
    async def get_pause(self, token: str) -> Any:
        shown = await super().get_pause(token)
        self.data.pauses.pop(token, None)
        return shown


@caught_by("a_cancelled_pause_is_gone")
class OnlySaysCancelled(Kept):
    async def cancel_pause(self, token: str) -> bool:
        return token in self.data.pauses


@caught_by("a_pause_taken_with_a_lease_is_taken_once")
class LoadsInSpiteOfLeases(Kept):
    async def load_planner_state(self, token: str) -> Any:
        return self.data.pauses.pop(token, None)


@caught_by("a_pause_is_available_when_its_lease_ends")
class LeasesForEver(Kept):
    def leased(self, token: str) -> bool:
        return token in self.data.leases


@caught_by("memory_is_loaded")
class ForgetsLoadedMemory(Kept):
    async def load_memory_state(self, key: str) -> Any:
        return self.data.memory.pop(key, None)


@caught_by("an_unknown_key_is_none")
class AnswersAnEmptyMemory(Kept):
    async def load_memory_state(self, key: str) -> Any:
        return await super().load_memory_state(key) or {}


@caught_by("memory_is_replaced")
class MergesMemory(Kept):
    async def save_memory_state(self, key: str, state: dict[str, Any], if_version: int | None = None) -> None:
        await super().save_memory_state(key, {**self.data.memory.get(key, {}), **state})


@caught_by("keys_are_separate_and_may_be_long")
class CutsKeys(Kept):
    async def save_memory_state(self, key: str, state: dict[str, Any], if_version: int | None = None) -> None:
        await super().save_memory_state(key[:256], state)

    async def load_memory_state(self, key: str) -> Any:
        return await super().load_memory_state(key[:256])


@caught_by("a_saved_memory_is_a_copy")
class CopiesMemoryFlat(Kept):
    async def save_memory_state(self, key: str, state: dict[str, Any], if_version: int | None = None) -> None:
        self.data.memory[key] = dict(state)


@caught_by("if_version_refuses_a_stale_memory")
class IgnoresVersions(Kept):
    async def save_memory_state(self, key: str, state: dict[str, Any], if_version: int | None = None) -> None:
        await super().save_memory_state(key, state)


@caught_by("two_writers_of_a_memory_lose_nothing")
class LooksAtTheVersionAndThenSaves(Kept):
    async def save_memory_state(self, key: str, state: dict[str, Any], if_version: int | None = None) -> None:
        if if_version not in (None, self.data.versions[key]):
            raise ValueError(if_version)
        await asyncio.sleep(0)
        await super().save_memory_state(key, state)


@caught_by("pauses_and_memory_survive")
class ForgetsPausesAtItsEnd(Kept):
    async def close(self) -> None:
        self.data.pauses.clear()
