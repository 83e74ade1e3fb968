"""Storage metrics of one process: batches of commits, and failures by error class."""

from __future__ import annotations

from collections import Counter

from keelbolt.observability.metrics import Histogram

BATCH_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Meter:
    """Engines with group commit report each batch once, so there is no cost per commit."""

    def __init__(self) -> None:
        self.seconds = Histogram()  # of a batch, from its start to its commit
        self.sizes = Histogram(BATCH_SIZES)  # commits per batch
        self.errors: Counter[str] = Counter()  # failed calls, by error class

    def batch(self, commits: int, seconds: float) -> None:
        self.sizes.add(commits)
        self.seconds.add(seconds)

    def failed(self, error: BaseException, calls: int = 1) -> None:
        self.errors[type(error).__name__] += calls
