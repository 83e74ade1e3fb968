"""A message id reaches one task, once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.errors import CommitRefused, MessageReused
from keelbolt.storage import Kernel, open_storage
from keelbolt.tasks.families import FAMILIES
from keelbolt.tasks.sends import MAX_PLAIN_ID, Send, forget_send, send_key

ODD_IDS = ["~", "~x", "x" * 199, "x" * 200, "x" * 201, "\x00", "\ud800", "a/b", " "]
IDS = st.text(max_size=300) | st.sampled_from(ODD_IDS)


@pytest.fixture
async def kernel() -> AsyncIterator[Kernel]:
    async with open_storage("memory:", declare=FAMILIES) as kernel:
        yield kernel


@given(IDS, IDS)
def test_every_id_has_a_key_of_its_own(one: str, other: str) -> None:
    """Whatever a client calls its messages, two ids never share a key, and every key can be stored."""
    assert (send_key(one) == send_key(other)) == (one == other)
    assert len(send_key(one)) <= MAX_PLAIN_ID
    assert send_key(one).isprintable()
    send_key(one).encode()


def test_a_digest_can_not_be_forged() -> None:
    """An id that looks like the key of another is another."""
    assert send_key(send_key("x" * 500)) != send_key("x" * 500)


async def test_once(kernel: Kernel) -> None:
    """The first one is remembered with its task; a repeat is refused and finds it; another body is an error."""
    send = Send("m", b"body")
    assert await send.reached(kernel, "p") is None
    await kernel.commit("p", *send.insert("task-1"))
    with pytest.raises(CommitRefused):
        await kernel.commit("p", *send.insert("task-2"))
    assert await send.reached(kernel, "p") == "task-1"
    assert await send.reached(kernel, "other") is None
    with pytest.raises(MessageReused):
        await Send("m", b"another body").reached(kernel, "p")


async def test_not_once(kernel: Kernel) -> None:
    """Where repeats are meant to be new, nothing is remembered."""
    send = Send("m", b"body", once=False)
    await kernel.commit("p", *Send("m", b"body").insert("task-1"))
    assert send.insert("task-2") == ()
    assert await send.reached(kernel, "p") is None


async def test_forgotten(kernel: Kernel) -> None:
    """With its task the memory of a message goes too."""
    for message_id in ("m", "x" * 500):
        send = Send(message_id, b"body")
        await kernel.commit("p", *send.insert("task-1"))
        await kernel.commit("p", forget_send(message_id))
        assert await send.reached(kernel, "p") is None
