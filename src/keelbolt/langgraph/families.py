"""What the saver and the store keep, and where: the collections of one tenant's partition."""

from __future__ import annotations

from keelbolt.state.names import digest, name
from keelbolt.storage import Collection, Index

HEADS = "langgraph_heads"  # (thread, namespace): its last checkpoint, which only its child may follow
CHECKPOINTS = "langgraph_checkpoints"  # (thread, namespace, id)
WRITES = "langgraph_writes"  # (thread, namespace, checkpoint, task): what a task wrote before the next checkpoint
VALUES = "langgraph_values"  # (thread, digest): a large value of a channel or a write, stored once
ITEMS = "langgraph_items"  # (namespace, key) of the store

_LONG_TENANT = 170  # the name of a partition has at most 200 bytes

SAVER_FAMILIES = (
    Collection(HEADS, fields={"thread": str, "head": str}, indexes=(Index("thread", equal=("thread",)),)),
    Collection(
        CHECKPOINTS,
        fields={"thread": str, "lane": str, "run": str, "id": str},  # lane = (thread, namespace)
        indexes=(
            Index("lane", equal=("lane",), order="id"),
            Index("thread", equal=("thread",), order="id"),
            Index("run", equal=("run",)),
            Index("id", order="id"),
        ),
    ),
    Collection(
        WRITES,
        fields={"thread": str, "checkpoint": str},
        indexes=(Index("checkpoint", equal=("checkpoint",)), Index("thread", equal=("thread",))),
    ),
    # ``blob`` is the digest of the blob that has the bytes, where they are too large for a record. A value that is
    # ``dying`` is about to be removed: a checkpoint that needs it writes it again.
    Collection(
        VALUES,
        fields={"thread": str, "blob": str, "dying": bool},
        indexes=(Index("thread", equal=("thread",)),),
    ),
)
STORE_FAMILIES = (
    # ``path`` is the namespace, so that a prefix of it is a range.
    Collection(ITEMS, fields={"path": str}, indexes=(Index("path", order="path"),), expiring=True),
)
FAMILIES = (*SAVER_FAMILIES, *STORE_FAMILIES)


def partition_of(tenant: str) -> str:
    """The partition of a tenant's graphs. No caller of a server has a partition whose name begins so."""
    short = name(tenant)
    return f"~langgraph/{short if len(short) <= _LONG_TENANT else digest(tenant.encode('utf-8', 'surrogatepass'))}"
