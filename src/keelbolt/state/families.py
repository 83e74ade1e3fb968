"""What a store keeps, and where: the collections and logs of one tenant's partition."""

from __future__ import annotations

from keelbolt.state.names import digest, name
from keelbolt.storage import Collection, Index

EVENTS = "state_events"  # stream = trace
PLANNER_EVENTS = "state_planner_events"  # stream = trace
UPDATES = "state_updates"  # stream = session
STEERING = "state_steering"  # stream = session
TASK_ORDER = "state_task_order"  # stream = session: the ids of its tasks as they came
TASKS = "state_tasks"  # (session, task)
SNAPSHOTS = "state_snapshots"  # (session, task): the context a task was started with
PAUSES = "state_pauses"  # token
PAUSE_LEASES = "state_pause_leases"  # token: taken with a lease, until that expires, is confirmed or is released
MEMORY = "state_memory"  # key
TRAJECTORIES = "state_trajectories"  # (trace, session)
BINDINGS = "state_bindings"  # (trace, context, task)
SESSIONS = "state_sessions"  # session, so that they can be listed
TRACES = "state_traces"  # trace, so that they can be listed
CONTEXTS = "state_contexts"  # session: its context, and how many patches wait
PATCHES = "state_patches"  # (session, patch): waits for an approval
CONTROLS = "state_controls"  # (session, event): a demand that waits for an approval
OWNERS = "state_owners"  # process incarnation: gone when its lease is over
RUNS = "state_runs"  # (session, task): which incarnation runs the task
ARTIFACTS = "state_artifacts"  # id
ARTIFACT_TOTALS = "state_artifact_totals"  # a session's or a trace's group: how much it holds
SWEEPS = "state_sweeps"  # a collection: how far a sweep of it came
SWEEPERS = "state_sweepers"  # one record: a process sweeps this tenant, or has done so lately
INBOXES = "state_inboxes"  # stream = process incarnation: demands for the tasks that it runs

_BY_ARRIVAL = (Index("session", equal=("session",), order="arrived"),)

_LONG_TENANT = 180  # the name of a partition has at most 200 bytes

FAMILIES = (
    Collection(TASKS, fields={"session": str, "saved": int}, indexes=(Index("session", equal=("session",)),)),
    Collection(SNAPSHOTS, fields={"session": str, "hash": str}, indexes=(Index("session", equal=("session",)),)),
    # ``saved`` and ``expires`` are in microseconds since 1970.
    Collection(PAUSES, fields={"saved": int, "expires": int}, indexes=(Index("saved", order="saved"),), expiring=True),
    Collection(PAUSE_LEASES, fields={"lease": str}, expiring=True),
    Collection(MEMORY, fields={"saved": int}, indexes=(Index("saved", order="saved"),)),
    Collection(
        TRAJECTORIES,
        fields={"session": str, "trace": str, "saved": int},
        indexes=(
            Index("session", equal=("session",), order="saved"),
            Index("trace", equal=("trace",), order="saved"),
            Index("saved", order="saved"),
        ),
    ),
    Collection(
        BINDINGS,
        fields={"session": str, "trace": str, "conversation": str, "saved": int},
        indexes=(
            Index("trace", equal=("trace",), order="saved"),
            Index("session", equal=("session",), order="saved"),
            Index("conversation", equal=("conversation",), order="saved"),
            Index("saved", order="saved"),
        ),
    ),
    Collection(SESSIONS, fields={"seen": int}, indexes=(Index("seen", order="seen"),)),
    Collection(TRACES, fields={"seen": int}, indexes=(Index("seen", order="seen"),)),
    Collection(CONTEXTS, fields={"pending": int}),
    Collection(PATCHES, fields={"session": str, "arrived": str}, indexes=_BY_ARRIVAL),
    Collection(CONTROLS, fields={"session": str, "arrived": str}, indexes=_BY_ARRIVAL),
    Collection(OWNERS, expiring=True),
    Collection(RUNS, fields={"session": str, "owner": str, "arrived": str}, indexes=_BY_ARRIVAL),
    # ``rank`` is the order of removal: when it was last used (or made, where the strategy is fifo), in microseconds;
    # values of ctx.kv come last. ``expires`` is in microseconds since 1970.
    Collection(
        ARTIFACTS,
        fields={"session": str, "session_group": str, "trace_group": str, "rank": int, "expires": int, "size": int},
        indexes=(
            Index("session", equal=("session",), order="rank"),
            Index("session_group", equal=("session_group",), order="rank"),
            Index("trace_group", equal=("trace_group",), order="rank"),
            Index("expires", order="expires"),
        ),
    ),
    Collection(ARTIFACT_TOTALS),
    Collection(SWEEPS),
    Collection(SWEEPERS, expiring=True),
)


def partition_of(tenant: str) -> str:
    """The partition of a tenant's state. No caller of a server has a partition whose name begins so."""
    short = name(tenant)
    return f"~state/{short if len(short) <= _LONG_TENANT else digest(tenant.encode('utf-8', 'surrogatepass'))}"
