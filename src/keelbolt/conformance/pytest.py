"""The laws as pytest, one test each. In a test file of your engine:

from keelbolt.conformance.pytest import kernel_laws

test_law = kernel_laws(my_factory)

`task_storage_laws`, `state_store_laws` and `turn_callbacks_laws` do the same for the other suites.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from keelbolt.conformance import kernel, state_store, task_storage, turn_callbacks
from keelbolt.conformance.suite import ConformanceSubject, Law, P, Suite


def _laws(suite: Suite[P, Any], given: ConformanceSubject[P] | Callable[..., Any]) -> Callable[[Law[P]], None]:
    """A parametrised test with one case for each law that applies to this subject, or to the subject of a factory."""
    subject = asyncio.run(suite.subject.of(given).probed())
    laws = [pytest.param(law, id=f"{law.group}-{law.name}") for law in suite.all_laws() if subject.can(law.needs)]

    @pytest.mark.parametrize("law", laws)
    def test_law(law: Law[P]) -> None:
        asyncio.run(law.check(subject))

    test_law.__doc__ = f"{suite.title} that apply to {subject.name}."
    test: Callable[[Law[P]], None] = test_law
    return test


kernel_laws = partial(_laws, kernel.SUITE)
task_storage_laws = partial(_laws, task_storage.SUITE)
state_store_laws = partial(_laws, state_store.SUITE)
turn_callbacks_laws = partial(_laws, turn_callbacks.SUITE)
