"""The laws, one file for each part of the contract."""

from __future__ import annotations

from keelbolt.conformance.laws import (
    blobs,
    checks,
    commit,
    expiry,
    find,
    full,
    hints,
    lifecycle,
    logs,
    order,
    partitions,
    persistence,
    processes,
    queues,
    records,
    requests,
    tail,
    values,
    work,
)

__all__ = [
    "blobs",
    "checks",
    "commit",
    "expiry",
    "find",
    "full",
    "hints",
    "lifecycle",
    "logs",
    "order",
    "partitions",
    "persistence",
    "processes",
    "queues",
    "records",
    "requests",
    "tail",
    "values",
    "work",
]
