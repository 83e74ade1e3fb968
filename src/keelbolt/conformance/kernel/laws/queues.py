"""Laws of claims: order, leases, and one holder per item."""

from __future__ import annotations

import asyncio
from collections import Counter

from keelbolt.conformance.expect import equal, expect
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.records import Put
from keelbolt.kernel.work import Claim, Enqueue

P = "p"
FAR_SECONDS = 600.0
SHORT_SECONDS = 0.2


async def claimed(kernel: Kernel, count: int, *, worker: str = "w", limit: int = 1) -> list[Claim]:
    """``count`` items, claimed ``limit`` at a time."""
    claims: list[Claim] = []
    while len(claims) < count:
        some = await kernel.claim("runs", worker, limit=min(limit, count - len(claims)), lease_seconds=FAR_SECONDS)
        expect(some, f"only {len(claims)} of {count} items could be claimed")
        claims += some
    return claims


async def hold_and_die(kernel: Kernel, *keys: str, worker: str = "dead", partition: str = P) -> list[Claim]:
    """Hold these items by a worker whose lease has ended."""
    await kernel.commit(partition, *(Enqueue("runs", key) for key in keys))
    claims = list(await kernel.claim("runs", worker, limit=len(keys), lease_seconds=SHORT_SECONDS))
    equal(sorted(claim.key for claim in claims), sorted(keys), "the items that the first worker claimed")
    await asyncio.sleep(SHORT_SECONDS + 0.05)
    return claims


# ------------------------------------------------------------------------------------------------------------- order


@law()
async def lanes_are_served_in_turn(kernel: Kernel) -> None:
    """No lane is served twice while another lane with ready items waits, whatever the length of its backlog."""
    for limit in (1, 4, 100):
        for lane, count in (("a", 30), ("b", 6), ("c", 6)):
            await kernel.commit(P, *(Enqueue("runs", f"{lane}{n}", lane=lane) for n in range(count)))
        lanes = [claim.lane for claim in await claimed(kernel, 42, limit=limit)]
        for turn in range(6):
            three = lanes[turn * 3 : turn * 3 + 3]
            equal(sorted(three), ["a", "b", "c"], f"the lanes of turn {turn} with claims of {limit}: {lanes}")
        equal(await kernel.retire("w"), 42, "the retired items")
        for claim in await claimed(kernel, 42, limit=42):
            await kernel.commit(P, claim.complete())


@law()
async def partitions_of_a_lane_are_served_in_turn(kernel: Kernel) -> None:
    """In a lane, no partition is served twice while another waits; more partitions do not mean more turns."""
    backlogs = {("one", "a"): 30, ("two", "a"): 6, ("three", "a"): 6, ("four", "b"): 42}
    for limit in (1, 4, 100):
        for (partition, lane), count in backlogs.items():
            await kernel.commit(partition, *(Enqueue("runs", f"k{n}", lane=lane) for n in range(count)))
        claims = await claimed(kernel, 84, limit=limit)
        lanes = [claim.lane for claim in claims]
        equal(lanes.count("a"), 42, "how often the first lane was served")
        for turn in range(18):  # while all partitions have items
            equal(
                sorted(lanes[turn * 2 : turn * 2 + 2]), ["a", "b"], f"the lanes of turn {turn} with claims of {limit}"
            )
        served = [claim.partition for claim in claims if claim.lane == "a"]
        for turn in range(6):
            three = served[turn * 3 : turn * 3 + 3]
            equal(
                sorted(three),
                ["one", "three", "two"],
                f"the partitions of turn {turn} with claims of {limit}: {served}",
            )
        for claim in claims:
            await kernel.commit(claim.partition, claim.complete())


@law()
async def a_new_partition_does_not_wait_for_the_backlog(kernel: Kernel) -> None:
    """An item of a partition that was empty is served within one turn, despite long backlogs of others in its lane."""
    for partition in ("b", "d"):
        await kernel.commit(partition, *(Enqueue("runs", f"k{n}", lane="l") for n in range(40)))
    await claimed(kernel, 5)
    for new in ("a", "c", "e"):
        await kernel.commit(new, Enqueue("runs", "new", lane="l"))
        partitions = [claim.partition for claim in await claimed(kernel, 3)]
        expect(new in partitions, f"the new partition {new} was not among the next three: {partitions}")


@law()
async def a_new_lane_does_not_wait_for_the_backlog(kernel: Kernel) -> None:
    """An item of a lane that was empty is served within one turn, despite long backlogs of other lanes."""
    for lane in ("a", "b"):
        await kernel.commit(P, *(Enqueue("runs", f"{lane}{n}", lane=lane) for n in range(40)))
    await claimed(kernel, 5)
    await kernel.commit(P, Enqueue("runs", "new", lane="c"))
    lanes = [claim.lane for claim in await claimed(kernel, 3)]
    expect("c" in lanes, f"the new lane was not among the next three: {lanes}")


