"""The collections that the laws declare: one for each kind of declaration."""

from __future__ import annotations

from keelbolt.kernel.records import Collection, Index

PLAIN = Collection("plain")

THINGS = Collection(
    "things",
    fields={"state": str, "owner": str, "rank": int},
    indexes=(
        Index("by_key"),
        Index("by_state", ("state",)),
        Index("by_rank", (), "rank"),
        Index("by_state_owner_rank", ("state", "owner"), "rank"),
    ),
)

TYPED = Collection(
    "typed",
    fields={"text": str, "whole": int, "real": float, "flag": bool},
    indexes=(
        Index("by_text", (), "text"),
        Index("by_whole", (), "whole"),
        Index("by_real", (), "real"),
        Index("by_flag", ("flag",), "text"),
    ),
)

COUNTED = Collection(
    "counted",
    fields={"state": str, "owner": str, "rank": int},
    indexes=(Index("by_state_rank", ("state",), "rank"), Index("by_owner", ("owner",))),
    counters=((), ("state",), ("state", "owner")),
)

PASSING = Collection(
    "passing", fields={"rank": int}, indexes=(Index("by_key"), Index("by_rank", (), "rank")), expiring=True
)

FAMILIES: tuple[Collection, ...] = (PLAIN, THINGS, TYPED, COUNTED, PASSING)
