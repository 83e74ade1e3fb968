"""Laws of work items: the effect of each operation on one item and its fence."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.kernel.contract import MAX_REASON_CHARS, Kernel
from keelbolt.kernel.records import Put, Version
from keelbolt.kernel.work import Claim, Complete, Enqueue, Release, Remove, Retry, WorkItem

P = "p"
FAR_SECONDS = 600.0


async def item(kernel: Kernel, key: str = "a") -> WorkItem:
    found = await kernel.work(P, "runs", key)
    expect(found is not None, f"there is no work item {key}")
    assert found is not None
    return found


async def claim(kernel: Kernel, worker: str = "w", *, lease_seconds: float = FAR_SECONDS) -> Claim:
    claims = await kernel.claim("runs", worker, lease_seconds=lease_seconds)
    equal(len(claims), 1, "the number of claimed items")
    return claims[0]


async def nothing_ready(kernel: Kernel, worker: str = "idle") -> None:
    equal(list(await kernel.claim("runs", worker)), [], "the items that can be claimed")


@law()
async def an_enqueued_item_waits(kernel: Kernel) -> None:
    """An enqueued item waits with the given values; work returns None for an unknown item."""
    await kernel.commit(P, Enqueue("runs", "a", ready_in=FAR_SECONDS, lane="l", priority=-3, max_attempts=2))
    found = await item(kernel)
    equal((found.partition, found.queue, found.key, found.state), (P, "runs", "a", "waiting"), "the item")
    equal((found.lane, found.priority, found.max_attempts), ("l", -3, 2), "lane, priority and max_attempts")
    equal((found.attempt, found.holder, found.reason), (0, None, None), "attempt, holder and reason")
    expect(FAR_SECONDS - 10 < found.ready_in <= FAR_SECONDS, f"ready in {found.ready_in} s")
    expect(await kernel.work(P, "runs", "none") is None, "an unknown item")
    expect(await kernel.work(P, "other", "a") is None, "an item of another queue")


@law()
async def a_claim_holds_the_item(kernel: Kernel) -> None:
    """A claimed item is held by its worker under its fence, at attempt 1; no other worker can claim it."""
    await kernel.commit(P, Enqueue("runs", "a", lane="l", priority=2, max_attempts=3))
    held = await claim(kernel)
    equal((held.partition, held.queue, held.key), (P, "runs", "a"), "the claimed items")
    equal((held.attempt, held.max_attempts, held.lane, held.priority), (1, 3, "l", 2), "the values of the claim")
    expect(held.fence >= 1 and not held.exhausted, f"the claim is {held}")
    found = await item(kernel)
    equal((found.state, found.holder, found.fence, found.attempt), ("held", "w", held.fence, 1), "the held item")
    await nothing_ready(kernel, "other")
    await nothing_ready(kernel, "w")


@law()
async def an_item_that_is_not_ready_waits_for_its_time(kernel: Kernel) -> None:
    """An item can be claimed from its ready time on, and not before."""
    await kernel.commit(P, Enqueue("runs", "a", ready_in=0.25), Enqueue("runs", "b", ready_in=FAR_SECONDS))
    await nothing_ready(kernel)
    await asyncio.sleep(0.3)
    equal((await claim(kernel)).key, "a", "the item that became ready")
    await nothing_ready(kernel)


@law()
async def complete_removes_the_item(kernel: Kernel) -> None:
    """Complete removes the item; a second Complete with the same fence is refused."""
    await kernel.commit(P, Enqueue("runs", "a"))
    held = await claim(kernel)
    await kernel.commit(P, held.complete())
    expect(await kernel.work(P, "runs", "a") is None, "the completed item still exists")
    await refuses(kernel, P, held.complete(), reason="fence", found=0)
    await nothing_ready(kernel)


@law()
async def fences_grow_with_each_claim(kernel: Kernel) -> None:
    """Each claim of a key has a greater fence than all before: after release, retry, complete, remove and bury."""
    fences = [0]

    async def again(why: str) -> Claim:
        held = await claim(kernel)
        expect(held.fence > fences[-1], f"after {why} the fence {held.fence} is not greater than {fences[-1]}")
        fences.append(held.fence)
        return held

    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.commit(P, (await again("enqueue")).release())
    await kernel.commit(P, (await again("release")).retry("why"))
    await kernel.commit(P, (await again("retry")).complete())
    await kernel.commit(P, Enqueue("runs", "a"))
    await again("complete and enqueue")
    await kernel.commit(P, Remove("runs", "a"))
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.commit(P, (await again("remove and enqueue")).bury("why"))
    await kernel.commit(P, Enqueue("runs", "a"))
    held = await again("bury and enqueue")
    await kernel.commit(P, Enqueue("runs", "a"), Put("plain", "a", b""))
    await kernel.commit(P, held.complete())
    await kernel.commit(P, (await again("a nudge")).complete())
    fence = (await kernel.commit(P, Enqueue("runs", "a", worker="v"))).fence("runs", "a")
    expect(fence > fences[-1], f"the fence {fence} of an Enqueue with a worker is not greater than {fences[-1]}")


@law()
async def a_stale_fence_is_refused(kernel: Kernel) -> None:
    """After a newer claim, every operation with the older fence is refused, with its whole commit."""
    await kernel.commit(P, Enqueue("runs", "a"), Put("plain", "a", b""))
    old = await claim(kernel)
    await kernel.commit(P, old.release())
    new = await claim(kernel, "v")
    for stale in (old.fenced(), old.complete(), old.release(), old.retry("why"), old.bury("why")):
        await refuses(kernel, P, Put("plain", "a", b"stale"), stale, reason="fence", found=new.fence)
    record = await kernel.get(P, "plain", "a")
    equal(record.version if record else 0, 1, "the version of the record after the stale fence")
    equal((await item(kernel)).holder, "v", "the holder")
    await kernel.commit(P, new.complete())


@law()
async def only_a_held_item_has_a_valid_fence(kernel: Kernel) -> None:
    """Complete, Release, Retry and Bury are refused for an item that waits, is dead or does not exist."""
    await kernel.commit(P, Enqueue("runs", "a"))
    held = await claim(kernel)
    await kernel.commit(P, held.retry("why"))
    for operation in (held.fenced(), held.complete(), held.release(), held.retry("x"), held.bury("x")):
        await refuses(kernel, P, operation, reason="fence")
    buried = await claim(kernel)
    await kernel.commit(P, buried.bury("why"))
    for operation in (buried.fenced(), buried.complete(), buried.release(), buried.retry("x"), buried.bury("x")):
        await refuses(kernel, P, operation, reason="fence")
    await kernel.commit(P, Remove("runs", "a"))
    await refuses(kernel, P, buried.complete(), reason="fence", found=0)


@law()
async def release_does_not_count_the_attempt(kernel: Kernel) -> None:
    """Release makes the item ready again after ``ready_in``, and does not count the attempt."""
    await kernel.commit(P, Enqueue("runs", "a", max_attempts=1))
    for _ in range(3):
        held = await claim(kernel)
        equal((held.attempt, held.exhausted), (1, False), "the attempt")
        await kernel.commit(P, held.release())
        found = await item(kernel)
        equal((found.state, found.holder, found.attempt), ("waiting", None, 0), "the released item")
    held = await claim(kernel)
    await kernel.commit(P, held.release(ready_in=FAR_SECONDS))
    await nothing_ready(kernel)


@law()
async def retry_counts_and_ends_dead(kernel: Kernel) -> None:
    """Retry counts the attempt and stores the reason; after the last one the item is dead, as the receipt shows."""
    await kernel.commit(P, Enqueue("runs", "a", max_attempts=3))
    for attempt in (1, 2, 3):
        held = await claim(kernel)
        equal((held.attempt, held.exhausted), (attempt, False), "the attempt")
        receipt = await kernel.commit(P, held.retry(f"why {attempt}"))
        found = await item(kernel)
        equal(receipt.dead("runs", "a"), attempt == 3, f"whether attempt {attempt} was the last")
        equal(found.state, "dead" if attempt == 3 else "waiting", f"the state after attempt {attempt}")
        equal((found.reason, found.holder), (f"why {attempt}", None), f"the item after attempt {attempt}")
    await nothing_ready(kernel)


@law()
async def retry_waits_for_its_time(kernel: Kernel) -> None:
    """A retried item can be claimed from ``ready_in`` seconds on."""
    await kernel.commit(P, Enqueue("runs", "a"), Enqueue("runs", "b"))
    for held in await kernel.claim("runs", "w", limit=2):
        await kernel.commit(P, held.retry("why", ready_in=0.3 if held.key == "a" else FAR_SECONDS))
    await nothing_ready(kernel)
    await asyncio.sleep(0.35)
    again = await claim(kernel)
    equal((again.key, again.attempt), ("a", 2), "the item that became ready")
    await nothing_ready(kernel)


@law()
async def bury_keeps_the_item_dead(kernel: Kernel) -> None:
    """A buried item is dead with its reason and never claimed, until it is enqueued again or removed."""
    await kernel.commit(P, Enqueue("runs", "a"))
    reason = "ü" * MAX_REASON_CHARS
    await kernel.commit(P, (await claim(kernel)).bury(reason))
    found = await item(kernel)
    equal((found.state, found.reason, found.holder), ("dead", reason, None), "the buried item")
    await nothing_ready(kernel)
    equal([dead.key for dead in (await kernel.list_work(P, "runs", state="dead")).items], ["a"], "the dead items")


@law()
async def remove_works_in_any_state(kernel: Kernel) -> None:
    """Remove removes an item that waits, is held or is dead; the holder's fence is no longer valid."""
    await kernel.commit(P, Remove("runs", "a"))
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.commit(P, Remove("runs", "a"))
    await nothing_ready(kernel)
    await kernel.commit(P, Enqueue("runs", "a"))
    held = await claim(kernel)
    await kernel.commit(P, Remove("runs", "a"))
    await refuses(kernel, P, held.fenced(), reason="fence", found=0)
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.commit(P, (await claim(kernel)).bury("why"))
    await kernel.commit(P, Remove("runs", "a"))
    expect(await kernel.work(P, "runs", "a") is None, "the removed item still exists")


