"""Where turns lie in the kernel: all of one tenant in one partition, so that an iteration is one commit.

``owner`` is who shares a record (a thread, an agent, the tenant), and ``seq`` its place among the owner's. A deleted
record belongs to nobody: its owner is DELETED and its seq the time when it was deleted, so that no index of the living
has it, and those whose time is over are found by one range.
"""

from __future__ import annotations

from holdfast.storage import Collection, Family, Index
from holdfast.turns.codec.kinds import Kind

COLLECTIONS: dict[Kind, str] = {
    "message": "turn_messages",
    "memory": "turn_memories",
    "thought": "turn_thoughts",
    "tool_call": "turn_tool_calls",
    "retrievable": "turn_retrievables",
    "standing_instruction": "turn_instructions",
}
KIND_OF: dict[str, Kind] = {collection: kind for kind, collection in COLLECTIONS.items()}

STREAMS = "turn_streams"  # owner → its version is the clock by which its records are numbered: see unit.py
BYTES = "turn_bytes"  # owner/conduit/turn/id → which blob it is, and whether a record holds it yet
FORMATS = "turn_formats"  # in the partition FORMAT_PARTITION: in which form all this is written

FORMAT_PARTITION = "~turns"
DELETED = "~deleted"  # no owner's name begins so

_OWNER = Index("owner", equal=("owner",), order="seq")
_NAMED = Index("named", equal=("named",), order="seq")  # by id (or text), where the key holds more than that

FAMILIES: tuple[Family, ...] = (
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
    Collection(COLLECTIONS["thought"], fields={"owner": str, "seq": int, "named": str}, indexes=(_OWNER, _NAMED)),
    Collection(COLLECTIONS["tool_call"], fields={"owner": str, "seq": int, "named": str}, indexes=(_OWNER, _NAMED)),
    Collection(COLLECTIONS["retrievable"], fields={"owner": str, "seq": int}, indexes=(_OWNER,)),
    Collection(
        COLLECTIONS["standing_instruction"],
        fields={"owner": str, "seq": int, "named": str},
        indexes=(_OWNER, _NAMED),
    ),
    Collection(STREAMS, indexes=(Index("key"),)),
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
