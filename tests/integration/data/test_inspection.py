"""Pages of the records of a subject, on every engine."""

from __future__ import annotations

import base64
import json

import pytest

from keelbolt.data import Inspection, Subject
from keelbolt.errors import InvalidValue, SubjectNotFound
from keelbolt.kernel import Delete, Insert, Kernel, open_storage
from keelbolt.state.codec import encode
from keelbolt.state.families import FAMILIES, MEMORY, partition_of
from keelbolt.state.names import name

USER = Subject(kind="user", id="ada")


def key(number: int, user: str = "ada") -> str:
    return f"default:{user}:s-{number}"


async def test_pages_of_a_subject_continue_after_the_last_record(kernel: Kernel) -> None:
    """Records that are added or removed between two pages don't shift the next page."""
    await kernel.declare(*FAMILIES)
    scope = kernel.scoped(partition_of("default"))

    async def add(number: int, user: str = "ada") -> None:
        await scope.commit(
            Insert(MEMORY, name(key(number, user)), encode({"key": key(number, user)}), {"saved": number})
        )

    for number in range(1, 13):
        await add(number)
        await add(number, "bob")
    look = Inspection(kernel)
    listed, token = list[str](), ""
    for change in range(20):
        page = await look.records(MEMORY, of=USER, limit=3, cursor=token)
        assert len(page["records"]) <= 3
        listed += [record["id"] for record in page["records"]]
        token = page["nextPageToken"]
        if not token:
            break
        await add(100 + change)  # newer than all listed records
        await scope.commit(Delete(MEMORY, name(key(12 - change))))  # already listed
    assert listed == [key(number) for number in range(12, 0, -1)]
    assert (await look.count(MEMORY, of=USER))["count"] == 12


@pytest.mark.parametrize("parts", [["a", [], "b"], ["a", "tasks", 5], ["a", None, None], [1, 2, 3], {}, 7])
async def test_a_ref_that_is_none_names_no_record(parts: object) -> None:
    ref = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()
    async with open_storage("memory:") as kernel:
        with pytest.raises(SubjectNotFound):
            await Inspection(kernel).show(ref)


async def test_an_unknown_kind_of_subject_is_refused() -> None:
    """An empty list would mean that a subject with a mistyped kind has no data."""
    async with open_storage("memory:") as kernel:
        look, wrong = Inspection(kernel), Subject(kind="sesion", id="s-1")
        with pytest.raises(InvalidValue, match="'sesion' is not a kind of subject; choose one of: "):
            await look.records(MEMORY, of=wrong)
        with pytest.raises(InvalidValue, match="'sesion' is not a kind of subject; choose one of: "):
            await look.count(MEMORY, of=wrong)