# ----------------------------------------------------------------------------------------------------------- nudges


@law()
async def enqueue_on_a_waiting_item_takes_the_earlier_time(kernel: Kernel) -> None:
    """Enqueue of a waiting item leaves one item, ready at the earlier time, with the new lane and priority."""
    await kernel.commit(P, Enqueue("runs", "a", ready_in=FAR_SECONDS, lane="old", priority=1, max_attempts=1))
    await kernel.commit(P, Enqueue("runs", "a", lane="new", priority=7, max_attempts=9))
    await kernel.commit(P, Enqueue("runs", "a", ready_in=FAR_SECONDS, lane="new", priority=7, max_attempts=9))
    found = await item(kernel)
    expect(found.ready_in <= 0, f"the item is ready in {found.ready_in} s")
    equal((found.lane, found.priority, found.max_attempts), ("new", 7, 9), "lane, priority and max_attempts")
    held = await claim(kernel)
    equal((held.lane, held.priority, held.max_attempts, held.attempt), ("new", 7, 9, 1), "the claim")
    await kernel.commit(P, held.complete())
    await nothing_ready(kernel)


@law()
async def an_item_enqueued_many_times_is_claimed_once(kernel: Kernel) -> None:
    """An item that was enqueued many times while it waits is claimed once."""
    for _ in range(4):
        await kernel.commit(P, Enqueue("runs", "a"), Enqueue("runs", "b", priority=1))
    keys = [held.key for held in await kernel.claim("runs", "w", limit=20)]
    equal(sorted(keys), ["a", "b"], "the claimed items")
    await nothing_ready(kernel)


