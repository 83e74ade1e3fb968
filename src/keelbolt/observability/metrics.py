"""Counters, histograms and gauges, in the text format of Prometheus. No names, no texts, no ids of callers.

What a process knows carries the label ``process``: several processes share one port, so that each scrape reaches any of
them, and without the label a counter would jump between their values.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
TASK_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

EVENTS = ("takeovers", "dead_letters", "lease_losses", "failed_attempts", "storage_outages")
_ABOUT = {
    "takeovers": "Tasks that this process began again after another attempt",
    "dead_letters": "Tasks that this process gave up after their last attempt",
    "lease_losses": "Times that this process could not renew its lease in time",
    "failed_attempts": "Attempts that could not be run, apart from exceptions of the worker",
    "storage_outages": "Times that the storage stopped answering this process",
}


class Histogram:
    """How long things took."""

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class Metrics:
    """What happened in this process since it started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # (operation, "ok" or the error's reason)
        self.seconds: dict[str, Histogram] = {}
        self.tasks: Counter[str] = Counter()  # by the state they reached
        self.task_seconds: dict[str, Histogram] = {}  # by the state that ended them
        self.webhooks: Counter[str] = Counter()  # sent, failed
        self.removed: Counter[str] = Counter()  # by sweeps, by what it was
        self.events: Counter[str] = Counter()  # see EVENTS
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def request(self, operation: str, outcome: str, seconds: float) -> None:
        self.requests[operation, outcome] += 1
        self.seconds.setdefault(operation, Histogram()).add(seconds)

    def task_ended(self, state: str, seconds: float) -> None:
        self.task_seconds.setdefault(state, Histogram(TASK_BUCKETS)).add(seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A value that is read when it is asked for."""
        self.gauges[name] = (text, read)

    def text(self, queues: Mapping[str, Mapping[str, int]] | None = None) -> str:
        """Everything, for Prometheus. ``queues`` are the work items of the store by queue and state."""
        return "\n".join([*self._lines(), *_queues(queues or {})]) + "\n"

    def _lines(self) -> Iterator[str]:
        process = {"process": str(os.getpid())}  # read at each scrape: the object is made before a fork
        yield from _head("requests_total", "counter", "Requests by operation and outcome")
        for (operation, outcome), count in sorted(self.requests.items()):
            yield _sample("requests_total", count, operation=operation, outcome=outcome, **process)
        yield from _head("request_duration_seconds", "histogram", "How long requests took; of a stream, until it ended")
        for operation, histogram in sorted(self.seconds.items()):
            yield from _buckets("request_duration_seconds", histogram, operation=operation, **process)
        yield from _head("tasks_total", "counter", "Tasks by the state that they reached in this process")
        for state, count in sorted(self.tasks.items()):
            yield _sample("tasks_total", count, state=state, **process)
        yield from _head("task_duration_seconds", "histogram", "Seconds from the creation of a task to its end")
        for state, histogram in sorted(self.task_seconds.items()):
            yield from _buckets("task_duration_seconds", histogram, state=state, **process)
        yield from _head("webhooks_total", "counter", "Webhook deliveries by outcome")
        for outcome, count in sorted(self.webhooks.items()):
            yield _sample("webhooks_total", count, outcome=outcome, **process)
        yield from _head("swept_total", "counter", "What the sweeps of this process removed")
        for what, count in sorted(self.removed.items()):
            yield _sample("swept_total", count, what=what, **process)
        for event in EVENTS:
            yield from _head(f"{event}_total", "counter", _ABOUT[event])
            yield _sample(f"{event}_total", self.events[event], **process)
        for name, (text, read) in self.gauges.items():
            yield from _head(name, "gauge", text)
            yield _sample(name, f"{read():g}", **process)


def _queues(queues: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    yield from _head("queue_items", "gauge", "Work items of the store by queue and state; the same from every process")
    for queue, states in sorted(queues.items()):
        for state, count in sorted(states.items()):
            yield _sample("queue_items", count, queue=queue, state=state)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP keelbolt_{name} {text}."
    yield f"# TYPE keelbolt_{name} {kind}"


def _sample(name: str, value: float | str, **labels: str) -> str:
    written = ",".join(f'{label}="{each}"' for label, each in labels.items())
    return f"keelbolt_{name}{{{written}}} {value}"


def _buckets(name: str, histogram: Histogram, **labels: str) -> Iterator[str]:
    seen = 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        seen += count
        yield _sample(f"{name}_bucket", seen, **labels, le="+Inf" if bound is None else f"{bound:g}")
    yield _sample(f"{name}_sum", f"{histogram.total:.6f}", **labels)
    yield _sample(f"{name}_count", seen, **labels)