@law()
async def a_priority_does_not_starve_another_lane(kernel: Kernel) -> None:
    """Priorities order the items of one lane and do not give the lane more turns."""
    await kernel.commit(P, *(Enqueue("runs", f"a{n}", lane="a", priority=100) for n in range(10)))
    await kernel.commit(P, *(Enqueue("runs", f"b{n}", lane="b", priority=-100) for n in range(10)))
    lanes = [claim.lane for claim in await claimed(kernel, 10)]
    equal(Counter(lanes), Counter(a=5, b=5), "how often each lane was served")


@law()
async def within_a_lane_priority_then_age(kernel: Kernel) -> None:
    """Within a lane the larger priority is served first, then the item that has been ready for longer."""
    order = [("x", 0), ("y", 5), ("z", -5), ("u", 5), ("v", 0), ("t", 5)]
    for key, priority in order:
        await kernel.commit(P, Enqueue("runs", key, priority=priority))
        await asyncio.sleep(0.002)
    keys = [claim.key for claim in await claimed(kernel, 6)]
    equal(keys, ["y", "u", "t", "x", "v", "z"], "the order of the claims")


@law()
async def age_counts_from_readiness(kernel: Kernel) -> None:
    """Of two items with one priority, the one that became ready first is served first, not the one enqueued first."""
    # In one commit: between two commits more time than the difference may pass on a busy machine.
    await kernel.commit(P, Enqueue("runs", "late", ready_in=0.2), Enqueue("runs", "early", ready_in=0.05))
    await asyncio.sleep(0.25)
    equal([claim.key for claim in await claimed(kernel, 2)], ["early", "late"], "the order of the claims")


@law()
async def expired_leases_go_before_the_backlog(kernel: Kernel) -> None:
    """Items of expired leases are claimed before all others of any lane and priority."""
    await hold_and_die(kernel, "x", "y")
    await kernel.commit(P, *(Enqueue("runs", f"k{n}", lane=f"l{n % 3}", priority=100) for n in range(20)))
    first = [*await kernel.claim("runs", "w", limit=1), *await kernel.claim("runs", "w", limit=3)]
    equal(sorted(claim.key for claim in first[:2]), ["x", "y"], "the first two claims")
    equal(len(first), 4, "the number of claims")


@law()
async def claim_serves_all_partitions(kernel: Kernel) -> None:
    """One claim serves the items of all partitions, and every partition with ready items is served in the end."""
    for number in range(5):
        await kernel.commit(f"p{number}", *(Enqueue("runs", f"k{n}") for n in range(3)))
    claims = await claimed(kernel, 15, limit=4)
    equal(len({(claim.partition, claim.key) for claim in claims}), 15, "the number of different items")
    for claim in claims:
        await kernel.commit(claim.partition, claim.complete())


@law()
async def queues_do_not_mix(kernel: Kernel) -> None:
    """A claim returns items of its own queue only."""
    await kernel.commit(P, Enqueue("runs", "a"), Enqueue("other", "b"), Enqueue("other", "a"))
    equal([claim.key for claim in await kernel.claim("runs", "w", limit=10)], ["a"], "the items of one queue")
    claims = await kernel.claim("other", "w", limit=10)
    equal(sorted(claim.key for claim in claims), ["a", "b"], "the items of the other queue")


@law()
async def a_claim_takes_up_to_its_limit(kernel: Kernel) -> None:
    """A claim returns at most ``limit`` items, and all that are ready if no other worker claims."""
    await kernel.commit(P, *(Enqueue("runs", f"k{n}") for n in range(7)))
    equal([len(await kernel.claim("runs", "w", limit=limit)) for limit in (3, 3, 3, 3)], [3, 3, 1, 0], "the sizes")


# ------------------------------------------------------------------------------------------------------------- leases


@law()
async def an_expired_lease_lets_others_claim(kernel: Kernel) -> None:
    """When a worker's lease ends, others can claim all its items, with a greater fence and the next attempt."""
    old = await hold_and_die(kernel, "x", "y")
    new = await claimed(kernel, 2, worker="heir", limit=2)
    equal(sorted(claim.key for claim in new), ["x", "y"], "the items that the second worker claimed")
    for claim in new:
        before = next(earlier for earlier in old if earlier.key == claim.key)
        expect(claim.fence > before.fence, f"the fence {claim.fence} is not greater than {before.fence}")
        equal(claim.attempt, 2, "the attempt")
        for stale in (before.fenced(), before.complete(), before.release(), before.retry("x"), before.bury("x")):
            await refuses(kernel, P, stale, reason="fence", found=claim.fence)
        await kernel.commit(P, claim.complete())


