"""All engines accept the same commits while a store is full."""

from __future__ import annotations

import pytest

from keelbolt.kernel import (
    Absent,
    Append,
    Attach,
    Bury,
    Complete,
    Delete,
    Detach,
    Draft,
    Drop,
    Enqueue,
    Fence,
    FieldIn,
    Head,
    Insert,
    Operation,
    Patch,
    Present,
    Put,
    Release,
    Remove,
    Replace,
    Retry,
    Take,
    Trim,
    Version,
)
from keelbolt.kernel.commits import RELIEF_BYTES, relieves
from keelbolt.kernel.records import Expire

RELIEF: tuple[Operation, ...] = (
    Delete("note", "a"),
    Expire("note", "a"),
    Take("note", "a"),
    Trim("log", "a", 1),
    Drop("log", "a"),
    Complete("jobs", "a", 1),
    Release("jobs", "a", 1),
    Retry("jobs", "a", 1, "why"),
    Bury("jobs", "a", 1, "why"),
    Remove("jobs", "a"),
    Detach("d", "me"),
)
OTHERS: tuple[Operation, ...] = (
    Insert("note", "b", b""),
    Put("note", "b", b""),
    Replace("note", "b", 1, b""),
    Patch("note", "b", {}),
    Append("log", "b", (Draft("x", b""),)),
    Enqueue("jobs", "b"),
    Attach("d", "me"),
    Version("note", "b", 1),
    Absent("note", "b"),
    Present("note", "b"),
    FieldIn("note", "b", "state", ()),
    Head("log", "b", 1),
    Fence("jobs", "b", 1),
)


@pytest.mark.parametrize("operation", RELIEF, ids=lambda operation: type(operation).__name__)
def test_commits_that_free_space_pass(operation: Operation) -> None:
    assert relieves((operation,))
    assert all(relieves((other, operation)) for other in OTHERS)


@pytest.mark.parametrize("operation", OTHERS, ids=lambda operation: type(operation).__name__)
def test_commits_that_free_no_space_are_refused(operation: Operation) -> None:
    assert not relieves((operation,))


def test_the_end_of_a_task_passes_unless_it_adds_much() -> None:
    half = b"x" * (RELIEF_BYTES // 2)
    end = (Replace("task", "a", 1, half), Append("log", "a", (Draft("x", half),)), Complete("jobs", "a", 1))
    assert relieves(end)
    assert not relieves((*end, Put("note", "a", b"x")))
