"""Security schemes in both versions of the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.auth.schemes import (
    challenge,
    credential_headers,
    named,
    requirements_v03,
    requirements_v10,
    to_both,
    to_v03,
    to_v10,
)
from keelbolt.errors import AuthMisconfigured

BEARER = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
KEY = {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "ask us"}
OIDC = {"type": "openIdConnect", "openIdConnectUrl": "https://issuer.example/oidc"}
MTLS = {"type": "mutualTLS"}
FLOW = {"tokenUrl": "https://issuer.example/token", "scopes": {"run": "run tasks"}}
DEVICE = {"deviceAuthorizationUrl": "https://issuer.example/device", **FLOW}
OAUTH = {"type": "oauth2", "flows": {"clientCredentials": FLOW, "authorizationCode": {**FLOW, "pkceRequired": True}}}

PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (BEARER, {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}}),
    (KEY, {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key", "description": "ask us"}}),
    (OIDC, {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://issuer.example/oidc"}}),
    (MTLS, {"mtlsSecurityScheme": {}}),
    (
        {"type": "oauth2", "flows": {"clientCredentials": FLOW}},
        {"oauth2SecurityScheme": {"flows": {"clientCredentials": FLOW}}},
    ),
]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_each_kind_in_both_forms(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert to_v03(named({"x": old})) == {"x": old}
    assert to_v10(named({"x": old})) == {"x": new}
    assert named({"x": new}) == {"x": old}  # both forms are accepted
    assert to_both(named({"x": old})) == {"x": {**old, **new}}


def test_schemes_without_a_name_get_one() -> None:
    other_key = {**KEY, "name": "X-Other"}
    found = named([BEARER, KEY, BEARER, other_key, OIDC, MTLS, {"type": "http", "scheme": "Basic"}])
    assert list(found) == ["bearer", "apiKey", "apiKey2", "openIdConnect", "mutualTLS", "basic"]
    assert found["apiKey2"] == other_key


def test_fields_of_one_version_are_kept_for_the_other() -> None:
    schemes = named({"login": OAUTH, "device": {"type": "oauth2", "flows": {"deviceCode": DEVICE}}})
    assert to_v03(schemes) == {
        "login": {"type": "oauth2", "flows": {"clientCredentials": FLOW, "authorizationCode": FLOW}}
    }
    assert to_v10(schemes) == {
        "login": {"oauth2SecurityScheme": {"flows": {"clientCredentials": FLOW}}},
        "login-authorizationCode": {
            "oauth2SecurityScheme": {"flows": {"authorizationCode": {**FLOW, "pkceRequired": True}}}
        },
        "device": {"oauth2SecurityScheme": {"flows": {"deviceCode": DEVICE}}},
    }
    assert requirements_v03(schemes) == [{"login": []}]
    assert [list(one["schemes"]) for one in requirements_v10(schemes)] == [
        ["login"],
        ["login-authorizationCode"],
        ["device"],
    ]


def test_any_one_scheme_is_enough() -> None:
    schemes = named([BEARER, KEY])
    assert requirements_v03(schemes) == [{"bearer": []}, {"apiKey": []}]
    assert requirements_v10(schemes) == [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"apiKey": {"list": []}}},
    ]
    assert requirements_v03(schemes, optional=True)[-1] == {}
    assert requirements_v10(schemes, optional=True)[-1] == {"schemes": {}}


@pytest.mark.parametrize(
    "wrong",
    [{}, {"type": "magic"}, {"type": "http"}, {"type": "apiKey", "in": "header"}, {"type": "oauth2", "flows": {}}],
)
def test_wrong_schemes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(AuthMisconfigured):
        named([wrong])


def test_the_passed_schemes_are_not_modified() -> None:
    schemes: dict[str, dict[str, Any]] = {"login": {**OAUTH}, "key": {**KEY}}
    to_both(named(schemes))
    assert schemes == {"login": OAUTH, "key": KEY}


def test_headers_with_credentials() -> None:
    cookie = {"type": "apiKey", "in": "cookie", "name": "session"}
    query = {"type": "apiKey", "in": "query", "name": "key"}
    assert credential_headers(named([BEARER])) == {"authorization"}
    assert credential_headers(named([KEY, cookie, query])) == {"authorization", "x-api-key", "cookie"}


def test_a_challenge_names_the_accepted_credentials() -> None:
    assert challenge({}) == 'Bearer realm="agent"'
    assert challenge(named([BEARER, KEY, OIDC])) == 'Bearer realm="agent", ApiKey realm="agent", name="X-API-Key"'
    assert challenge(named([{"type": "http", "scheme": "basic"}, MTLS])) == 'Basic realm="agent"'


def test_a_challenge_can_not_be_injected() -> None:
    assert challenge(named([BEARER]), refused='a"b\\c\r\nSet-Cookie: é') == (
        'Bearer realm="agent", error="invalid_token", error_description="a?b?c??Set-Cookie: ?"'
    )
