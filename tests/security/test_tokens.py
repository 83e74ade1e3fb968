"""Tokens: accepted ones, and every known attack on their verification."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.auth import Authenticator, ClaimMapping, JWTAuthenticator, Principal
from keelbolt.errors import AuthMisconfigured, CredentialsRefused
from tests.unit.auth.issuer import (
    AUDIENCE,
    ISSUER,
    SECRET,
    b64,
    bearer,
    claims,
    handmade,
    jwk,
    public_pem,
    token,
)


def hs(**options: Any) -> JWTAuthenticator:
    return JWTAuthenticator(SECRET, **{"audience": AUDIENCE, "issuer": ISSUER, **options})


def rs(**options: Any) -> JWTAuthenticator:
    return JWTAuthenticator(public_pem("RS256"), **{"audience": AUDIENCE, "issuer": ISSUER, **options})


async def refusal(authenticator: JWTAuthenticator, text: str) -> str:
    with pytest.raises(CredentialsRefused) as caught:
        await authenticator.authenticate(bearer(text))
    assert len(text) < 20 or text[:20] not in str(caught.value)
    return caught.value.reason


# ------------------------------------------------------------------------------------------------------ accepted tokens


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"])
async def test_every_kind_of_signature_is_checked(algorithm: str) -> None:
    for key in (public_pem(algorithm), jwk(algorithm)):
        authenticator = JWTAuthenticator(key, algorithms=[algorithm], audience=AUDIENCE, issuer=ISSUER)
        assert await authenticator.authenticate(bearer(token(algorithm))) == Principal("alice", type="user")
        assert await refusal(authenticator, token(algorithm, number=2)) == "signature"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
async def test_secrets_are_checked(algorithm: str) -> None:
    secret = SECRET * 2
    authenticator = hs_of(secret, algorithm)
    assert await authenticator.authenticate(bearer(token(algorithm, key=secret))) == Principal("alice", type="user")
    assert await refusal(authenticator, token(algorithm, key=SECRET * 3)) == "signature"


def hs_of(secret: str, algorithm: str) -> JWTAuthenticator:
    return JWTAuthenticator(secret, algorithms=[algorithm], audience=AUDIENCE, issuer=ISSUER)


async def test_claims_become_the_principal() -> None:
    authenticator = hs(claim_mapping=ClaimMapping(tenant_claim="tid", attrs_claims=("email",)))
    text = token(tid="acme", roles=["operator"], email="a@b", type="service")
    assert await authenticator.authenticate(bearer(text)) == Principal(
        "alice", "acme", frozenset({"operator"}), {"email": "a@b"}, "service"
    )
    assert await hs(tenant="fixed").authenticate(bearer(token())) == Principal("alice", "fixed", type="user")


async def test_without_a_bearer_token_the_caller_is_anonymous() -> None:
    for headers in ({}, {"authorization": "Basic YTpi"}, {"x-api-key": token()}, {"authorization": ""}):
        assert await hs().authenticate(headers) is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_name_of_the_scheme_may_be_written_in_any_case(scheme: str) -> None:
    assert await hs().authenticate({"authorization": f"{scheme} {token()}"}) == Principal("alice", type="user")


async def test_a_key_is_replaced_without_an_interruption() -> None:
    authenticator = JWTAuthenticator([jwk("RS256", 1), jwk("RS256", 2)], audience=AUDIENCE)
    for number in (1, 2):
        text = token("RS256", number=number, headers={"kid": f"key-{number}"})
        assert await authenticator.authenticate(bearer(text)) == Principal("alice", type="user")
        assert (
            await authenticator.authenticate(bearer(token("RS256", number=number))) is not None
        )  # no kid: all keys are tried
    assert await refusal(authenticator, token("RS256", number=1, headers={"kid": "key-2"})) == "signature"
    assert await refusal(authenticator, token("RS256", number=1, headers={"kid": "key-3"})) == "key"


async def test_time_is_passed_in() -> None:
    later = hs(clock=lambda: time.time() + 3600)
    assert await refusal(later, token()) == "expired"
    assert await later.authenticate(bearer(token(exp=int(time.time()) + 3700))) is not None


def test_it_is_an_authenticator_with_the_bearer_scheme() -> None:
    assert isinstance(hs(), Authenticator)
    assert hs().security_schemes() == [{"type": "http", "scheme": "bearer"}]
    other = {
        "sso": {"type": "openIdConnect", "openIdConnectUrl": "https://issuer.example/.well-known/openid-configuration"}
    }
    assert hs(schemes=other).security_schemes() == other


# -------------------------------------------------------------------------------------------------------------- attacks


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
async def test_a_token_without_a_signature_is_refused(name: str) -> None:
    unsigned = f"{b64(json.dumps({'alg': name, 'typ': 'JWT'}))}.{b64(json.dumps(claims()))}"
    for authenticator in (hs(), rs()):
        assert await refusal(authenticator, f"{unsigned}.") == "malformed"
        assert await refusal(authenticator, f"{unsigned}.AAAA") == "algorithm"


async def test_a_public_key_is_not_a_secret() -> None:
    """HS256 with the RSA public key as its secret is refused: that key is public."""
    pem = public_pem("RS256")
    for secret in (pem, pem.strip(), pem.encode(), pem.replace("\n", "\r\n")):
        forged = handmade({"alg": "HS256", "typ": "JWT"}, claims(), secret=secret)
        assert await refusal(rs(), forged) == "algorithm"
        assert await refusal(JWTAuthenticator([pem, SECRET], audience=AUDIENCE), forged) == "signature"
    with pytest.raises(AuthMisconfigured):
        rs(algorithms=["HS256"])
    with pytest.raises(AuthMisconfigured):
        rs(algorithms=["RS256", "HS256"])


async def test_a_secret_is_not_a_public_key() -> None:
    assert await refusal(hs(), token("RS256")) == "algorithm"
    with pytest.raises(AuthMisconfigured):
        hs(algorithms=["RS256"])


async def test_only_allowed_algorithms_are_accepted() -> None:
    assert await refusal(rs(algorithms=["RS512"]), token("RS256")) == "algorithm"
    assert await refusal(rs(), token("PS256")) == "algorithm"  # the same key, but not an allowed algorithm
    assert await refusal(JWTAuthenticator(jwk("RS256", alg="RS512"), audience=AUDIENCE), token("RS256")) == "algorithm"


@pytest.mark.parametrize(
    "headers",
    [
        {"jku": "https://evil.example/jwks.json"},
        {"x5u": "https://evil.example/cert.pem"},
        {"jwk": jwk("RS256", 2)},
        {"x5c": ["AAAA"]},
    ],
)
async def test_a_token_that_brings_its_own_key_is_refused(headers: dict[str, Any]) -> None:
    assert await refusal(rs(), token("RS256", number=2, headers=headers)) == "header"
    assert await refusal(rs(), token("RS256", headers=headers)) == "header"


@pytest.mark.parametrize("kid", ["../../../../dev/null", "' OR 1=1 --", "key-1\0", "", "http://127.0.0.1/"])
async def test_a_key_is_found_by_its_exact_name(kid: str) -> None:
    authenticator = JWTAuthenticator(jwk("RS256"), audience=AUDIENCE)
    assert await refusal(authenticator, token("RS256", headers={"kid": kid})) == "key"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"aud": "another-agent"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": ["another-agent"]}, "audience"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"iss": ISSUER + "/"}, "issuer"),
        ({"exp": None}, "claims"),
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"nbf": int(time.time()) + 3600}, "early"),
        ({"iat": int(time.time()) + 3600}, "early"),
        ({"sub": None}, "claims"),
    ],
)
async def test_invalid_claims_are_refused(changed: dict[str, Any], reason: str) -> None:
    assert await refusal(hs(), token(**changed)) == reason


async def test_required_claims_must_be_present() -> None:
    authenticator = hs(require_claims=["scope", "client_id"])
    assert await refusal(authenticator, token(scope="x")) == "claims"
    assert await authenticator.authenticate(bearer(token(scope="x", client_id="c"))) is not None


async def test_a_duplicate_claim_is_refused() -> None:
    """With two `sub` claims, one parser reads mallory, another alice; the signature is valid for both."""
    body = json.dumps(claims())[:-1] + ', "sub": "mallory"}'
    assert await refusal(hs(), handmade({"alg": "HS256"}, body)) == "duplicate"


@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "JOSE"])
async def test_a_token_made_for_another_purpose_is_refused(kind: str) -> None:
    assert await refusal(hs(), token(headers={"typ": kind})) == "type"
    assert await hs(token_types=[kind]).authenticate(bearer(token(headers={"typ": kind}))) is not None


@pytest.mark.parametrize("text", ["a" * 1_000_000, f"{b64('x' * 700_000)}.{b64('{}')}.{b64('x')}", "." * 1_000_000])
async def test_a_huge_token_is_refused_before_it_is_parsed(text: str) -> None:
    started = time.perf_counter()
    assert await refusal(hs(), text) == "size"
    assert time.perf_counter() - started < 0.1


async def test_a_changed_token_is_refused() -> None:
    head, body, signature = token().split(".")
    other = b64(json.dumps(claims(sub="mallory")))
    for changed in (f"{head}.{other}.{signature}", f"{head}.{body}.{b64(bytes(32))}", f"{head}.{body}.AAAA"):
        assert await refusal(hs(), changed) == "signature"
    assert await refusal(hs(), f"{head}.{body}") == "malformed"
    assert await refusal(hs(), "") == "malformed"


@given(data=st.data())
async def test_any_invalid_token_is_refused(data: st.DataObject) -> None:
    text = token("ES256")
    position = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(st.text(alphabet=st.characters(max_codepoint=0x17F), max_size=5))
    changed = text[:position] + piece + text[position + 1 :]
    authenticator = JWTAuthenticator(public_pem("ES256"), audience=AUDIENCE, issuer=ISSUER)
    with suppress(CredentialsRefused):
        await authenticator.authenticate(bearer(changed))
        assert changed.strip() == text


# -------------------------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "pass one of"),
        ({"key": SECRET, "jwks_url": "https://issuer.example/jwks"}, "pass one of"),
        ({"jwks_url": "https://issuer.example/jwks"}, "needs issuer"),
        ({"jwks_url": "http://issuer.example/jwks", "issuer": ISSUER}, "https://"),
        ({"jwks_url": "https://issuer.example/jwks", "issuer": ISSUER, "algorithms": ["HS256"]}, "HS256"),
        ({"key": SECRET, "algorithms": ["none"]}, "none"),
        ({"key": SECRET, "algorithms": []}, "empty"),
        ({"key": SECRET, "algorithms": ["HS256", "HS999"]}, "HS999"),
        ({"key": SECRET, "issuer": ""}, "issuer"),
        ({"key": SECRET, "audience": ["a", ""]}, "audience"),
        ({"key": SECRET, "tenant": "a", "claim_mapping": ClaimMapping(tenant_claim="t")}, "not both"),
        ({"key": SECRET, "schemes": [{"type": "magic"}]}, "magic"),
        ({"key": "short"}, "at least 32"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(AuthMisconfigured, match=words):
        JWTAuthenticator(**options)


def test_without_the_extra_the_error_names_it() -> None:
    """Features without JWT work without the extra."""
    program = (
        "import sys; sys.modules['jwt'] = None\n"
        "from keelbolt import auth\n"
        "from keelbolt.errors import MissingExtra\n"
        "auth.APIKeyAuthenticator.of({'k' * 20: 'alice'})\n"
        "try: auth.JWTAuthenticator\n"
        "except MissingExtra as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'keelbolt[auth]'" in ran.stdout


def test_handmade_tokens_are_valid() -> None:
    """PyJWT accepts the tests' own signatures, so a refusal in a test has the intended cause."""
    text = handmade({"alg": "HS256"}, claims())
    assert jwt.decode(text, SECRET, ["HS256"], audience=AUDIENCE)["sub"] == "alice"
