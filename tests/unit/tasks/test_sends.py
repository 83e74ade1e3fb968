"""Recognition of repeated sends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import CommitRefused, IdempotencyKeyReused, InvalidTaskRequest, MessageReused
from keelbolt.kernel import Kernel, open_storage
from keelbolt.protocol.types import Message, Part, Role, encode
from keelbolt.tasks.families import FAMILIES
from keelbolt.tasks.sends import MAX_KEY_CHARACTERS, Send, checked_key, named
from keelbolt.tasks.settings import RepeatedSend

ADA = Principal(owner="ada")
TEXTS = st.text(max_size=300) | st.sampled_from(["~", "\x00", "\ud800", "a/b", " ", "x" * 500])


@pytest.fixture
async def kernel() -> AsyncIterator[Kernel]:
    async with open_storage("memory:", declare=FAMILIES) as kernel:
        yield kernel


def a_send(
    text: str = "hello",
    *,
    who: Principal = ADA,
    repeated: RepeatedSend = "auto",
    key: str | None = None,
    message_id: str = "m",
    task_id: str | None = None,
    context_id: str | None = None,
) -> Send:
    message = Message(message_id=message_id, role=Role.user, parts=[Part(text=text)])
    if task_id is not None:
        message.task_id = task_id
    if context_id is not None:
        message.context_id = context_id
    return Send.of(message, encode(message), who, repeated=repeated, key=key)


@given(TEXTS, TEXTS)
def test_every_text_has_its_own_name(one: str, other: str) -> None:
    """Two texts never share the name of a record, and every name can be stored."""
    assert (named("key", one) == named("key", other)) == (one == other)
    assert named("key", one) != named("id", one)
    assert named("key", one).isascii()
    assert len(named("requeue", one)) <= 200


async def repeats(kernel: Kernel, first: Send, second: Send) -> bool:
    if inserts := list(first.insert("task-1")):
        await kernel.commit("p", *inserts)
    return await second.reached(kernel.scoped("p")) == "task-1"


async def test_the_same_message_of_an_authenticated_caller_is_a_repeat(kernel: Kernel) -> None:
    """The commit of a repeat is refused and finds the first task; another owner's partition has none."""
    send = a_send()
    assert await send.reached(kernel.scoped("p")) is None
    assert await repeats(kernel, send, a_send())
    with pytest.raises(CommitRefused):
        await kernel.commit("p", *a_send().insert("task-2"))
    assert await send.reached(kernel.scoped("other")) is None


@pytest.mark.parametrize(
    "other",
    [
        a_send("other words"),
        a_send(message_id="n"),
        a_send(task_id="t"),
        a_send(context_id="c"),
    ],
    ids=["body", "message id", "task", "context"],
)
async def test_anything_else_is_a_new_message(kernel: Kernel, other: Send) -> None:
    """With repeated_send="auto", the same message id with another body, task or context is no repeat and no error."""
    assert not await repeats(kernel, a_send(), other)
    await kernel.commit("p", *other.insert("task-2"))
    assert await a_send().reached(kernel.scoped("p")) == "task-1"
    assert await other.reached(kernel.scoped("p")) == "task-2"


async def test_a_message_id_of_an_anonymous_caller_is_not_a_key(kernel: Kernel) -> None:
    """Anonymous callers share one owner, so their message ids are not unique; no key is written for them."""
    assert a_send(who=ANONYMOUS).keys == ()
    assert list(a_send(who=ANONYMOUS).insert("task-1")) == []
    assert a_send(who=Principal(tenant="acme")).keys == ()
    assert not await repeats(kernel, a_send(who=ANONYMOUS), a_send(who=ANONYMOUS))


@pytest.mark.parametrize("repeated", ["auto", "same", "new"])
@pytest.mark.parametrize("who", [ANONYMOUS, ADA], ids=["anonymous", "known"])
async def test_an_idempotency_key_is_a_key_for_every_caller(
    kernel: Kernel, repeated: RepeatedSend, who: Principal
) -> None:
    """The same key and body find the same task; another body is an error; another key is like no key."""
    first = a_send(who=who, repeated=repeated, key="k")
    assert await repeats(kernel, first, a_send(who=who, repeated=repeated, key="k"))
    with pytest.raises(IdempotencyKeyReused):
        await a_send("other", who=who, repeated=repeated, key="k", message_id="n").reached(kernel.scoped("p"))
    found = await a_send(who=who, repeated=repeated, key="l").reached(kernel.scoped("p"))
    assert (found == "task-1") == (repeated == "same" or (repeated == "auto" and who is ADA))


async def test_same(kernel: Kernel) -> None:
    """With repeated_send="same", a message id is a key for every caller, and another body is an error."""
    first = a_send(who=ANONYMOUS, repeated="same")
    assert await repeats(kernel, first, a_send(who=ANONYMOUS, repeated="same"))
    with pytest.raises(MessageReused):
        await a_send("other", who=ANONYMOUS, repeated="same").reached(kernel.scoped("p"))


async def test_new(kernel: Kernel) -> None:
    """With repeated_send="new", no message id is a key."""
    assert not await repeats(kernel, a_send(repeated="new"), a_send(repeated="new"))


@pytest.mark.parametrize("key", ["", "x" * (MAX_KEY_CHARACTERS + 1), "ä", "a\tb", "\x7f"])
def test_invalid_keys(key: str) -> None:
    """A key has 1 to 255 printable ASCII characters."""
    with pytest.raises(InvalidTaskRequest, match="Idempotency-Key"):
        checked_key(key)
    assert checked_key("x" * MAX_KEY_CHARACTERS)
