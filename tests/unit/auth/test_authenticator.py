"""The resolver: accepts only callers that its authenticator recognises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.datastructures import Headers

from keelbolt.auth import (
    ANONYMOUS,
    APIKeyAuthenticator,
    Authenticator,
    JWTAuthenticator,
    Principal,
    Resolver,
    acting_as,
    auth_identity_var,
)
from keelbolt.errors import AuthenticationFailed, AuthMisconfigured, CredentialsMissing, CredentialsRefused
from tests.unit.auth.issuer import AUDIENCE, ISSUER, SECRET, bearer, token


@dataclass(frozen=True)
class Identity:
    """The shape of apcore's identity."""

    id: str
    type: str = "user"
    roles: tuple[str, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)


class Plain:
    """An authenticator that is a plain function, as users write them."""

    def __init__(self, answer: Callable[[dict[str, str]], Any]) -> None:
        self._answer = answer

    def authenticate(self, headers: dict[str, str]) -> Any:
        return self._answer(headers)

    def security_schemes(self) -> list[dict[str, Any]]:
        return [{"type": "http", "scheme": "bearer"}, {"type": "apiKey", "in": "header", "name": "X-Key"}]


class Slow(Plain):
    async def authenticate(self, headers: dict[str, str]) -> Any:
        await asyncio.sleep(0)
        return self._answer(headers)


ALICE = Principal("alice", "acme", frozenset({"a"}), {"tenant": "acme", "x": 1}, "service")


@pytest.mark.parametrize("kind", [Plain, Slow])
@pytest.mark.parametrize(
    ("identity", "principal"),
    [
        (ALICE, ALICE),
        ("alice", Principal("alice")),
        (Identity("alice"), Principal("alice", type="user")),
        (Identity("alice", "service", ("a",), {"tenant": "acme", "x": 1}), ALICE),
        ({"owner": "alice", "tenant": "t", "roles": ["a"]}, Principal("alice", "t", frozenset({"a"}))),
        ({"id": "alice", "type": "user", "attrs": {"x": 1}}, Principal("alice", claims={"x": 1}, type="user")),
        ({"sub": "alice"}, Principal("alice")),
    ],
)
async def test_identities_of_every_shape_become_principals(
    kind: type[Plain], identity: Any, principal: Principal
) -> None:
    authenticator = kind(lambda _: identity)
    assert isinstance(authenticator, Authenticator)
    assert await Resolver(authenticator).principal(bearer("x")) == principal


@pytest.mark.parametrize(
    "answer", [True, 5, object(), {}, {"owner": None}, {"id": 5}, {"id": "a", "roles": "admin"}, [1]]
)
async def test_a_result_that_is_not_an_identity_is_refused(answer: Any) -> None:
    with pytest.raises(AuthMisconfigured, match="not an identity"):
        await Resolver(Plain(lambda _: answer), require_auth=False).principal(bearer("x"))


@pytest.mark.parametrize("answer", [None, "", ANONYMOUS, Principal(tenant="acme"), {"sub": ""}, Identity("")])
async def test_an_anonymous_caller_is_refused(answer: Any) -> None:
    resolver = Resolver(Plain(lambda _: answer))
    with pytest.raises(CredentialsMissing) as missing:
        await resolver.principal({"accept": "*/*"})
    assert missing.value.challenge == 'Bearer realm="agent", ApiKey realm="agent", name="X-Key"'
    for headers in (bearer("x"), {"x-key": "x"}, {"X-Key": "x"}):
        with pytest.raises(CredentialsRefused) as refused:
            await resolver.principal(headers)
        assert 'error="invalid_token"' in refused.value.challenge


