"""Selects the A2A version of a request. The tests execute the table in docs/reference/protocol.md.

asked("1.0.1")                       -> (Version.v1_0,)                 only major and minor count
asked("2.0, 0.3")                    -> (Version.v0_3,)                 unsupported versions are left out
chosen((Version.v1_0,), asked(None)) -> Version.v1_0                    the method's name decides
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from functools import lru_cache

from keelbolt.errors import VersionNotSupportedError

HEADER = "A2A-Version"


class ProtocolVersion(StrEnum):
    """A version of the protocol, as the wire has it."""

    v0_3 = "0.3"
    v1_0 = "1.0"


ALL = (ProtocolVersion.v0_3, ProtocolVersion.v1_0)
MAX_KNOWN_CHARACTERS = 100  # longest header whose result is cached

_SPELLED = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})(?:\.[0-9]{1,5})?", re.ASCII)


def asked(
    header: str | None, query: str | None = None, *, supported: tuple[ProtocolVersion, ...] = ALL
) -> tuple[ProtocolVersion, ...]:
    """Return the supported versions that a request asks for; empty if it names none.

    The header and the query parameter are comma-separated lists. The header takes precedence. Raise
    VersionNotSupportedError if the request names versions, but none is supported.
    """
    given = (header or "").strip() or (query or "").strip()
    if not given:
        return ()
    return _asked(given, supported) if len(given) <= MAX_KNOWN_CHARACTERS else _asked.__wrapped__(given, supported)


@lru_cache(maxsize=256)  # clients send few different values
def _asked(given: str, supported: tuple[ProtocolVersion, ...]) -> tuple[ProtocolVersion, ...]:
    wanted = [_plain(value.strip()) for value in given.split(",")]
    found = tuple(ProtocolVersion(value) for value in wanted if value in supported)
    if not found:
        raise _not_spoken(wanted[0], supported)
    return found


def chosen(
    candidates: Sequence[ProtocolVersion],
    wanted: Collection[ProtocolVersion] = (),
    *,
    supported: Collection[ProtocolVersion] = ALL,
) -> ProtocolVersion:
    """Return the version of the response. Raise VersionNotSupportedError if no candidate is supported.

    ``candidates`` are the versions that have this method, path or service, the preferred one first. A single candidate
    is used regardless of the requested version.
    """
    if len(candidates) == 1 and candidates[0] in supported:
        return candidates[0]
    usable = [version for version in candidates if version in supported]
    if not usable:
        raise _not_spoken(candidates[0], supported)
    return next((version for version in usable if version in wanted), usable[0])


def _plain(value: str) -> str:
    match = _SPELLED.fullmatch(value)
    return f"{int(match[1])}.{int(match[2])}" if match else ""


def _not_spoken(version: str, supported: Collection[ProtocolVersion]) -> VersionNotSupportedError:
    shown = f"A2A {version}" if version else "this version of A2A"  # do not echo the header
    return VersionNotSupportedError(
        f"{shown} is not supported; this agent supports {' and '.join(sorted(supported)) or 'no version'}"
    )
