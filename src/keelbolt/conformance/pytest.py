"""The laws as pytest, one test each. In a test file of your engine:

from keelbolt.conformance.pytest import storage_laws

test_law = storage_laws(my_factory)

and in one of your storage of tasks:

from keelbolt.conformance.pytest import task_storage_laws

test_law = task_storage_laws(MyStorage)

and in one of your StateStore:

from keelbolt.conformance.pytest import state_store_laws

test_law = state_store_laws(MyStateStore)

and in one of your storage of turns:

from keelbolt.conformance.pytest import turn_callbacks_laws

test_law = turn_callbacks_laws(make_storage)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from keelbolt.conformance.law import STORAGE
from keelbolt.conformance.state_store import StatePlace, StateStoreSubject, state_subject_of
from keelbolt.conformance.state_store.law import STATE
from keelbolt.conformance.storage import DataPlace, KernelSubject, subject_of
from keelbolt.conformance.suite import Checked, Law, P, Suite
from keelbolt.conformance.task_law import TASKS, AnyStorage, StoragePlace, TaskStorageSubject, task_subject_of
from keelbolt.conformance.turn_callbacks import TurnCallbacksSubject, TurnPlace, turn_subject_of
from keelbolt.conformance.turn_callbacks.law import TURNS
from keelbolt.kernel.contract import Kernel


def storage_laws(given: KernelSubject | Callable[..., KernelSubject | Kernel]) -> Callable[[Law[DataPlace]], None]:
    """A parametrised test: one case for each law that applies to the subject."""
    return _laws(STORAGE, subject_of(given), "every law of the storage kernel")


def task_storage_laws(
    given: TaskStorageSubject | Callable[[], TaskStorageSubject | AnyStorage],
) -> Callable[[Law[StoragePlace]], None]:
    """A parametrised test: one case for each law of task storages that applies to the subject."""
    return _laws(TASKS, task_subject_of(given), "every law of task storages that applies to it")


def state_store_laws(given: StateStoreSubject | Callable[[], Any]) -> Callable[[Law[StatePlace]], None]:
    """A parametrised test: one case for each law of StateStores that applies to the subject."""
    subject = asyncio.run(state_subject_of(given).probed())
    return _laws(STATE, subject, "every law of the StateStore that applies to it")


def turn_callbacks_laws(given: TurnCallbacksSubject | Callable[[], Any]) -> Callable[[Law[TurnPlace]], None]:
    """A parametrised test: one case for each law of the callbacks of turns that applies to the subject."""
    subject = asyncio.run(turn_subject_of(given).probed())
    return _laws(TURNS, subject, "every law of the callbacks of turns that applies to it")


def _laws(suite: Suite[P], subject: Checked[P], what: str) -> Callable[[Law[P]], None]:
    laws = [pytest.param(law, id=f"{law.group}-{law.name}") for law in suite.laws if subject.can(law.needs)]

    @pytest.mark.parametrize("law", laws)
    def test_law(law: Law[P]) -> None:
        asyncio.run(law.check(subject))

    test_law.__doc__ = f"{subject.name} obeys {what}."
    return test_law