async def test_where_authentication_is_optional_a_wrong_token_is_still_refused() -> None:
    resolver = Resolver(JWTAuthenticator(SECRET, audience=AUDIENCE, issuer=ISSUER), require_auth=False)
    assert await resolver.principal({}) == ANONYMOUS
    assert await resolver.principal(bearer(token())) == Principal("alice", type="user")
    for wrong in (bearer(token(exp=1)), bearer("x"), {"authorization": "Basic YTpi"}, {"authorization": ""}):
        with pytest.raises(CredentialsRefused):
            await resolver.principal(wrong)

    keys = Resolver(APIKeyAuthenticator.of({"k" * 20: "alice"}), require_auth=False)
    assert await keys.principal({"cookie": "theme=dark"}) == ANONYMOUS
    for wrong in ({"x-api-key": "x"}, {"X-API-KEY": ""}, bearer("x")):
        with pytest.raises(CredentialsRefused):
            await keys.principal(wrong)


async def test_an_authenticator_that_returns_none_for_a_wrong_token_is_supported() -> None:
    resolver = Resolver(Plain(lambda _: None), require_auth=False)
    assert await resolver.principal({}) == ANONYMOUS
    with pytest.raises(CredentialsRefused):
        await resolver.principal(bearer("wrong"))


async def test_header_names_are_lower_case() -> None:
    seen: list[dict[str, str]] = []
    resolver = Resolver(Plain(lambda headers: seen.append(headers) or "alice"))  # type: ignore[func-returns-value]
    await resolver.principal({"AUTHORIZATION": "Bearer X"})
    await resolver.principal([(b"Authorization", b"Bearer X"), (b"accept", b"a"), (b"Accept", b"b")])
    assert seen == [{"authorization": "Bearer X"}, {"authorization": "Bearer X", "accept": "a, b"}]


@pytest.mark.parametrize("name", [b"authorization", b"x-key"])
async def test_duplicate_credentials_are_refused(name: bytes) -> None:
    """A proxy might check one of them, and the agent the other."""
    pairs = [(name, b"Bearer a"), (name.upper(), b"Bearer b")]
    same = {raw.decode(): "Bearer a" for raw, _ in pairs}
    for headers in (pairs, Headers(raw=[(name, b"Bearer a"), (name, b"Bearer b")]), same):
        with pytest.raises(CredentialsRefused) as caught:
            await Resolver(Plain(lambda _: "alice")).principal(headers)
        assert caught.value.reason == "ambiguous"


async def test_a_defect_refuses_every_caller() -> None:
    def defect(_: dict[str, str]) -> Any:
        raise KeyError("oops")

    with pytest.raises(KeyError):
        await Resolver(Plain(defect), require_auth=False).principal({})


@pytest.mark.parametrize("wrong", [None, object(), "token", lambda _: "alice"])
def test_an_invalid_authenticator_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="authenticate and security_schemes"):
        Resolver(wrong)


async def test_messages_do_not_contain_the_credentials() -> None:
    resolver = Resolver(JWTAuthenticator(SECRET, audience=AUDIENCE, issuer=ISSUER))
    for text in (token(exp=1), token(aud="secret-audience"), token(key="another secret of thirty-two bytes")):
        with pytest.raises(AuthenticationFailed) as caught:
            await resolver.principal(bearer(text))
        shown = str(caught.value) + caught.value.challenge
        assert "secret" not in shown
        assert not any(part in shown for part in text.split("."))


async def test_the_identity_is_set_while_acting_for_a_caller() -> None:
    assert auth_identity_var.get() is None
    with acting_as(ALICE):
        assert auth_identity_var.get() == ALICE
        assert await asyncio.create_task(_current()) == ALICE
        with acting_as(ANONYMOUS):
            assert auth_identity_var.get() == ANONYMOUS
        assert auth_identity_var.get() == ALICE
    assert auth_identity_var.get() is None


async def _current() -> Principal | None:
    return auth_identity_var.get()


async def test_close_closes_the_authenticators() -> None:
    await Resolver(Plain(lambda _: None)).aclose()
    await Resolver(JWTAuthenticator(SECRET)).aclose()


def test_a_principal_reads_like_an_identity() -> None:
    assert (ALICE.id, ALICE.type, ALICE.attrs) == ("alice", "service", {"tenant": "acme", "x": 1})
