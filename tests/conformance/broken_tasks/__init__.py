"""Storages of tasks that are broken on purpose, each in one way. A fault names the law that must catch it."""

from __future__ import annotations

from tests.conformance.broken_tasks import kept, three, whole
from tests.conformance.broken_tasks.fault import FAULTS, Fault

__all__ = ["FAULTS", "Fault", "kept", "three", "whole"]
