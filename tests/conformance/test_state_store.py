"""The StateStore obeys its laws on every engine; penguiflow's own store breaks those in `DEVIATIONS`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from penguiflow.state import InMemoryStateStore

from keelbolt.conformance.pytest import state_store_laws
from keelbolt.conformance.state_store import CAPABILITIES, StateStorePlace, StateStoreSubject, capabilities_of, validate
from keelbolt.state import HybridStateStore, StateStore, StateStoreSessionAdapter
from keelbolt.state.classes import Types
from keelbolt.testing import postgres, valkey

pytest_plugins = ["keelbolt.testing.pytest"]

# Laws that penguiflow 3.11.2 breaks. Remove a law that it obeys again; add one that it newly breaks.
DEVIATIONS = {
    "a_saved_event_is_a_copy": "events are kept as the objects that they are",
    "a_saved_pause_is_a_copy": "payloads of pauses are copied one level deep",
    "a_saved_memory_is_a_copy": "states of memory are copied one level deep",
    "an_update_saved_again_is_stored_once": "updates are not known by their ids",
    "a_steering_event_saved_again_is_stored_once": "steering events are not known by their ids",
    "a_planner_event_saved_again_is_stored_once": "planner events are appended, repeats too",
    "cursors_return_every_update": "with a cursor the last N are listed, so pages leave updates out",
    "steering_pages_return_every_event": "with a cursor the last N are listed, so pages leave events out",
    "one_trace_in_two_sessions_is_two_trajectories": "trajectories are known by their trace alone",
    "equal_bytes_of_two_sessions_are_two_artifacts": "artifacts are known by a hash of their bytes alone",
}

BEYOND_THE_SPECIFICATION = {
    "bulk",
    "history_pages",
    "memory_versions",
    "pause_leases",
    "waiting_pauses",
}  # capabilities that penguiflow does not have


@pytest.fixture(scope="module", autouse=True)
def servers(keelbolt_postgres: postgres.PostgresServer, keelbolt_valkey: valkey.ValkeyServer) -> Iterator[None]:
    """One database for all laws; each place is a tenant of it."""
    with keelbolt_postgres.database() as database, pytest.MonkeyPatch.context() as patch:
        patch.setenv(postgres.URL_VARIABLE, database)
        patch.setenv(valkey.URL_VARIABLE, keelbolt_valkey.create_database())
        yield


def sqlite(place: StateStorePlace) -> StateStore:
    return StateStore(f"sqlite:///{place.directory}/state.db")


def postgresql(place: StateStorePlace) -> StateStore:
    return StateStore(os.environ[postgres.URL_VARIABLE], tenant=place.name)


def on_redis(place: StateStorePlace) -> StateStore:
    return StateStore(os.environ[valkey.URL_VARIABLE], tenant=place.name, types="own")


ALL = capabilities_of(StateStore)

test_memory = state_store_laws(StateStoreSubject("memory", lambda _place: StateStore("memory:"), capabilities=ALL))
test_sqlite = state_store_laws(StateStoreSubject("SQLite", sqlite, capabilities=ALL, persistent=True, processes=True))
test_postgresql = state_store_laws(
    StateStoreSubject("PostgreSQL", postgresql, capabilities=ALL, persistent=True, processes=True)
)
test_redis = state_store_laws(
    StateStoreSubject("Redis", on_redis, capabilities=ALL, persistent=True, types=Types("own"), processes=True)
)


class Adapted(StateStoreSessionAdapter):
    """penguiflow's store, with only the three methods."""

    def __init__(self) -> None:
        inner = InMemoryStateStore()
        super().__init__(inner)
        self.save_event, self.load_history = inner.save_event, inner.load_history
        self.save_remote_binding = inner.save_remote_binding


def hybrid() -> HybridStateStore:
    return HybridStateStore(StateStore("memory:"), fast=StateStore("memory:"))


async def test_sessions_over_three_methods_obey_the_laws_of_sessions() -> None:
    report = await validate(Adapted, only=["sessions"])
    assert report.ok, str(report)
    assert not report.skipped


async def test_a_hybrid_store_obeys_every_law() -> None:
    report = await validate(hybrid)
    assert report.ok, str(report)
    assert {finding.law.needs for finding in report.skipped} == {"persistent", "processes"}


def test_our_store_has_every_capability() -> None:
    assert {*CAPABILITIES} == {*ALL}


async def test_penguiflows_own_store_breaks_only_the_listed_laws() -> None:
    report = await validate(InMemoryStateStore)
    assert {finding.law.name for finding in report.failed} == set(DEVIATIONS), str(report)
    assert {finding.law.needs for finding in report.skipped} == {"persistent", "processes", *BEYOND_THE_SPECIFICATION}
