"""The data of the saver and the store: the families of one tenant's partition. Needs no LangGraph."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from keelbolt.data.display import LARGE_BYTES, plain
from keelbolt.data.families import EVERYTHING, ByField, ByScan, Face, Family, Subject, SubjectLocation
from keelbolt.data.retention import FacePolicy, retain_old
from keelbolt.kernel import Collection, Detach, Index, Kernel, Query, Record, Scope
from keelbolt.state.names import name, tenant_partition

HEADS = "langgraph_heads"  # (thread, namespace): its last checkpoint; only its child may follow
CHECKPOINTS = "langgraph_checkpoints"  # (thread, namespace, id)
WRITES = "langgraph_writes"  # (thread, namespace, checkpoint, task): a task's writes before the next checkpoint
VALUES = "langgraph_values"  # (thread, digest): a large value of a channel or a write, stored once
ITEMS = "langgraph_items"  # (namespace, key) of the store

PARTITIONS = "~langgraph/"
DEFAULT_TENANT = "default"
_ROOT = "/" + name("")  # end of a head's key if its namespace is that of the root graph


def partition_of(tenant: str) -> str:
    """Return the partition of a tenant's graphs. No caller of a server has a partition with this prefix."""
    return tenant_partition(PARTITIONS, tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class LangGraphRetention(FacePolicy):
    """How long threads are kept after their last checkpoint, in seconds; None: forever."""

    face: ClassVar[str] = "langgraph"

    langgraph_threads: float | None = None


async def _locate(kernel: Kernel, subject: Subject) -> AsyncIterator[SubjectLocation]:
    match subject.kind:
        case "thread" | "user":
            yield SubjectLocation(
                kernel.scoped(partition_of(subject.tenant or DEFAULT_TENANT)), subject.kind, name(subject.id)
            )
        case "tenant":
            yield SubjectLocation(kernel.scoped(partition_of(subject.id)), EVERYTHING)
        case _:
            pass


async def _retain(kernel: Kernel, policy: LangGraphRetention, /, *, dry: bool) -> dict[str, int]:
    def root(record: Record) -> bool:
        return record.key.endswith(_ROOT)  # a subgraph is deleted with its thread

    return await retain_old(kernel, FACE, FACE.families[0], policy.langgraph_threads, dry=dry, only=root)


def _blob(record: Record) -> Iterator[Detach]:
    if isinstance(blob := record.fields.get("blob"), str):
        yield Detach(blob, f"{VALUES}/{record.key}")


def _of_user(record: Record, ref: str) -> bool:
    """Return whether the user is a label of the namespace."""
    return ref in str(record.fields["path"]).split("/")


# ---------------------------------------------------------------------------------------------------- for inspection


def _thread(record: Record) -> tuple[str, str] | None:
    from keelbolt.langgraph.records import StoredHead, decode  # noqa: PLC0415 - most commands show no thread

    return ("thread", decode(StoredHead, record.body).thread) if record.key.endswith(_ROOT) else None


async def _head(_scope: Scope, record: Record) -> Any:
    from keelbolt.langgraph.records import StoredHead, decode  # noqa: PLC0415

    stored = decode(StoredHead, record.body)
    return {"thread": stored.thread, "namespace": stored.namespace, "head": record.fields["head"]}


async def _checkpoint(scope: Scope, record: Record) -> Any:
    """Return the graph's state at this checkpoint, its metadata, and the pending writes."""
    from keelbolt.langgraph.checkpoints import Checkpoints  # noqa: PLC0415
    from keelbolt.langgraph.records import StoredCheckpoint, decode  # noqa: PLC0415

    stored = decode(StoredCheckpoint, record.body)
    (loaded,) = await Checkpoints().fill(scope, [stored])
    return {
        "thread": stored.thread,
        "namespace": stored.namespace,
        "checkpoint": stored.id,
        "parent": stored.parent,
        "metadata": _typed(stored.metadata),
        "state": {channel: _typed(loaded.value(kept.value)) for channel, kept in stored.channels.items()},
        "writes": [
            {"task": task, "channel": write.channel, "value": _typed(loaded.value(write.value))}
            for task, write in loaded.writes
        ],
    }


async def _item(_scope: Scope, record: Record) -> Any:
    from keelbolt.state.codec import decode  # noqa: PLC0415

    _, namespace, key, value, *_ = msgspec.msgpack.decode(record.body)
    return {"namespace": namespace, "key": key, "value": plain(decode(value), large=len(value) > LARGE_BYTES)}


def _expires(record: Record) -> float | None:
    _, _, _, _, _, updated, ttl, _ = msgspec.msgpack.decode(record.body)
    return None if ttl is None else updated + ttl * 60


def _typed(value: tuple[str, bytes]) -> Any:
    """Convert a value of LangGraph's serializer to JSON data.

    No class is imported or instantiated: an object becomes a dict with its class name. A value of another serializer,
    such as an encrypted one, is shown as its kind and size.
    """
    kind, data = value
    if kind == "null":
        return None
    if kind == "msgpack":
        try:
            return plain(msgspec.msgpack.decode(data, ext_hook=_object), large=len(data) > LARGE_BYTES)
        except (msgspec.DecodeError, ValueError, RecursionError):
            pass
    return {"type": kind, "bytes": len(data)}


def _object(_code: int, data: memoryview) -> Any:
    found = msgspec.msgpack.decode(data, ext_hook=_object)
    if not isinstance(found, list) or len(found) < 3:
        return found
    content = found[2]
    return {"type": found[1], **content} if isinstance(content, dict) else {"type": found[1], "value": content}


_OF_THREAD = {"thread": ByField("thread")}

FACE = Face(
    name="langgraph",
    kinds=("thread", "user", "tenant"),
    locate=_locate,
    prefix=PARTITIONS,
    policy=LangGraphRetention,
    retain=_retain,
    families=(
        # ``head`` is the id of the last checkpoint, which begins with its creation time.
        Family(
            title="threads",
            collection=Collection(
                HEADS,
                fields={"thread": str, "head": str},
                indexes=(Index("thread", equal=("thread",)), Index("head", order="head")),
            ),
            subject="thread",
            key_of=lambda thread: thread + _ROOT,
            ref_of=lambda record: record.key.partition("/")[0],
            found_by=_OF_THREAD,
            age="head",
            named=_thread,
            value=_head,
        ),
        Family(
            title="checkpoints",
            collection=Collection(
                CHECKPOINTS,
                fields={"thread": str, "lane": str, "run": str, "id": str},  # lane = (thread, namespace)
                indexes=(
                    Index("lane", equal=("lane",), order="id"),
                    Index("thread", equal=("thread",), order="id"),
                    Index("run", equal=("run",)),
                    Index("id", order="id"),
                ),
            ),
            found_by=_OF_THREAD,
            age="id",
            value=_checkpoint,
        ),
        Family(
            title="writes",
            collection=Collection(
                WRITES,
                fields={"thread": str, "checkpoint": str},
                indexes=(Index("checkpoint", equal=("checkpoint",)), Index("thread", equal=("thread",)), Index("key")),
            ),
            found_by=_OF_THREAD,
        ),
        # ``blob`` is the digest of the blob that contains the bytes if they are too large for a record. A ``dying``
        # value is about to be removed: a checkpoint that needs it writes it again.
        Family(
            title="values",
            collection=Collection(
                VALUES,
                fields={"thread": str, "blob": str, "dying": bool},
                indexes=(Index("thread", equal=("thread",)), Index("key")),
            ),
            found_by=_OF_THREAD,
            blobs=_blob,
        ),
        # ``path`` is the namespace; a namespace prefix is a range of paths.
        Family(
            title="items",
            collection=Collection(ITEMS, fields={"path": str}, indexes=(Index("path", order="path"),), expiring=True),
            found_by={"user": ByScan(Query(ITEMS, order="path"), _of_user)},
            value=_item,
            expires=_expires,
        ),
    ),
)
SAVER_FAMILIES = tuple(family.collection for family in FACE.families if family.name != ITEMS)
STORE_FAMILIES = tuple(family.collection for family in FACE.families if family.name == ITEMS)
FAMILIES = (*SAVER_FAMILIES, *STORE_FAMILIES)
