"""Which version is spoken."""

from __future__ import annotations

import pytest

from keelbolt.errors import VersionNotSupportedError
from keelbolt.protocol.versions import Version, negotiate


@pytest.mark.parametrize(
    ("header", "query", "version"),
    [
        (None, None, Version.v0_3),
        ("", "", Version.v0_3),
        ("  ", None, Version.v0_3),
        ("0.3", None, Version.v0_3),
        ("0.3.0", None, Version.v0_3),
        ("1.0", None, Version.v1_0),
        (" 1.0 ", None, Version.v1_0),
        ("1.0.1", None, Version.v1_0),
        ("1.0.999", None, Version.v1_0),
        (None, "1.0", Version.v1_0),
        ("", "1.0", Version.v1_0),
        ("1.0", "0.3", Version.v1_0),
        ("0.3", "1.0", Version.v0_3),
    ],
)
def test_negotiated(header: str | None, query: str | None, version: Version) -> None:
    assert negotiate(header, query) is version


@pytest.mark.parametrize(
    "header",
    ["1", "2.0", "0.2", "0.30", "1.1", "10.0", "99.0", "1.0.0.0", "v1.0", "1.0-rc", "1,0", "١.٠", "1.0, 0.3", "x"],
)
def test_not_spoken(header: str) -> None:
    with pytest.raises(VersionNotSupportedError, match=r"this agent speaks 0\.3 and 1\.0"):
        negotiate(header)
    with pytest.raises(VersionNotSupportedError):
        negotiate(None, header)


def test_the_message_repeats_only_numbers() -> None:
    with pytest.raises(VersionNotSupportedError) as caught:
        negotiate("<script>")
    assert "script" not in str(caught.value)
    with pytest.raises(VersionNotSupportedError, match=r"^A2A 2\.0 is not spoken here"):
        negotiate("2.0")


def test_an_agent_of_one_version() -> None:
    assert negotiate("1.0", supported=[Version.v1_0]) is Version.v1_0
    with pytest.raises(VersionNotSupportedError, match=r"A2A 0\.3 is not spoken here; this agent speaks 1\.0"):
        negotiate(None, supported=[Version.v1_0])