@law()
async def enqueue_keeps_the_attempts_of_a_waiting_item(kernel: Kernel) -> None:
    """Enqueue of an item that waits for its next attempt keeps its used attempts."""
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.commit(P, (await claim(kernel)).retry("why", ready_in=FAR_SECONDS))
    await kernel.commit(P, Enqueue("runs", "a"))
    equal((await claim(kernel)).attempt, 2, "the attempt")


@law()
async def a_nudge_is_not_lost(kernel: Kernel) -> None:
    """An item enqueued while it is held stays with its holder, and waits again when the holder completes it."""
    await kernel.commit(P, Enqueue("runs", "a"))
    held = await claim(kernel)
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.commit(P, Enqueue("runs", "a", ready_in=FAR_SECONDS))
    found = await item(kernel)
    equal((found.state, found.holder, found.fence), ("held", "w", held.fence), "the nudged item")
    await nothing_ready(kernel)
    await kernel.commit(P, held.fenced())
    await kernel.commit(P, held.complete())
    again = await claim(kernel)
    equal((again.key, again.attempt), ("a", 1), "the item that came back")
    await kernel.commit(P, again.complete())
    expect(await kernel.work(P, "runs", "a") is None, "one nudge made the item ready twice")


@law()
async def a_nudge_for_later_comes_later(kernel: Kernel) -> None:
    """A nudge with ``ready_in`` makes the item ready at that time, not before."""
    await kernel.commit(P, Enqueue("runs", "a"))
    held = await claim(kernel)
    await kernel.commit(P, Enqueue("runs", "a", ready_in=0.25))
    await kernel.commit(P, held.complete())
    await nothing_ready(kernel)
    await asyncio.sleep(0.3)
    equal((await claim(kernel)).key, "a", "the item that became ready")


@law()
async def enqueue_of_a_dead_item_starts_again(kernel: Kernel) -> None:
    """Enqueue of a dead item lets it wait with all its attempts and the new values."""
    await kernel.commit(P, Enqueue("runs", "a", max_attempts=1))
    await kernel.commit(P, (await claim(kernel)).retry("why"))
    await kernel.commit(P, Enqueue("runs", "a", lane="l", max_attempts=4))
    held = await claim(kernel)
    equal((held.attempt, held.max_attempts, held.lane), (1, 4, "l"), "the claim")


