"""Verification of deliveries by a receiver."""

from __future__ import annotations

import hashlib
import time

import jwt
import pytest

from keelbolt.protocol.signatures import CardKey
from keelbolt.webhooks.signing import TOLERANCE_SECONDS, secret_of, sign, standard_headers, token, verify

# The test vector that the libraries of Standard Webhooks share.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
MOMENT = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def headers(**more: str) -> dict[str, str]:
    found = {"webhook-id": ID, "webhook-timestamp": str(MOMENT), "webhook-signature": SIGNATURE}
    return found | {name.replace("_", "-"): value for name, value in more.items()}


def test_the_signature_is_that_of_standard_webhooks() -> None:
    assert standard_headers([secret_of(SECRET)], ID, MOMENT, BODY) == headers()


def test_an_unmodified_fresh_delivery_is_verified() -> None:
    assert verify(SECRET, headers(), BODY, now=MOMENT)
    assert verify(secret_of(SECRET), headers(), BODY, now=MOMENT + TOLERANCE_SECONDS)
    assert verify(SECRET, {name.title(): value for name, value in headers().items()}, BODY, now=MOMENT)
    assert verify(SECRET, headers(webhook_signature=f"v1,AAAA v1a,BBBB {SIGNATURE}"), BODY, now=MOMENT)


@pytest.mark.parametrize(
    ("secret", "given", "body", "now"),
    [
        (SECRET, headers(), BODY, MOMENT + TOLERANCE_SECONDS + 1),  # replayed later
        (SECRET, headers(), BODY, MOMENT - TOLERANCE_SECONDS - 1),
        (SECRET, headers(), BODY + b" ", MOMENT),  # altered
        (SECRET, headers(webhook_id="msg_2"), BODY, MOMENT),
        (SECRET, headers(webhook_timestamp=str(MOMENT + 1)), BODY, MOMENT),
        (SECRET, headers(webhook_timestamp="soon"), BODY, MOMENT),
        (SECRET, headers(webhook_signature=""), BODY, MOMENT),
        (SECRET, headers(webhook_signature=SIGNATURE.removeprefix("v1,")), BODY, MOMENT),
        (SECRET, headers(webhook_signature="v1,ü"), BODY, MOMENT),
        (SECRET + "x", headers(), BODY, MOMENT),
        ("", headers(webhook_signature=sign(b"", ID, MOMENT, BODY)), BODY, MOMENT),  # another secret
        (SECRET, {}, BODY, MOMENT),
    ],
)
def test_anything_else_is_refused(secret: str, given: dict[str, str], body: bytes, now: int) -> None:
    assert not verify(secret, given, body, now=now)


def test_every_secret_signs() -> None:
    """Config and server have a secret each; the receiver needs only one of them."""
    signed = standard_headers([b"token", b"", b"secret"], ID, MOMENT, BODY)
    assert len(signed["webhook-signature"].split()) == 2
    assert verify("token", signed, BODY, now=MOMENT)
    assert verify("secret", signed, BODY, now=MOMENT)


def test_without_a_secret_there_is_no_signature() -> None:
    assert "webhook-signature" not in standard_headers([b"", b""], ID, MOMENT, BODY)


def test_a_secret_is_base64_only_with_its_prefix() -> None:
    assert secret_of("whsec_c2VjcmV0") == b"secret"
    assert secret_of("c2VjcmV0") == b"c2VjcmV0"
    assert secret_of("whsec_not base64") == b"whsec_not base64"


def test_the_jwt_is_verified_by_the_key_set_of_the_agent() -> None:
    """The token is valid for this receiver and this body, has a unique id, and expires soon."""
    key = CardKey.generate("key-1")
    now = int(time.time())
    given = token(key, "https://hook.example/", ID, now, BODY)
    jwks = jwt.PyJWKSet.from_dict(key.jwks())
    public = jwks[jwt.get_unverified_header(given)["kid"]]
    claims = jwt.decode(
        given,
        public.key,
        algorithms=["ES256"],
        audience="https://hook.example/",
        options={"require": ["iat", "exp", "jti", "aud"]},
    )
    assert claims["jti"] == ID
    assert (claims["iat"], claims["exp"]) == (now, now + TOLERANCE_SECONDS)
    assert claims["request_body_sha256"] == hashlib.sha256(BODY).hexdigest()
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(given, public.key, algorithms=["ES256"], audience="https://other.example/")
    other = CardKey.generate("key-1").key.public_key()
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(given, other, algorithms=["ES256"], audience="https://hook.example/")
