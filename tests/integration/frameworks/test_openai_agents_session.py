"""Sessions of the OpenAI Agents SDK on every engine: like SQLiteSession, but consistent under concurrent writers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from agents import Session, SessionSettings, SQLiteSession

from keelbolt.errors import InvalidValue, SecretKeyMissing, TooLarge
from keelbolt.kernel import Query, open_storage
from keelbolt.openai_agents import KeelboltSession
from keelbolt.openai_agents.families import ITEMS, partition_of
from tests.integration.frameworks.scripted_runner import run

SECRET = "a-secret-key-of-more-than-32-characters"


def message(text: Any) -> Any:
    return {"role": "user", "content": str(text)}


async def texts(session: Any) -> list[str]:
    return [item["content"] for item in await session.get_items()]


async def walk(session: Any) -> list[Any]:
    """Call each method, with its limits."""
    seen: list[Any] = [await session.get_items(), await session.pop_item()]
    await session.add_items([])
    await session.add_items([message(n) for n in range(5)])
    await session.add_items([{"type": "function_call_output", "call_id": "c", "output": "ä\0\ud83d"}])
    seen.extend([await session.get_items(limit) for limit in (None, 0, 1, 3, 6, 100, -1)])
    seen.append(await session.pop_item())
    await session.add_items([message("after")])
    seen.append(await session.get_items(2))
    session.session_settings = SessionSettings(limit=2)
    seen.extend([await session.get_items(), await session.get_items(4)])
    session.session_settings = SessionSettings()
    await session.clear_session()
    seen.append(await session.get_items())
    await session.add_items([message("again")])
    seen.append(await session.get_items())
    seen.extend([await run(session, text) for text in ("one", "two", "three")])
    seen.append([item.get("role") for item in await session.get_items()])
    return seen


async def test_a_session_behaves_like_sqlite_session(any_url: str) -> None:
    """The same calls give the same items, also under the SDK's Runner."""
    plain = SQLiteSession("s")
    async with KeelboltSession("s", any_url) as session:
        assert isinstance(session, Session)
        assert await walk(session) == await walk(plain)
    plain.close()


def test_two_processes_share_a_session(kept_url: str) -> None:
    """A Runner in another process continues the session."""
    command = [sys.executable, "-m", "tests.integration.frameworks.scripted_runner", kept_url]
    outputs = [subprocess.run([*command, text], capture_output=True, text=True, check=True).stdout for text in "ab"]
    assert outputs == ["1 items\n", "3 items\n"]


async def test_lists_are_atomic_under_concurrent_writers(any_url: str) -> None:
    """Lists of concurrent writers are not interleaved or lost; each item is popped once."""
    async with open_storage(any_url) as kernel:
        sessions = [KeelboltSession("s", kernel) for _ in range(4)]
        await asyncio.gather(
            *[s.add_items([message((w, n, part)) for part in "ab"]) for w, s in enumerate(sessions) for n in range(10)]
        )
        items = await texts(sessions[0])
        assert len(items) == len(set(items)) == 80
        assert all(a[:-3] == b[:-3] for a, b in zip(items[::2], items[1::2], strict=True))
        popped: list[Any] = await asyncio.gather(*[s.pop_item() for s in sessions for _ in range(10)])
        assert await texts(sessions[1]) == items[:40]
        assert sorted(item["content"] for item in popped) == sorted(items[40:])


async def test_items_expire(any_url: str) -> None:
    """With ttl_seconds an item expires; the session continues."""
    async with KeelboltSession("s", any_url, ttl_seconds=0.5) as session:
        await session.add_items([message("old")])
        await asyncio.sleep(0.7)
        assert await session.get_items() == []
        await session.add_items([message("new")])
        assert await session.get_items() == [message("new")]


