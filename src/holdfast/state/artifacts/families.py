"""Where artifacts are kept: a record each, which holds a blob, and a total for each session and trace."""

from __future__ import annotations

from holdfast.storage.records import Collection, Index

ARTIFACTS = "state_artifacts"  # id
ARTIFACT_TOTALS = "state_artifact_totals"  # a session's or a trace's group

# ``rank`` is the order of removal: when it was last used (or made, where the strategy is fifo), in microseconds; values
# of ctx.kv come last. ``expires`` is in microseconds since 1970.
ARTIFACT_FAMILIES = (
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
)
