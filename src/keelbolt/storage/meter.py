"""What one process measures of its storage: batches of commits, and failures by class of error."""

from __future__ import annotations

from collections import Counter

from keelbolt.observability.metrics import Histogram

SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Meter:
    """Engines that gather commits report each batch once, so that a commit costs nothing here."""

    def __init__(self) -> None:
        self.seconds = Histogram()  # of a batch, from its beginning until it is committed
        self.sizes = Histogram(SIZES)  # commits of a batch
        self.errors: Counter[str] = Counter()  # calls that failed, by the class of the error

    def batch(self, commits: int, seconds: float) -> None:
        self.sizes.add(commits)
        self.seconds.add(seconds)

    def failed(self, error: BaseException, calls: int = 1) -> None:
        self.errors[type(error).__name__] += calls
