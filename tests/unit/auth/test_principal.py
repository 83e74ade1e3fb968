"""The principal: an immutable value with its own partition."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.kernel.contract import MAX_PARTITION_BYTES
from keelbolt.kernel.requests import check_partition

NAMES = st.text(max_size=30) | st.text(alphabet="/%~a", max_size=6) | st.text(alphabet="aé", min_size=90, max_size=210)


@pytest.mark.parametrize(
    ("principal", "partition"),
    [
        (Principal("alice"), "alice"),
        (Principal("alice@example.com", "acme"), "acme/alice@example.com"),
        (Principal("auth0|5f7c", "acme-eu"), "acme-eu/auth0|5f7c"),
        (Principal(tenant="acme"), "acme/"),
        (Principal("a/b c"), "a%2Fb%20c"),
        (Principal("é"), "%C3%A9"),
        (Principal("alice", asked_tenant="acme"), "alice//acme"),
        (Principal(asked_tenant="acme"), "~anonymous//acme"),
        (ANONYMOUS, "~anonymous"),
        (Principal("~anonymous"), "%7Eanonymous"),
        (Principal("\ud800\0"), "%ED%A0%80%00"),
    ],
)
def test_partitions_are_readable(principal: Principal, partition: str) -> None:
    assert principal.partition == partition


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_partition_belongs_to_one_tenant_and_owner(tenant: str, owner: str, tenant2: str, owner2: str) -> None:
    one, other = Principal(owner, tenant), Principal(owner2, tenant2)
    check_partition(one.partition)
    assert len(one.partition.encode()) <= MAX_PARTITION_BYTES
    assert (one.partition == other.partition) == ((tenant, owner) == (tenant2, owner2))


@given(NAMES, NAMES, NAMES, NAMES)
def test_an_asked_tenant_has_its_own_partition(tenant: str, owner: str, tenant2: str, owner2: str) -> None:
    """A requested tenant gets its own partition, never that of an authenticated tenant."""
    asked, vouched = Principal(owner or "x", asked_tenant=tenant or "t"), Principal(owner2, tenant2)
    check_partition(asked.partition)
    assert asked.partition != vouched.partition
    other = Principal(owner2 or "x", asked_tenant=tenant2 or "t")
    same = (asked.asked_tenant, asked.owner) == (other.asked_tenant, other.owner)
    assert (asked.partition == other.partition) == same
    assert Principal.from_json(asked.to_json()) == asked


def test_a_long_name_keeps_its_head_and_gets_a_digest() -> None:
    one, other = Principal("x" * 300 + "1", "acme"), Principal("x" * 300 + "2", "acme")
    assert one.partition.startswith("acme/xxx")
    assert len(one.partition) <= MAX_PARTITION_BYTES
    assert one.partition != other.partition
    digest = one.partition.rpartition("~")[2]
    assert (
        Principal(one.partition.removeprefix("acme/"), "acme").partition != one.partition
    )  # no other name collides with it
    assert Principal("x" * 115 + digest, "acme").partition != one.partition


def test_claims_roles_and_type_do_not_change_the_partition() -> None:
    assert Principal("a", "t", frozenset({"admin"}), {"x": 1}, "service").partition == Principal("a", "t").partition


def test_it_survives_storage_unchanged() -> None:
    principal = Principal("alice", "acme", frozenset({"b", "a"}), {"email": "a@b", "n": [1]}, "user")
    stored = json.dumps(principal.to_json())
    assert Principal.from_json(json.loads(stored)) == principal
    assert Principal.from_json({}) == ANONYMOUS
    assert pickle.loads(pickle.dumps(principal)) == principal
    assert copy.deepcopy(principal) == principal
    assert len({principal, replace(principal, claims={})}) == 2


def test_it_is_immutable() -> None:
    source: dict[str, Any] = {"a": 1}
    principal = Principal("alice", claims=source)
    source["a"] = 2
    assert principal.claims == {"a": 1}
    with pytest.raises(FrozenInstanceError):
        principal.owner = "bob"  # type: ignore[misc]
    with pytest.raises(TypeError):
        principal.claims["a"] = 3  # type: ignore[index]


def test_repr_does_not_contain_claims() -> None:
    assert "secret" not in repr(Principal("alice", claims={"k": "secret"}))


def test_a_tenant_alone_is_anonymous() -> None:
    assert ANONYMOUS.anonymous
    assert Principal(tenant="acme").anonymous
    assert not Principal("alice").anonymous


@pytest.mark.parametrize("wrong", [{"owner": None}, {"tenant": 5}, {"roles": "admin"}, {"roles": [1]}, {"type": None}])
def test_wrong_types_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Principal(**wrong)
