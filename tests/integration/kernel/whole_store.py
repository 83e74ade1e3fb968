"""A store with every kind of row, and all data that a user can see of a store."""

from __future__ import annotations

from typing import Any

from keelbolt.kernel import (
    Append,
    Attach,
    Collection,
    Detach,
    Draft,
    Drop,
    Enqueue,
    Index,
    Insert,
    Kernel,
    Patch,
    Put,
    Query,
    Trim,
)

NOTES = Collection(
    "note",
    fields={"state": str, "at": int, "part": float, "done": bool},
    indexes=(Index("by_state", ("state",), "at"), Index("all")),
    counters=((), ("state",)),
)
SECRETS = Collection("secret", fields={"who": str}, indexes=(Index("by_who", ("who",)),), expiring=True)
PLAIN = Collection("plain")
FAMILIES = (NOTES, SECRETS, PLAIN)

LONG = "k" * 3000 + "é" * 1000
PARTITIONS = ("acme/alice", "acme/bob", "Ünïcode/ö" * 10)
KEYS = ("a", "b", LONG, "\x01odd", "k" * 201, "日本語", "emoji 🙂", "a/b c'\"\\%")


async def fill(kernel: Kernel) -> None:
    """Write rows of every kind, including unusual ones."""
    await kernel.declare(*FAMILIES)
    for partition in PARTITIONS:
        for number, key in enumerate(KEYS):
            fields = {"state": ("open", "done")[number % 2], "at": number, "part": number / 3, "done": number > 3}
            await kernel.commit(partition, Insert("note", key, f"body {number}\0 {key}".encode(), fields))
        await kernel.commit(partition, Patch("note", "a", {"state": "done", "at": None}))
        await kernel.commit(partition, Put("plain", LONG, b"\0" * 1000), Put("plain", "empty", b""))
        await kernel.commit(partition, Put("secret", "short", b"gone", {"who": "me"}, expires_in=0.0))
        await kernel.commit(partition, Put("secret", "long", b"kept", {"who": "me"}, expires_in=3600.0))
        await kernel.commit(partition, Put("secret", "never", b"kept", {"who": "you"}))
        await _logs(kernel, partition)
        await _work(kernel, partition)
        await _blobs(kernel, partition)


async def _logs(kernel: Kernel, partition: str) -> None:
    for stream in ("s", LONG):
        for number in range(7):
            draft = Draft("chunk", f"\0{number}".encode(), dedupe=f"{number}-{stream[2:]}" if number % 2 else None)
            await kernel.commit(partition, Append("events", stream, (draft, Draft("quick", b""))))
    await kernel.commit(partition, Trim("events", "s", 5))
    await kernel.commit(partition, Append("events", "all-trimmed", (Draft("x", b"1", dedupe="d"), Draft("x", b"2"))))
    await kernel.commit(partition, Trim("events", "all-trimmed", 2))
    await kernel.commit(partition, Append("events", "dropped", (Draft("x", b"1"),)))
    await kernel.commit(partition, Drop("events", "dropped"))
    await kernel.commit(partition, Append("other", "s", (Draft("k" * 300, b"x" * 300_000),)))


async def _work(kernel: Kernel, partition: str) -> None:
    await kernel.commit(
        partition,
        Enqueue("jobs", "ready", lane="l", priority=3, max_attempts=7),
        Enqueue("jobs", "later", ready_in=3600.0),
        Enqueue("jobs", LONG),
    )
    await kernel.commit(partition, Enqueue("side", "held", worker=f"w-{partition}"[:50]))
    await kernel.commit(partition, Enqueue("side", "held", ready_in=100.0))  # runs again after its completion
    fence = (await kernel.commit(partition, Enqueue("side", "dead", worker="w"))).outcomes[0]
    claim = await kernel.work(partition, "side", "dead")
    assert claim is not None
    assert claim.fence == fence
    from keelbolt.kernel import Bury

    await kernel.commit(partition, Bury("side", "dead", claim.fence, "it was too much"))


async def _blobs(kernel: Kernel, partition: str) -> None:
    large = await kernel.stage_blob(partition, bytes(range(256)) * 2500)
    await kernel.commit(partition, Attach(large.digest, "one"), Attach(large.digest, LONG))
    empty = await kernel.stage_blob(partition, b"")
    await kernel.commit(partition, Attach(empty.digest, "one"))
    await kernel.commit(partition, Detach(empty.digest, "one"))
    await kernel.stage_blob(partition, b"staged only", keep_seconds=600.0)


async def seen(kernel: Kernel) -> dict[str, Any]:
    """Return the data that a user sees, which a copy preserves. Claims are excluded, because a copy releases them."""
    found: dict[str, Any] = {"partitions": list(await kernel.partitions())}
    for partition in PARTITIONS:
        found[f"{partition} notes"] = sorted(
            (r.key, r.version, r.body, sorted(r.fields.items()))
            for r in await kernel.get_many(partition, "note", KEYS)
            if r is not None
        )
        for state in ("open", "done"):
            page = await kernel.find(partition, Query("note", {"state": state}, "at"))
            found[f"{partition} {state}"] = [record.key for record in page.records]
            found[f"{partition} {state} total"] = (await kernel.count(partition, Query("note", {"state": state}))).value
        found[f"{partition} all"] = [record.key for record in (await kernel.find(partition, Query("note"))).records]
        secrets = await kernel.find(partition, Query("secret", {"who": "me"}))
        found[f"{partition} secrets"] = [(record.key, record.version, record.body) for record in secrets.records]
        found[f"{partition} plain"] = [r and r.body for r in await kernel.get_many(partition, "plain", [LONG, "empty"])]
        for log, stream in (
            ("events", "s"),
            ("events", LONG),
            ("events", "all-trimmed"),
            ("events", "dropped"),
            ("other", "s"),
        ):
            page_ = await kernel.read_log(partition, log, stream)
            found[f"{partition} {log} {stream}"] = (page_.head, page_.floor, page_.entries)
        for queue, key in (("jobs", "ready"), ("jobs", "later"), ("jobs", LONG), ("side", "held"), ("side", "dead")):
            item = await kernel.work(partition, queue, key)
            assert item is not None
            held = item.state == "held"
            found[f"{partition} {queue} {key}"] = (
                "waiting" if held else item.state,
                item.lane,
                item.priority,
                item.attempt - held,
                item.max_attempts,
                item.fence,
                item.reason,
                held or item.ready_in <= 0,
            )
    return found
