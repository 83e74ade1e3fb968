"""Where turns lie in the kernel: all of one tenant in one partition, so that an iteration is one commit.

``owner`` is who shares a record (a thread, an agent, the tenant), and ``seq`` its place among the owner's. A deleted
record belongs to nobody: its owner is DELETED and its seq the time when it was deleted, so that no index of the living
has it, and those whose time is over are found by one range. ``place`` is a seq that stays as it was.
"""

from __future__ import annotations

from keelbolt.storage import Collection, Index
from keelbolt.turns.codec.kinds import Kind

COLLECTIONS: dict[Kind, str] = {
    "message": "turn_messages",
    "memory": "turn_memories",
    "thought": "turn_thoughts",
    "tool_call": "turn_tool_calls",
    "retrievable": "turn_retrievables",
    "standing_instruction": "turn_instructions",
}
KIND_OF: dict[str, Kind] = {collection: kind for kind, collection in COLLECTIONS.items()}

STREAMS = "turn_streams"  # owner → its version is the clock by which its records are numbered: see clocks.py
BYTES = "turn_bytes"  # owner/conduit/turn/id → which blob it is, and whether a record holds it yet
TURNS = "turn_turns"  # owner/turn → how far it is, and which run of it counts
GATES = "turn_gates"  # owner/turn/id → what it asks, and how it was settled
GATE_LOG = "turn_gates"  # a stream for each gate, which wakes whoever waits
WAKES = "turn_wakes"  # a queue: gates whose tasks are to be woken, since they are settled or their time is over
TASK_TURNS = "turn_tasks"  # owner/task → which turn the task is in
FORMATS = "turn_formats"  # in the partition FORMAT_PARTITION: in which form all this is written

FORMAT_PARTITION = "~turns"
DELETED = "~deleted"  # no owner's name begins so

_OWNER = Index("owner", equal=("owner",), order="seq")
_NAMED = Index("named", equal=("named",), order="place")  # by id (or text), where the key holds more than that
_NAMED_FIELDS = {"owner": str, "seq": int, "named": str, "place": int}

GATE_FAMILIES: tuple[Collection, ...] = (
    Collection(
        GATES,
        fields={"secret": str, "state": str, "at": int, "owner": str, "turn": str},
        indexes=(
            Index("secret", equal=("secret",)),
            Index("state", equal=("state",), order="at"),
            Index("owner", equal=("owner",), order="at"),
            Index("turn", equal=("turn",), order="at"),
        ),
    ),
)
FAMILIES: tuple[Collection, ...] = (
    *GATE_FAMILIES,
    Collection(
        TURNS,
        fields={"run": int, "iterations": int, "state": str, "at": int, "owner": str},
        indexes=(Index("state", equal=("state",), order="at"), Index("owner", equal=("owner",), order="at")),
    ),
    Collection(
        TASK_TURNS,
        fields={"owner": str, "turn": str},
        indexes=(Index("owner", equal=("owner",)), Index("turn", equal=("turn",))),
    ),
    Collection(COLLECTIONS["message"], fields={"owner": str, "seq": int}, indexes=(_OWNER,)),
    Collection(
        COLLECTIONS["memory"],
        fields={"owner": str, "seq": int, "importance": float, "confidence": float},
        indexes=(
            _OWNER,
            Index("importance", equal=("owner",), order="importance"),
            Index("confidence", equal=("owner",), order="confidence"),
        ),
    ),
    Collection(COLLECTIONS["thought"], fields=_NAMED_FIELDS, indexes=(_OWNER, _NAMED)),
    Collection(COLLECTIONS["tool_call"], fields=_NAMED_FIELDS, indexes=(_OWNER, _NAMED)),
    Collection(COLLECTIONS["retrievable"], fields={"owner": str, "seq": int}, indexes=(_OWNER,)),
    Collection(
        COLLECTIONS["standing_instruction"],
        fields=_NAMED_FIELDS,
        indexes=(_OWNER, _NAMED),
    ),
    Collection(
        STREAMS,
        fields={"kind": str, "at": int},
        indexes=(Index("key"), Index("kind", equal=("kind",), order="at")),
    ),
    Collection(
        BYTES,
        fields={"state": str, "at": int, "named": str, "shelf": str, "id": str},
        indexes=(
            Index("state", equal=("state",), order="at"),
            Index("named", equal=("named",), order="at"),
            Index("shelf", equal=("shelf",), order="id"),
        ),
    ),
    Collection(FORMATS),
)
