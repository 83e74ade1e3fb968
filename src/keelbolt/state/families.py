"""The data that a store keeps: collections and logs of one tenant's partition, their relations, and retention."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from keelbolt.data.display import LARGE_BYTES, plain
from keelbolt.data.families import EVERYTHING, ByField, ByScan, Face, Family, Reference, Subject, SubjectLocation
from keelbolt.data.retention import FacePolicy
from keelbolt.kernel import Collection, Detach, Entry, Index, Kernel, Query, Record, Scope
from keelbolt.state.codec import decode
from keelbolt.state.names import name, tenant_partition, unnamed


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRetention(FacePolicy):
    """Ages are seconds since the save, numbers are of the newest to keep; None means no limit.

    ``events`` and ``planner_events`` are counted for each trace, ``updates``, ``steering``, ``trajectories`` and
    ``artifacts`` for each session. Events that arrived together are removed together, so slightly more than the number
    may stay. ``tasks`` removes finished tasks, ``bindings`` all bindings, ``memory`` all states except the values that
    tools keep (``ctx.kv``), ``artifacts`` artifacts that were not used for this time. ``sessions`` removes whole
    sessions that were not used for this time plus two hours, with all their data except memory, whose keys belong to
    the callers.
    """

    face: ClassVar[str] = "state"

    events: float | None = None
    planner_events: float | None = None
    updates: float | None = None
    steering: float | None = None
    tasks: float | None = None
    trajectories: float | None = None
    bindings: float | None = None
    memory: float | None = None
    artifacts: float | None = None
    sessions: float | None = None
    max_events: int | None = None
    max_planner_events: int | None = None
    max_updates: int | None = None
    max_steering: int | None = None
    max_trajectories: int | None = None
    max_artifacts: int | None = None


DEFAULT_TENANT = "default"
PARTITIONS = "~state/"
KINDS = ("session", "trace", "memory", "pause", "user")

EVENTS = "state_events"  # stream = trace
PLANNER_EVENTS = "state_planner_events"  # stream = trace
UPDATES = "state_updates"  # stream = session
STEERING = "state_steering"  # stream = session
TASK_ORDER = "state_task_order"  # stream = session: the ids of its tasks in order of arrival
TASKS = "state_tasks"  # (session, task)
SNAPSHOTS = "state_snapshots"  # (session, task): the context with which a task was started
PAUSES = "state_pauses"  # token
PAUSE_LEASES = "state_pause_leases"  # token: taken with a lease, until the lease expires, is confirmed or is released
MEMORY = "state_memory"  # key
TRAJECTORIES = "state_trajectories"  # (trace, session)
BINDINGS = "state_bindings"  # (trace, context, task)
SESSIONS = "state_sessions"  # session, for lists
TRACES = "state_traces"  # trace, for lists
CONTEXTS = "state_contexts"  # session: its context and the number of waiting patches
PATCHES = "state_patches"  # (session, patch): waits for approval
CONTROLS = "state_controls"  # (session, event): a control that waits for approval
RUNS = "state_runs"  # (session, task): a task that a process runs; also the queue of its work item
ARTIFACTS = "state_artifacts"  # id
ARTIFACT_TOTALS = "state_artifact_totals"  # the group of a session or trace: its total
SWEEPS = "state_sweeps"  # a collection: the progress of its sweep
INBOXES = "state_inboxes"  # stream = (session, task): controls from other processes

_BY_ARRIVAL = (Index("session", equal=("session",), order="arrived"),)

_OF_SESSION = {"session": ByField("session")}


async def _locate(kernel: Kernel, subject: Subject) -> AsyncIterator[SubjectLocation]:
    tenant = subject.tenant or DEFAULT_TENANT
    if subject.kind == "tenant":
        yield SubjectLocation(kernel.scoped(partition_of(subject.id)), EVERYTHING)
    elif subject.kind in KINDS:
        yield SubjectLocation(kernel.scoped(partition_of(tenant)), subject.kind, name(subject.id))


def _traces_of_task(record: Record) -> Iterator[Reference]:
    trace_id = decode(record.body).get("trace_id")
    if isinstance(trace_id, str):
        yield Reference("trace", name(trace_id))


def _trace_in_key(record: Record) -> Iterator[Reference]:
    trace = record.key.partition("/")[0]
    if trace:
        yield Reference("trace", trace)


def memory_of_session(record: Record, ref: str) -> bool:
    """Return whether a memory state belongs to the session: its key is tenant:user:session, or has the id as a part."""
    key: str = decode(record.body)["key"]
    return any(name(part) == ref for part in (*key.split(":"), *key.split(":", 2)[2:]))


def _memory_of_user(record: Record, ref: str) -> bool:
    parts: list[str] = decode(record.body)["key"].split(":", 2)
    return len(parts) == 3 and name(parts[1].replace("%3A", ":").replace("%25", "%")) == ref


def _artifact_of_user(record: Record, ref: str) -> bool:
    user = (decode(record.body)["scope"] or {}).get("user_id")
    return user is not None and name(user) == ref


def _named(kind: str) -> Callable[[Record], tuple[str, str]]:
    """Return ``named`` for records whose body is the id, or has it as ``key``."""

    def named(record: Record) -> tuple[str, str]:
        body = decode(record.body)
        return kind, body["key"] if isinstance(body, dict) else body

    return named


async def _value(_scope: Scope, record: Record) -> Any:
    return plain(decode(record.body), large=len(record.body) > LARGE_BYTES)


def _entry(_log: str, entry: Entry) -> Any:
    return decode(entry.data)


async def _remove_artifact(scope: Scope, record: Record) -> None:
    from keelbolt.state.artifacts.repository import remove_artifact  # noqa: PLC0415 - shelf imports the names above

    await remove_artifact(scope, record)


def _artifact_blob(record: Record) -> Iterator[Detach]:
    from keelbolt.state.artifacts.record import ArtifactRecord  # noqa: PLC0415 - record imports the names above

    yield ArtifactRecord.of(record).detach()


async def _restore_artifact(scope: Scope, record: Record) -> None:
    from keelbolt.state.artifacts.repository import restore_artifact  # noqa: PLC0415 - shelf imports the names above

    await restore_artifact(scope, record)


def _dedupe(log: str, entry: Entry) -> str | None:
    """Return the dedupe key with which updates, steering events and task ids are appended."""
    if log == TASK_ORDER:
        return entry.data.decode()
    found = decode(entry.data).get("update_id" if log == UPDATES else "event_id")
    return name(found) if isinstance(found, str) else None


def _expires(record: Record) -> float | None:
    expires = record.fields.get("expires")
    return None if not isinstance(expires, int) else expires / 1_000_000


async def _expired(kernel: Kernel) -> dict[str, int]:
    """Remove the expired artifacts of all tenants."""
    from keelbolt.state.artifacts.repository import sweep_artifacts  # noqa: PLC0415 - shelf imports the names above

    removed, declared = 0, False
    async for scope in kernel.scopes(prefix=PARTITIONS):
        if not declared:
            await kernel.declare(*FAMILIES)
            declared = True
        removed += await sweep_artifacts(scope)
    return {"artifacts": removed} if removed else {}


async def _retain(kernel: Kernel, policy: StateRetention, /, *, dry: bool) -> dict[str, int]:
    from keelbolt.state.retention import sweep_state  # noqa: PLC0415 - sweep imports the names above

    removed: Counter[str] = Counter()
    await kernel.declare(*FAMILIES)
    async for scope in kernel.scopes(prefix=PARTITIONS):
        removed.update(asdict(await sweep_state(scope, policy, dry=dry)))
    return dict(+removed)


# ``saved``, ``seen`` and ``expires`` are in microseconds since 1970.
FACE = Face(
    name="state",
    kinds=(*KINDS, "tenant"),
    locate=_locate,
    prefix=PARTITIONS,
    expired=_expired,
    policy=StateRetention,
    retain=_retain,
    families=(
        Family(
            title="sessions",
            collection=Collection(SESSIONS, fields={"seen": int}, indexes=(Index("seen", order="seen"),)),
            subject="session",
            tombstone=True,
            age="seen",
            beside=(CONTEXTS,),
            logs=(UPDATES, STEERING, TASK_ORDER),
            dedupe=_dedupe,
            named=_named("session"),
            value=_value,
            entry=_entry,
        ),
        Family(
            title="traces",
            collection=Collection(TRACES, fields={"seen": int}, indexes=(Index("seen", order="seen"),)),
            subject="trace",
            tombstone=True,
            age="seen",
            logs=(EVENTS, PLANNER_EVENTS),
            named=_named("trace"),
            value=_value,
            entry=_entry,
        ),
        Family(title="contexts", collection=Collection(CONTEXTS, fields={"pending": int}), value=_value),
        Family(
            title="session tasks",
            collection=Collection(
                TASKS, fields={"session": str, "saved": int}, indexes=(Index("session", equal=("session",)),)
            ),
            found_by=_OF_SESSION,
            leads_to=_traces_of_task,
            value=_value,
        ),
        Family(
            title="context snapshots",
            collection=Collection(
                SNAPSHOTS, fields={"session": str, "hash": str}, indexes=(Index("session", equal=("session",)),)
            ),
            found_by=_OF_SESSION,
            value=_value,
        ),
        Family(
            title="trajectories",
            collection=Collection(
                TRAJECTORIES,
                fields={"session": str, "trace": str, "saved": int},
                indexes=(
                    Index("session", equal=("session",), order="saved"),
                    Index("trace", equal=("trace",), order="saved"),
                    Index("saved", order="saved"),
                ),
            ),
            found_by={**_OF_SESSION, "trace": ByField("trace")},
            leads_to=_trace_in_key,
            age="saved",
            value=_value,
        ),
        Family(
            title="bindings",
            collection=Collection(
                BINDINGS,
                fields={"session": str, "trace": str, "conversation": str, "saved": int},
                indexes=(
                    Index("trace", equal=("trace",), order="saved"),
                    Index("session", equal=("session",), order="saved"),
                    Index("conversation", equal=("conversation",), order="saved"),
                    Index("saved", order="saved"),
                ),
            ),
            found_by={**_OF_SESSION, "trace": ByField("trace")},
            age="saved",
            value=_value,
        ),
        Family(
            title="memory states",
            collection=Collection(MEMORY, fields={"saved": int}, indexes=(Index("saved", order="saved"),)),
            subject="memory",
            tombstone=True,
            found_by={
                "session": ByScan(Query(MEMORY, order="saved"), memory_of_session),
                "user": ByScan(Query(MEMORY, order="saved"), _memory_of_user),
            },
            age="saved",
            named=_named("memory"),
            value=_value,
        ),
        Family(
            title="pauses",
            collection=Collection(
                PAUSES, fields={"saved": int, "expires": int}, indexes=(Index("saved", order="saved"),), expiring=True
            ),
            subject="pause",
            age="saved",
            beside=(PAUSE_LEASES,),
            named=lambda record: ("pause", unnamed(record.key) or record.key),
            expires=_expires,
            value=_value,
        ),
        Family(
            title="pause leases",
            collection=Collection(PAUSE_LEASES, fields={"lease": str}, expiring=True),
            travels=False,  # its expiry is unknown, and its holder uses the other store
        ),
        Family(
            title="patches",
            collection=Collection(PATCHES, fields={"session": str, "arrived": str}, indexes=_BY_ARRIVAL),
            found_by=_OF_SESSION,
            value=_value,
        ),
        Family(
            title="controls",
            collection=Collection(CONTROLS, fields={"session": str, "arrived": str}, indexes=_BY_ARRIVAL),
            found_by=_OF_SESSION,
            value=_value,
        ),
        Family(
            title="runs",
            collection=Collection(RUNS, fields={"session": str, "arrived": str}, indexes=_BY_ARRIVAL),
            found_by=_OF_SESSION,
            logs=(INBOXES,),
            queues=(RUNS,),
        ),
        # ``rank`` is the order of removal: the time of the last use (or of creation, if the strategy is fifo), in
        # microseconds; values of ctx.kv come last.
        Family(
            title="artifacts",
            collection=Collection(
                ARTIFACTS,
                fields={
                    "session": str,
                    "session_group": str,
                    "trace_group": str,
                    "rank": int,
                    "expires": int,
                    "size": int,
                },
                indexes=(
                    Index("session", equal=("session",), order="rank"),
                    Index("session_group", equal=("session_group",), order="rank"),
                    Index("trace_group", equal=("trace_group",), order="rank"),
                    Index("expires", order="expires"),
                ),
            ),
            found_by={**_OF_SESSION, "user": ByScan(Query(ARTIFACTS, order="expires"), _artifact_of_user)},
            age="rank",
            remove=_remove_artifact,
            blobs=_artifact_blob,
            expires=_expires,
            restore=_restore_artifact,
            value=_value,
        ),
        Family(title="artifact totals", collection=Collection(ARTIFACT_TOTALS)),
        Family(title="sweeps", collection=Collection(SWEEPS, indexes=(Index("key"),)), travels=False),
    ),
)
FAMILIES = tuple(FACE.collections())


def partition_of(tenant: str) -> str:
    """Return the partition of a tenant's state. Partitions of server callers never have this prefix."""
    return tenant_partition(PARTITIONS, tenant)
