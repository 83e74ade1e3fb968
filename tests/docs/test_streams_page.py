"""The page about streams matches the code."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from keelbolt.server.service import RESUME_EXTENSION
from keelbolt.server.settings import ServerSettings
from keelbolt.server.sse import RETRY_MILLISECONDS

PAGE = (Path(__file__).parents[2] / "docs/reference/streams.md").read_text()


def test_the_extension_is_named() -> None:
    assert f"`{RESUME_EXTENSION}`" in PAGE
    assert f"`retry: {RETRY_MILLISECONDS}`" in PAGE


def test_its_settings_exist() -> None:
    for name in ("streams", "heartbeat_stream_seconds", "cancel_on_disconnect"):
        assert f"`KEELBOLT_{name.upper()}`" in PAGE
        assert name in {field.name for field in fields(ServerSettings)}
