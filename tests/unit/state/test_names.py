"""Storage keys of ids: any text is an id, and different ids have different keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.auth import Principal
from keelbolt.errors import InvalidState
from keelbolt.kernel.requests import check_key, check_partition
from keelbolt.state.families import partition_of
from keelbolt.state.names import joined, name, unnamed

ids = st.text(st.characters(codec=None, categories=None)) | st.sampled_from(["", "%", "~", "a/b", "\0", "k" * 10_000])


@given(ids)
def test_every_id_has_a_key_that_every_engine_accepts(text: str) -> None:
    check_key(name(text))
    assert unnamed(name(text)) in (text, None)
    assert (unnamed(name(text)) is None) == name(text).startswith("~")


@given(st.tuples(ids | st.none(), ids), st.tuples(ids | st.none(), ids))
def test_different_ids_have_different_names(first: tuple[str | None, str], second: tuple[str | None, str]) -> None:
    assert (joined(*first) == joined(*second)) == (first == second)


def test_plain_ids_stay_readable() -> None:
    assert name("user:42@acme") == "user:42@acme"
    assert joined("trace", None, "task") == "trace//task"


def test_an_id_is_a_string() -> None:
    with pytest.raises(InvalidState, match="not int"):
        name(7)


@given(ids, ids, ids)
def test_partitions_of_state_and_tasks_are_disjoint(tenant: str, owner: str, whose: str) -> None:
    check_partition(partition_of(tenant))
    assert partition_of(tenant) not in {
        Principal(owner=owner, tenant=whose).partition,
        Principal(owner=owner, asked_tenant=whose).partition,
    }
