"""Counters and gauges of one process, in the text format of Prometheus. No names, no texts, no ids of anybody."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds


class Histogram:
    """How long things took."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Metrics:
    """What happened in this process since it started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # (operation, "ok" or the error's reason)
        self.seconds: dict[str, Histogram] = {}
        self.tasks: Counter[str] = Counter()  # by the state they reached
        self.webhooks: Counter[str] = Counter()  # sent, failed
        self.removed: Counter[str] = Counter()  # by sweeps, by what it was
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def request(self, operation: str, outcome: str, seconds: float) -> None:
        self.requests[operation, outcome] += 1
        self.seconds.setdefault(operation, Histogram()).add(seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A value that is read when it is asked for."""
        self.gauges[name] = (text, read)

    def text(self) -> str:
        """Everything, for Prometheus."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("requests_total", "counter", "Requests by operation and outcome")
        for (operation, outcome), count in sorted(self.requests.items()):
            yield f'keelbolt_requests_total{{operation="{operation}",outcome="{outcome}"}} {count}'
        yield from _head("request_seconds", "histogram", "How long requests took; of a stream, until it ended")
        for operation, histogram in sorted(self.seconds.items()):
            yield from _buckets(operation, histogram)
        yield from _head("tasks_total", "counter", "Tasks by the state that they reached in this process")
        for state, count in sorted(self.tasks.items()):
            yield f'keelbolt_tasks_total{{state="{state}"}} {count}'
        yield from _head("webhooks_total", "counter", "Webhook deliveries by outcome")
        for outcome, count in sorted(self.webhooks.items()):
            yield f'keelbolt_webhooks_total{{outcome="{outcome}"}} {count}'
        yield from _head("swept_total", "counter", "What the sweeps of this process removed")
        for what, count in sorted(self.removed.items()):
            yield f'keelbolt_swept_total{{what="{what}"}} {count}'
        for name, (text, read) in self.gauges.items():
            yield from _head(name, "gauge", text)
            yield f"keelbolt_{name} {read():g}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP keelbolt_{name} {text}."
    yield f"# TYPE keelbolt_{name} {kind}"


def _buckets(operation: str, histogram: Histogram) -> Iterator[str]:
    seen = 0
    for bound, count in zip((*BUCKETS, None), histogram.counts, strict=True):
        seen += count
        limit = "+Inf" if bound is None else f"{bound:g}"
        yield f'keelbolt_request_seconds_bucket{{operation="{operation}",le="{limit}"}} {seen}'
    yield f'keelbolt_request_seconds_sum{{operation="{operation}"}} {histogram.total:.6f}'
    yield f'keelbolt_request_seconds_count{{operation="{operation}"}} {seen}'
