"""Accepted forms of a message."""

from __future__ import annotations

from typing import Any

import pytest

from keelbolt.client.messages import message_of
from keelbolt.errors import InvalidParamsError
from keelbolt.protocol.types import Message, Part, Role


@pytest.mark.parametrize(
    "content",
    [
        "Hi",
        [Part(text="Hi")],
        Message(message_id="x", role=Role.user, parts=[Part(text="Hi")]),
        {"parts": [{"text": "Hi"}]},
        {"role": "user", "parts": [{"kind": "text", "text": "Hi"}]},
        {"role": "user", "parts": [{"type": "text", "text": "Hi"}], "messageId": "y"},
        {"role": "ROLE_USER", "message_id": "z", "parts": [{"text": "Hi"}]},
    ],
)
def test_forms_of_a_message(content: Any) -> None:
    message = message_of(content)
    assert (message.role, message.text) == (Role.user, "Hi")
    assert message.message_id
    given = message_of(content, message_id="m", context_id="c", task_id="t")
    assert (given.message_id, given.context_id, given.task_id, given.text) == ("m", "c", "t", "Hi")


def test_a_passed_message_is_not_modified() -> None:
    content = Message(message_id="x", role=Role.user, parts=[Part(text="Hi")])
    message_of(content, task_id="t")
    assert content.task_id is None


def test_every_message_has_its_own_id() -> None:
    assert message_of("Hi").message_id != message_of("Hi").message_id


@pytest.mark.parametrize(
    "content", [[], {}, {"parts": "Hi"}, {"parts": [{"nothing": 1}]}, {"parts": [], "role": "king"}]
)
def test_invalid_messages(content: Any) -> None:
    with pytest.raises(InvalidParamsError):
        message_of(content)
