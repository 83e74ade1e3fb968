"""Test utilities: a worker harness, temporary real servers, a network that fails on command, and crash points.

`WorkerHarness` runs a worker with lost attempts and a clock that the test advances. `postgres` and `valkey` start
servers, `pytest` offers them as fixtures, `proxy` cuts and delays connections, `clock` stands still until it is
advanced, `crash` ends a process at a chosen moment, `model` is a scripted language model.
"""

from __future__ import annotations

from keelbolt.testing.worker import WorkerHarness

__all__ = ["WorkerHarness"]
