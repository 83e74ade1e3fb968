"""Which version of A2A a request speaks: the A2A-Version header, or the query parameter of the same name.

negotiate("1.0.1")  -> Version.v1_0       only major and minor count
negotiate(None)     -> Version.v0_3       whoever says nothing is older than the header
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum

from keelbolt.errors import VersionNotSupportedError

HEADER = "A2A-Version"


class Version(StrEnum):
    """A version of the protocol, as the wire has it."""

    v0_3 = "0.3"
    v1_0 = "1.0"


ALL = (Version.v0_3, Version.v1_0)

_SPELLED = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})(?:\.[0-9]{1,5})?", re.ASCII)


def negotiate(header: str | None, query: str | None = None, *, supported: Collection[Version] = ALL) -> Version:
    """The version to answer in. The header goes before the query parameter; an empty one says nothing."""
    asked = (header or "").strip() or (query or "").strip()
    if not asked:
        wanted = "0.3"
    elif match := _SPELLED.fullmatch(asked):
        wanted = f"{int(match[1])}.{int(match[2])}"
    else:
        wanted = ""
    for version in supported:
        if version == wanted:
            return version
    shown = f"A2A {wanted}" if wanted else "this version of A2A"  # never the header itself
    raise VersionNotSupportedError(f"{shown} is not spoken here; this agent speaks {_list(supported)}")


def _list(versions: Collection[Version]) -> str:
    return " and ".join(sorted(versions)) or "no version"