@law()
async def a_running_lease_prevents_other_claims(kernel: Kernel) -> None:
    """While a lease runs, no other worker can claim its items."""
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.claim("runs", "w", lease_seconds=20)
    for _ in range(4):
        equal(list(await kernel.claim("runs", "other")), [], "the items that others can claim")
        await asyncio.sleep(0.05)


@law()
async def an_expired_lease_holds_until_the_takeover(kernel: Kernel) -> None:
    """Until another worker claims the item, the holder of an expired lease may still write, complete and renew."""
    (one, two) = await hold_and_die(kernel, "x", "y", worker="slow")
    await kernel.commit(P, one.fenced(), Put("plain", "a", b""))
    await kernel.commit(P, one.complete())
    await kernel.heartbeat("slow", lease_seconds=FAR_SECONDS)
    equal(list(await kernel.claim("runs", "other")), [], "the items that others can claim after the renewal")
    await kernel.commit(P, two.complete())


@law()
async def one_heartbeat_renews_everything(kernel: Kernel) -> None:
    """One heartbeat renews the lease of all items that a worker holds, in all queues and partitions."""
    await kernel.commit(P, Enqueue("runs", "a"), Enqueue("other", "a"))
    await kernel.commit("q", Enqueue("runs", "a"))
    held = [*await kernel.claim("runs", "w", limit=2, lease_seconds=0.2)]
    held += await kernel.claim("other", "w", limit=2, lease_seconds=0.2)
    equal(len(held), 3, "the number of held items")
    await kernel.heartbeat("w", lease_seconds=FAR_SECONDS)
    await asyncio.sleep(0.25)
    equal(list(await kernel.claim("runs", "v", limit=9)), [], "the items of one queue that others can claim")
    equal(list(await kernel.claim("other", "v", limit=9)), [], "the items of the other queue that others can claim")
    await kernel.heartbeat("w", lease_seconds=0.05)
    await asyncio.sleep(0.1)
    equal(
        len(await kernel.claim("runs", "v", limit=9)), 2, "the items that others can claim after the last lease ended"
    )


@law()
async def a_claim_renews_like_a_heartbeat(kernel: Kernel) -> None:
    """A claim renews the lease of its worker, also if it returns no item."""
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.claim("runs", "w", lease_seconds=0.2)
    equal(list(await kernel.claim("runs", "w", lease_seconds=FAR_SECONDS)), [], "the second claim")
    await asyncio.sleep(0.25)
    equal(list(await kernel.claim("runs", "v")), [], "the items that others can claim")


@law()
async def leases_belong_to_workers(kernel: Kernel) -> None:
    """The heartbeat of one worker does not renew the lease of another."""
    await kernel.commit(P, Enqueue("runs", "a"))
    await kernel.claim("runs", "w-1", lease_seconds=SHORT_SECONDS)
    await kernel.heartbeat("w-2", lease_seconds=FAR_SECONDS)
    await kernel.heartbeat("w", lease_seconds=FAR_SECONDS)
    await asyncio.sleep(SHORT_SECONDS + 0.05)
    equal([claim.key for claim in await kernel.claim("runs", "w-2")], ["a"], "the items that the other worker claims")


@law()
async def an_item_claimed_by_enqueue_has_a_lease(kernel: Kernel) -> None:
    """An item claimed by Enqueue belongs to its worker's lease: held while it runs, free when it ends."""
    await kernel.heartbeat("w", lease_seconds=SHORT_SECONDS * 2)
    await kernel.commit(P, Enqueue("runs", "a", worker="w"))
    equal(list(await kernel.claim("runs", "v")), [], "the items that others can claim while the lease runs")
    await asyncio.sleep(SHORT_SECONDS * 2 + 0.05)
    equal([claim.attempt for claim in await kernel.claim("runs", "v")], [2], "the attempts claimed after it ended")


@law()
async def enqueue_with_a_new_worker_starts_a_lease(kernel: Kernel) -> None:
    """Enqueue with a worker that has no lease starts one: no other worker can take the item over at once."""
    await kernel.commit(P, Enqueue("runs", "a", worker="new"))
    equal(list(await kernel.claim("runs", "v")), [], "the items that others can claim")
    equal(await kernel.retire("new"), 1, "the number of items that the new worker held")


