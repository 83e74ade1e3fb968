"""The kernel: records, logs, work and blobs, and one atomic commit over all of them.

    async with open_storage("sqlite:///keelbolt.db", declare=[Collection("note")]) as kernel:
        await kernel.commit("acme/alice", Insert("note", "1", b"{}"), Append("note-events", "1", (Draft("made", b""),)))

Read `keelbolt.kernel.contract` for the laws.
"""

from __future__ import annotations

from keelbolt.kernel.blobs import Attach, Blob, BlobReader, Detach
from keelbolt.kernel.clock import Clock
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Durability, Health, Kernel, Problem, Stats, Swept, Wiped, WorkCounts
from keelbolt.kernel.hints import LogTopic, QueueTopic, Topic, Watch
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.logs import Append, Draft, Drop, Entry, Head, LogPage, LogState, Start, Trim
from keelbolt.kernel.records import (
    Absent,
    Collection,
    Count,
    Delete,
    FieldIn,
    FieldNotIn,
    Index,
    Insert,
    Page,
    Patch,
    Present,
    Put,
    Query,
    Record,
    Replace,
    Restore,
    Scalar,
    Take,
    Version,
)
from keelbolt.kernel.scope import Scope
from keelbolt.kernel.urls import open_storage
from keelbolt.kernel.work import (
    Bury,
    Claim,
    Complete,
    Enqueue,
    Fence,
    Release,
    Remove,
    Retry,
    WorkItem,
    WorkPage,
)

__all__ = [
    "Absent",
    "Append",
    "Attach",
    "Blob",
    "BlobReader",
    "Bury",
    "Claim",
    "Clock",
    "Collection",
    "Complete",
    "Count",
    "Delete",
    "Detach",
    "Draft",
    "Drop",
    "Durability",
    "Enqueue",
    "Entry",
    "Fence",
    "FieldIn",
    "FieldNotIn",
    "Head",
    "Health",
    "Index",
    "Insert",
    "Kernel",
    "LogPage",
    "LogState",
    "LogTopic",
    "Operation",
    "Page",
    "Patch",
    "Present",
    "Problem",
    "Put",
    "Query",
    "QueueTopic",
    "Receipt",
    "Record",
    "Release",
    "Remove",
    "Replace",
    "Restore",
    "Retry",
    "Scalar",
    "Scope",
    "Start",
    "Stats",
    "Swept",
    "Take",
    "Topic",
    "Trim",
    "Version",
    "Watch",
    "Wiped",
    "WorkCounts",
    "WorkItem",
    "WorkPage",
    "new_id",
    "open_storage",
]
