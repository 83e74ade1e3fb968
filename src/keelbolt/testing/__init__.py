"""Aids for tests: real servers to throw away, a network that fails on command, time that is owned, chosen crashes.

`postgres` and `valkey` start servers, `pytest` offers them as fixtures, `proxy` cuts and delays connections, `clock`
stands still until told otherwise, `crash` ends a process at a chosen moment, `model` is a scripted language model.
"""

from __future__ import annotations
