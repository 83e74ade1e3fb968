"""What a process that only serves can do for its own speed."""

from __future__ import annotations

import gc

THRESHOLDS = (20_000, 50, 100)


def settle_memory() -> None:
    """Look for garbage less often, and never again at what is there for good.

    A request makes a few hundred objects, nearly all of which are freed by counting references; Python's default looks
    for cycles among them every 700. (Measured: a fifth to a third more requests per second.)
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