async def test_a_session_can_be_given_an_expiry_later(any_url: str) -> None:
    """Items without expiry precede later items with expiry, also after these expired."""
    async with open_storage(any_url) as kernel:
        await KeelboltSession("s", kernel).add_items([message("kept")])
        short = KeelboltSession("s", kernel, ttl_seconds=0.3)
        await short.add_items([message("short")])
        await asyncio.sleep(0.5)
        await short.add_items([message("next")])
        assert await short.get_items() == [message("kept"), message("next")]


async def test_items_are_encrypted_with_a_key(any_url: str) -> None:
    """No stored byte contains the text; another key, or no key, is refused; keys can be changed."""
    async with open_storage(any_url) as kernel:
        session = KeelboltSession("s", kernel, secret_key=SECRET)
        await KeelboltSession("s", kernel).add_items([message("before the key")])
        await session.add_items([message("confidential")])
        page = await kernel.scoped(partition_of("default")).find(Query(ITEMS, equal={"session": "s"}, order="number"))
        assert [b"confidential" in record.body for record in page.records] == [False, False]
        assert await session.get_items() == [message("before the key"), message("confidential")]
        changed = KeelboltSession("s", kernel, secret_key=f"{'n' * 32},{SECRET}")
        assert len(await changed.get_items()) == 2
        for other in (None, "o" * 32):
            with pytest.raises(SecretKeyMissing, match="session 's'"):
                await KeelboltSession("s", kernel, secret_key=other).get_items()


async def test_a_fork_is_independent(any_url: str) -> None:
    async with KeelboltSession("s", any_url) as session:
        await session.add_items([message("one"), message("two")])
        other = await session.fork("other")
        await other.pop_item()
        assert await session.get_items() == [message("one"), message("two")]
        assert await other.get_items() == [message("one")]
        with pytest.raises(InvalidValue, match="has items"):
            await session.fork("other")
        await other.close()


async def test_a_long_session_can_be_forked_and_cleared() -> None:
    """A commit of the storage has at most 1,000 operations."""
    async with KeelboltSession("s", "memory:") as session:
        items = [message(str(number)) for number in range(1200)]
        for start in (0, 600):
            await session.add_items(items[start : start + 600])
        other = await session.fork("other")
        await session.clear_session()
        assert await session.get_items() == []
        assert await other.get_items() == items
        await other.close()


async def test_sessions_and_tenants_are_isolated(kept_url: str) -> None:
    """Ids with any text name different sessions; another tenant does not see them."""
    names = ["", "a", "a/b", "a b", "ä", "x" * 500, "x" * 501]
    sessions = [KeelboltSession(name, kept_url) for name in names]
    for session in sessions:
        await session.add_items([message(session.session_id)])
    for session in sessions:
        assert await session.get_items() == [message(session.session_id)]
    async with KeelboltSession("a", kept_url, tenant="other") as elsewhere:
        assert await elsewhere.get_items() == []
    for session in sessions:
        await session.close()


async def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidValue, match="ttl_seconds"):
        KeelboltSession("s", "memory:", ttl_seconds=0)
    with pytest.raises(InvalidValue, match="32"):
        KeelboltSession("s", "memory:", secret_key="short")
    async with KeelboltSession("s", "memory:") as session:
        with pytest.raises(TypeError, match="JSON serializable"):
            await session.add_items([message("fine"), {"role": "user", "content": object()}])  # type: ignore[list-item, misc]
        with pytest.raises(TooLarge):
            await session.add_items([message("fine"), message("x" * 20_000_000)])
        assert await session.get_items() == []


def test_one_session_in_several_event_loops() -> None:
    """With asyncio.run twice, as in Runner.run_sync, the session is the same."""
    session = KeelboltSession("s", "memory:")
    asyncio.run(session.add_items([message("one")]))
    assert asyncio.run(session.get_items()) == [message("one")]
    asyncio.run(session.close())


def test_settings_can_be_a_dictionary() -> None:
    assert KeelboltSession("s", "memory:", session_settings={"limit": 0}).session_settings == SessionSettings(limit=0)
    with pytest.raises(TypeError, match="limitt"):
        KeelboltSession("s", "memory:", session_settings={"limitt": 1})
