"""The laws as pytest, one test each. In a test file of your engine:

from holdfast.conformance.pytest import storage_laws

test_law = storage_laws(my_factory)

and in one of your storage of tasks:

from holdfast.conformance.pytest import task_storage_laws

test_law = task_storage_laws(MyStorage)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.conformance import task_storage
from holdfast.conformance.storage import Law, Subject, all_laws, subject_of
from holdfast.conformance.task_law import AnyStorage, TaskLaw, TaskStorageSubject, task_subject_of
from holdfast.storage.contract import Kernel


def storage_laws(given: Subject | Callable[..., Subject | Kernel]) -> Callable[[Law], None]:
    """A parametrised test: one case for each law that applies to the subject."""
    subject = subject_of(given)
    laws = [pytest.param(law, id=f"{law.group}-{law.name}") for law in all_laws() if subject.can(law.needs)]

    @pytest.mark.parametrize("law", laws)
    def test_law(law: Law) -> None:
        asyncio.run(law.check(subject))

    test_law.__doc__ = f"{subject.name} obeys every law of the storage kernel."
    return test_law


def task_storage_laws(
    given: TaskStorageSubject | Callable[[], TaskStorageSubject | AnyStorage],
) -> Callable[[TaskLaw], None]:
    """A parametrised test: one case for each law of task storages that applies to the subject."""
    subject = task_subject_of(given)
    laws = [
        pytest.param(law, id=f"{law.group}-{law.name}") for law in task_storage.all_laws() if subject.can(law.needs)
    ]

    @pytest.mark.parametrize("law", laws)
    def test_law(law: TaskLaw) -> None:
        asyncio.run(law.check(subject))

    test_law.__doc__ = f"{subject.name} obeys every law of task storages that applies to it."
    return test_law
