"""Claims: their validity, and the principal that they identify."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.auth.claims import ClaimMapping, ClaimRules
from keelbolt.auth.principal import Principal
from keelbolt.errors import AuthMisconfigured, CredentialsRefused

NOW = 1_000_000
RULES = ClaimRules(frozenset({"us", "them"}), frozenset({"agent"}), ("scope",), 10.0)
GOOD: dict[str, Any] = {"exp": NOW + 60, "iss": "us", "aud": "agent", "scope": "x"}


def reason(rules: ClaimRules, **changed: Any) -> str | None:
    found = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    try:
        rules.check(found, now=NOW)
    except CredentialsRefused as refusal:
        return refusal.reason
    return None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"iss": "them"}, None),
        ({"aud": ["other", "agent"]}, None),
        ({"nbf": NOW - 5, "iat": NOW - 5.5}, None),
        ({"exp": None}, "claims"),
        ({"exp": str(NOW + 60)}, "claims"),
        ({"exp": True}, "claims"),
        ({"exp": float("inf")}, "claims"),
        ({"exp": [NOW + 60]}, "claims"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": NOW - 9}, None),  # the leeway
        ({"exp": NOW - 10}, "expired"),
        ({"nbf": NOW + 9}, None),
        ({"nbf": NOW + 60}, "early"),
        ({"iat": NOW + 60}, "early"),
        ({"nbf": "soon"}, "claims"),
        ({"iss": "evil"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"iss": ["us"]}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [5, "agent"]}, "audience"),
        ({"aud": {"agent": 1}}, "audience"),
        ({"scope": None}, "claims"),
    ],
)
def test_claims_must_be_valid(changed: dict[str, Any], expected: str | None) -> None:
    assert reason(RULES, **changed) == expected


@pytest.mark.parametrize("audience", ["agent", ["a", "b"], None, 5])
def test_the_audience_is_checked_if_it_is_configured(audience: Any) -> None:
    assert reason(ClaimRules(), aud=audience) is None
    assert reason(RULES, aud=audience) == (None if audience == "agent" else "audience")


def test_a_token_without_an_expiry_is_accepted_if_configured() -> None:
    assert reason(ClaimRules(), exp=None) == "claims"
    rules = ClaimRules(require_exp=False)
    assert reason(rules, exp=None) is None
    assert reason(rules, exp=NOW - 60) == "expired"
    assert reason(rules, exp="never") == "claims"


@pytest.mark.parametrize(("sub", "owner"), [(5, "5"), (0, "0"), (-1, "-1"), (2**70, str(2**70))])
def test_a_number_is_a_valid_subject(sub: int, owner: str) -> None:
    assert ClaimMapping().principal({"sub": sub}).owner == owner


def test_a_huge_number_is_not_a_time() -> None:
    for name in ("exp", "nbf", "iat"):
        assert reason(RULES, **{name: 10**400}) == reason(RULES, **{name: -(10**400)}) == "claims"


@pytest.mark.parametrize("leeway", [-1, 601, float("nan")])
def test_the_leeway_is_limited(leeway: float) -> None:
    with pytest.raises(AuthMisconfigured):
        ClaimRules(leeway_seconds=leeway)


def test_the_default_claims_form_the_principal() -> None:
    found = ClaimMapping().principal({"sub": "alice", "roles": ["admin"], "email": "a@b"})
    assert found == Principal("alice", roles=frozenset({"admin"}), type="user")
    assert ClaimMapping().principal({"sub": "a", "type": "service"}, tenant="acme") == Principal(
        "a", "acme", type="service"
    )


def test_other_claims_can_be_configured() -> None:
    mapping = ClaimMapping(
        id_claim="oid",
        type_claim="kind",
        roles_claim=("realm_access", "roles"),
        attrs_claims=["email", "absent"],
        tenant_claim="tid",
    )
    claims = {"oid": "7", "kind": "robot", "realm_access": {"roles": ["x"]}, "email": "a@b", "tid": "acme", "sub": "no"}
    assert mapping.principal(claims) == Principal("7", "acme", frozenset({"x"}), {"email": "a@b"}, "robot")


def test_a_scope_is_a_list_of_roles() -> None:
    assert ClaimMapping(roles_claim="scope").principal({"sub": "a", "scope": "read write"}).roles == {"read", "write"}


@pytest.mark.parametrize(
    ("mapping", "claims"),
    [
        (ClaimMapping(), {}),
        (ClaimMapping(), {"sub": ""}),
        (ClaimMapping(), {"sub": True}),
        (ClaimMapping(), {"sub": 5.0}),
        (ClaimMapping(), {"sub": ["alice"]}),
        (ClaimMapping(tenant_claim="tid"), {"sub": "alice"}),
        (ClaimMapping(tenant_claim="tid"), {"sub": "alice", "tid": ""}),
        (ClaimMapping(tenant_claim=("org", "id")), {"sub": "alice", "org": "acme"}),
        (ClaimMapping(), {"sub": "alice", "roles": {"admin": True}}),
        (ClaimMapping(), {"sub": "alice", "roles": ["admin", 5]}),
    ],
)
def test_claims_without_a_principal_are_refused(mapping: ClaimMapping, claims: dict[str, Any]) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        mapping.principal(claims)
    assert caught.value.reason == "claims"
