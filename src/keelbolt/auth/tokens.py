"""Strict parsing of JSON Web Tokens, before the signature is verified.

Two parsers must not read one token differently. So only one form is valid: three segments of canonical base64url, JSON
objects without duplicate names, and no header that selects a key, changes the payload or requires an unsupported
feature.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NoReturn

from keelbolt.errors import CredentialsRefused

TOKEN_TYPES = ("JWT", "at+jwt")  # access tokens (RFC 7519, RFC 9068); "dpop+jwt" or "logout+jwt" is none

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
_KEY_HEADERS = ("jku", "jwk", "x5u", "x5c")  # a key inside the token proves nothing about the issuer
_CHANGING_HEADERS = ("crit", "b64", "zip", "cty", "enc")


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A well-formed token. Its contents must not be trusted before the signature is verified."""

    algorithm: str
    kid: str | None
    signed: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def take_apart(token: str, *, token_types: Collection[str] = TOKEN_TYPES) -> UnverifiedToken:
    segments = token.split(".")
    if len(segments) != 3:
        _refuse("The token is not a signed JWT.", "malformed")
    head, payload, signature = map(_decode, segments)
    header = json_object(head)
    for name in (*_KEY_HEADERS, *_CHANGING_HEADERS):
        if name in header:
            _refuse(f"The token's header {name} is not allowed.", "header")
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or not isinstance(kid, str | None) or not isinstance(kind, str):
        _refuse("The token's header is invalid.", "header")
    if kind.lower().removeprefix("application/") not in {known.lower() for known in token_types}:
        _refuse("The token is of another type than an access token.", "type")
    return UnverifiedToken(algorithm, kid, ".".join(segments[:2]).encode(), payload, signature)


def json_object(raw: bytes) -> dict[str, Any]:
    """Return a JSON object. Raise CredentialsRefused for duplicate names, NaN, infinities or lone surrogates."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
        if b"\\u" in raw:  # only an escape can be a lone surrogate
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        _refuse("The token is not a signed JWT.", "malformed")
    if not isinstance(value, dict):
        _refuse("The token is not a signed JWT.", "malformed")
    return value


def _decode(segment: str) -> bytes:
    if not _SEGMENT.fullmatch(segment) or len(segment) % 4 == 1:
        _refuse("The token is not a signed JWT.", "malformed")
    raw = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != segment.encode():  # the unused last bits must be zero
        _refuse("The token is not a signed JWT.", "malformed")
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _refuse("The token contains the same name twice.", "duplicate")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse(message: str, reason: str) -> NoReturn:
    raise CredentialsRefused(message, reason=reason)
