"""Media types that a mode includes."""

from __future__ import annotations

import pytest

from keelbolt.protocol.requests import accepts


@pytest.mark.parametrize(
    ("modes", "media_type", "accepted"),
    [
        (["text/plain"], "text/plain", True),
        (["Text/Plain; charset=utf-8"], "text/plain;charset=ascii", True),
        (["text/plain"], "text/html", False),
        (["text/*"], "text/html", True),
        (["text/*"], "image/png", False),
        (["*/*"], "image/png", True),
        (["*"], "image/png", True),
        (["text"], "text/plain", False),
        (["t*t/p*"], "text/plain", False),  # a media range is not a glob
        ([], "text/plain", False),
    ],
)
def test_modes(modes: list[str], media_type: str, accepted: bool) -> None:
    assert accepts(modes, media_type) == accepted