@law()
async def enqueue_with_a_worker_claims_at_once(kernel: Kernel) -> None:
    """With a worker, Enqueue claims the item in the same commit: a new one, a waiting one, or a dead one."""
    await kernel.heartbeat("w", lease_seconds=FAR_SECONDS)
    await kernel.commit(P, Enqueue("runs", "waiting", max_attempts=2))
    await kernel.commit(P, Enqueue("runs", "dead"))
    for held in await kernel.claim("runs", "v", limit=2):
        await kernel.commit(P, held.bury("why") if held.key == "dead" else held.retry("why"))
    for key, attempt in (("new", 1), ("waiting", 2), ("dead", 1)):
        receipt = await kernel.commit(P, Enqueue("runs", key, worker="w"), Put("plain", key, b""))
        fence = receipt.fence("runs", key)
        found = await item(kernel, key)
        equal((found.state, found.holder, found.fence), ("held", "w", fence), f"the {key} item")
        expect(fence >= 1, f"the fence of the {key} item is {fence}")
        equal(found.attempt, attempt, f"the attempt of the {key} item")
    await nothing_ready(kernel, "v")
    await kernel.commit(P, Complete("runs", "new", (await item(kernel, "new")).fence))


@law()
async def enqueue_with_a_worker_respects_the_holder(kernel: Kernel) -> None:
    """Enqueue with a worker, and its whole commit, is refused if another worker holds the item."""
    await kernel.commit(P, Enqueue("runs", "a"))
    held = await claim(kernel, "v")
    operations = (Put("plain", "a", b""), Enqueue("runs", "a", worker="w"))
    await refuses(kernel, P, *operations, reason="held", found=held.fence)
    expect(await kernel.get(P, "plain", "a") is None, "a record was written with the refused Enqueue")
    await kernel.commit(P, held.complete())
    expect(await kernel.work(P, "runs", "a") is None, "the refused Enqueue nudged the item")


@law()
async def work_and_records_are_one_commit(kernel: Kernel) -> None:
    """A refused check leaves the item unchanged: it is completed together with its record or not at all."""
    await kernel.commit(P, Enqueue("runs", "a"), Put("plain", "a", b""))
    held = await claim(kernel)
    for end in (held.complete(), held.release(), held.retry("why"), held.bury("why"), Remove("runs", "a")):
        await refuses(kernel, P, end, Version("plain", "a", 2), reason="version", found=1)
        equal((await item(kernel)).fence, held.fence, f"the fence after a refused {end}")
        equal((await item(kernel)).state, "held", f"the state after a refused {end}")
    await kernel.commit(P, held.complete(), Version("plain", "a", 1), Put("plain", "a", b""))


@law()
async def list_work_lists_a_state_by_key(kernel: Kernel) -> None:
    """list_work returns the items of a queue in one state, by key, page by page, each once."""
    await kernel.commit(P, *(Enqueue("runs", f"k{n:02}", ready_in=FAR_SECONDS) for n in reversed(range(10))))
    await kernel.commit(P, Enqueue("other", "x"))
    for n in range(3):
        await kernel.commit(P, Enqueue("runs", f"h{n}", worker="w"), Enqueue("runs", f"d{n}", worker="w"))
        await kernel.commit(P, Retry("runs", f"h{n}", (await item(kernel, f"h{n}")).fence, "why", FAR_SECONDS))
        await kernel.commit(P, Enqueue("runs", f"h{n}", worker="w"))
        await kernel.commit(P, Enqueue("runs", f"r{n}", worker="w"))
        await kernel.commit(P, Release("runs", f"r{n}", (await item(kernel, f"r{n}")).fence, FAR_SECONDS))
    for held in [(await item(kernel, f"d{n}")) for n in range(3)]:
        await kernel.commit(P, Claim(kernel.scoped(P), "runs", held.key, held.fence, 1, 5, "", 0).bury("why"))
    wanted = {
        "waiting": [*(f"k{n:02}" for n in range(10)), "r0", "r1", "r2"],
        "held": ["h0", "h1", "h2"],
        "dead": ["d0", "d1", "d2"],
    }
    for state in ("waiting", "held", "dead"):
        for limit in (1, 3, 100):
            keys: list[str] = []
            page = await kernel.list_work(P, "runs", state=state, limit=limit)
            while page.cursor is not None:
                equal(len(page.items), limit, "the size of a page that is not the last")
                keys += [found.key for found in page.items]
                page = await kernel.list_work(P, "runs", state=state, limit=limit, cursor=page.cursor)
            keys += [found.key for found in page.items]
            equal(keys, wanted[state], f"the {state} items with pages of {limit}")
