"""Negotiation of the protocol version."""

from __future__ import annotations

import pytest

from keelbolt.errors import VersionNotSupportedError
from keelbolt.protocol.versions import ProtocolVersion, asked, chosen

OLD, NEW = ProtocolVersion.v0_3, ProtocolVersion.v1_0


@pytest.mark.parametrize(
    ("header", "query", "found"),
    [
        (None, None, ()),
        ("", "", ()),
        ("  ", None, ()),
        ("0.3", None, (OLD,)),
        ("0.3.0", None, (OLD,)),
        ("1.0", None, (NEW,)),
        (" 1.0 ", None, (NEW,)),
        ("1.0.999", None, (NEW,)),
        (None, "1.0", (NEW,)),
        ("", "1.0", (NEW,)),
        ("1.0", "0.3", (NEW,)),
        ("1.0, 0.3", None, (NEW, OLD)),
        ("2.0,0.3.0", None, (OLD,)),
        ("1.0,", None, (NEW,)),
        ("x, 1.0", None, (NEW,)),
    ],
)
def test_requested_versions(header: str | None, query: str | None, found: tuple[ProtocolVersion, ...]) -> None:
    assert asked(header, query) == found


@pytest.mark.parametrize(
    "header", ["1", "2.0", "0.2", "0.30", "1.1", "10.0", "99.0", "1.0.0.0", "v1.0", "1.0-rc", "1,0", "١.٠", "x", ","]
)
def test_unsupported_versions(header: str) -> None:
    with pytest.raises(VersionNotSupportedError, match=r"this agent supports 0\.3 and 1\.0"):
        asked(header)
    with pytest.raises(VersionNotSupportedError):
        asked(None, header)


def test_the_message_contains_only_numbers() -> None:
    with pytest.raises(VersionNotSupportedError) as caught:
        asked("<script>")
    assert "script" not in str(caught.value)
    with pytest.raises(VersionNotSupportedError, match=r"^A2A 2\.0 is not supported"):
        asked("2.0")


def test_the_selected_version() -> None:
    """A method or path of one version selects it; if both versions have it, the requested version counts."""
    assert chosen((NEW,), (OLD,)) is NEW
    assert chosen((OLD,), (NEW,)) is OLD
    assert chosen((NEW, OLD)) is NEW
    assert chosen((NEW, OLD), (OLD,)) is OLD
    assert chosen((NEW, OLD), (OLD, NEW)) is NEW


def test_an_agent_of_one_version() -> None:
    assert asked("1.0", supported=(NEW,)) == (NEW,)
    assert asked("1.0, 0.3", supported=(NEW,)) == (NEW,)
    assert chosen((NEW, OLD), supported=(OLD,)) is OLD
    with pytest.raises(VersionNotSupportedError, match=r"A2A 0\.3 is not supported; this agent supports 1\.0"):
        asked("0.3", supported=(NEW,))
    with pytest.raises(VersionNotSupportedError, match=r"A2A 0\.3 is not supported; this agent supports 1\.0"):
        chosen((OLD,), supported=(NEW,))