@law()
async def retire_releases_everything_at_once(kernel: Kernel) -> None:
    """retire releases all items of a worker without counting the attempt, returns their number, and ends its fences."""
    await kernel.commit(P, Enqueue("runs", "a"), Enqueue("runs", "b"), Enqueue("other", "a"))
    held = [*await kernel.claim("runs", "w", limit=2), *await kernel.claim("other", "w")]
    await kernel.heartbeat("w2")
    await kernel.commit(P, Enqueue("runs", "c", worker="w2"))
    equal(await kernel.retire("w"), 3, "the number of released items")
    for claim in held:
        await refuses(kernel, P, claim.fenced(), reason="fence")
    again = await kernel.claim("runs", "v", limit=9)
    equal(sorted((claim.key, claim.attempt) for claim in again), [("a", 1), ("b", 1)], "the items that can be claimed")
    equal(await kernel.retire("w"), 0, "the number released by a second retire")
    equal(await kernel.retire("never seen"), 0, "the number released by an unknown worker")


@law()
async def an_exhausted_item_is_claimed_once_more(kernel: Kernel) -> None:
    """An item whose holders died at every attempt is claimed once more, marked exhausted, and can be buried."""
    await kernel.commit(P, Enqueue("runs", "a", max_attempts=2))
    for attempt in (1, 2):
        (claim,) = await kernel.claim("runs", f"w{attempt}", lease_seconds=0.05)
        equal((claim.attempt, claim.exhausted), (attempt, False), "the attempt")
        await asyncio.sleep(0.08)
    (claim,) = await kernel.claim("runs", "w3")
    equal((claim.attempt, claim.exhausted), (3, True), "the claim after all attempts")
    await kernel.commit(P, Put("plain", "a", b"failed"), claim.bury("each holder died"))
    item = await kernel.work(P, "runs", "a")
    equal(item.state if item else None, "dead", "the state of the buried item")


@law()
async def retry_of_an_exhausted_item_makes_it_dead(kernel: Kernel) -> None:
    """Retry of an exhausted item makes it dead."""
    await kernel.commit(P, Enqueue("runs", "a", max_attempts=1))
    await kernel.claim("runs", "w1", lease_seconds=0.05)
    await asyncio.sleep(0.08)
    (claim,) = await kernel.claim("runs", "w2")
    equal(claim.exhausted, True, "whether the claim is exhausted")
    receipt = await kernel.commit(P, claim.retry("why"))
    equal(receipt.dead("runs", "a"), True, "whether the retry was the last")


# -------------------------------------------------------------------------------------------------------------- races


@law()
async def concurrent_claims_share_the_items(kernel: Kernel) -> None:
    """Each of fifty concurrent claims gets other items, and together they get all."""
    await kernel.commit(P, *(Enqueue("runs", f"k{n}", lane=f"l{n % 7}") for n in range(120)))
    some = await asyncio.gather(*(kernel.claim("runs", f"w{n}", limit=2) for n in range(50)))
    some.append(await kernel.claim("runs", "last", limit=120))
    keys = [claim.key for claims in some for claim in claims]
    equal(max(Counter(keys).values()), 1, "how often the same item was claimed")
    equal(len(keys), 120, "the number of claimed items")
    equal(len({claim.fence for claims in some for claim in claims if claim.key == "k0"}), 1, "the fences of one item")


@law()
async def concurrent_claims_and_ends_keep_one_holder(kernel: Kernel) -> None:
    """Workers that claim, retry, release and complete concurrently never hold an item together, and finish all."""
    await kernel.commit(P, *(Enqueue("runs", f"k{n}", max_attempts=1000) for n in range(30)))
    holders: dict[str, str] = {}
    done: Counter[str] = Counter()

    async def worker(name: str) -> None:
        turn = 0
        while sum(done.values()) < 30:
            for claim in await kernel.claim("runs", name, limit=3, lease_seconds=FAR_SECONDS):
                turn += 1
                expect(claim.key not in holders, f"{name} and {holders.get(claim.key)} both hold {claim.key}")
                holders[claim.key] = name
                await asyncio.sleep(0)
                del holders[claim.key]
                end = (claim.complete, claim.release, lambda claim=claim: claim.retry("why"))[turn % 3]()
                await kernel.commit(P, claim.fenced(), end)
                if turn % 3 == 0:
                    done[claim.key] += 1
            await asyncio.sleep(0)

    await asyncio.gather(*(worker(f"w{n}") for n in range(8)))
    equal(max(done.values()), 1, "how often the same item was completed")
    equal(list(await kernel.claim("runs", "last")), [], "the remaining items")


@law()
async def concurrent_takeovers_have_one_winner(kernel: Kernel) -> None:
    """Of twenty workers that claim the items of an expired lease at once, one gets each item."""
    await hold_and_die(kernel, *(f"k{n}" for n in range(10)))
    some = await asyncio.gather(*(kernel.claim("runs", f"w{n}", limit=3) for n in range(20)))
    some.append(await kernel.claim("runs", "last", limit=10))
    keys = [claim.key for claims in some for claim in claims]
    equal(sorted(keys), sorted(f"k{n}" for n in range(10)), "the items that found an heir")
