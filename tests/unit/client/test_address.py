"""URLs of agents, and origins."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.client import A2AClient, SyncA2AClient
from keelbolt.client.endpoints import card_urls, check_url, origin_of

BAD = [
    "",
    "agent.example",
    "ftp://agent.example",
    "file:///etc/passwd",
    "http://",
    "https:///path",
    "http://user:secret@agent.example",
    "http://token@agent.example",
    "http://agent.example:0",
    "http://agent.example:99999",
    "http://agent.example:port",
    "http://agent.example/?q=1",
    "http://agent.example/#here",
    "http://agent.example/a b",
    "http://agent.example/\n",
    "http://[::1",
    None,
    7,
]


@pytest.mark.parametrize("text", ["tökén", "line\nbreak", "€"])
def test_credentials_that_no_header_can_have_are_a_value_error(text: str) -> None:
    for options in ({"auth": text}, {"headers": {"X-API-Key": text}}):
        with pytest.raises(ValueError, match="must be ASCII text without line breaks") as refused:
            A2AClient("http://agent.example", **options)
        assert text not in str(refused.value)


@pytest.mark.parametrize("url", BAD)
def test_a_bad_url_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        A2AClient(url)
    assert "secret" not in str(refused.value)
    with pytest.raises(ValueError):
        SyncA2AClient(url)


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("http://localhost:8000/", "http://localhost:8000"),
        ("https://agent.example/agents/a//", "https://agent.example/agents/a"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_good_urls(url: str, checked: str) -> None:
    assert check_url(url) == checked


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example", "https://a.example:443/x", True),
        ("https://A.example", "https://a.example", True),
        ("http://a.example", "https://a.example", False),
        ("http://a.example", "http://a.example:8080", False),
        ("http://a.example", "http://b.a.example", False),
        ("http://a.example", "http://a.example.evil.example", False),
        ("http://a.example", "http://x@evil.example/a.example", False),
        ("http://[::1]", "http://[::1]:80", True),
    ],
)
def test_origins(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


def test_where_cards_are() -> None:
    assert card_urls("http://a/x") == ("http://a/x/.well-known/agent-card.json", "http://a/x/.well-known/agent.json")
    assert card_urls("http://a/cards/1.json") == ("http://a/cards/1.json",)


def test_wrong_options() -> None:
    wrong: list[dict[str, Any]] = [
        {"auth": 7},
        {"auth": ""},
        {"auth": "a\nb"},
        {"bindings": ["PIGEON"]},
        {"bindings": []},
        {"versions": ["7.0"]},
        {"trusted_origins": ["nowhere"]},
    ]
    for options in wrong:
        with pytest.raises(ValueError):
            A2AClient("http://a", **options)
