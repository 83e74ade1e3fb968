"""Every law of task storages, by the part of the contract it is about."""

from __future__ import annotations

from keelbolt.conformance.task_laws import (
    artifacts,
    contexts,
    create,
    deleting,
    endings,
    listing,
    load,
    pages,
    reopened,
    update,
    values,
    versions,
)

__all__ = [
    "artifacts",
    "contexts",
    "create",
    "deleting",
    "endings",
    "listing",
    "load",
    "pages",
    "reopened",
    "update",
    "values",
    "versions",
]
