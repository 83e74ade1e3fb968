"""Counters, histograms and gauges, in the text format of Prometheus. No names, texts or ids of callers.

Metrics of a process have the label ``process``: several processes share one port, so each scrape may reach any of them,
and without the label a counter would jump between their values. Metrics of the store are the same from every process,
and have no such label. `TaskStatistics` counts the tasks that ended in this process, also when metrics are off.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
TASK_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

EVENTS = {
    "takeovers": "Tasks that this process restarted after another attempt",
    "retries": "Attempts that could not run in this process and are retried",
    "dead_letters": "Tasks that this process gave up after their last attempt",
    "lease_losses": "Times that this process could not renew a lease in time",
    "storage_outages": "Times that the storage stopped answering this process",
}


class Histogram:
    """The number of values in each bucket, and their sum."""

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class StoreNumbers:
    """Numbers from the store for one scrape. ``queues`` counts work items by queue and state."""

    queues: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    oldest: Mapping[str, float] = field(default_factory=dict)  # seconds, by queue
    workers: int = 0


class Metrics:
    """The metrics of this process since its start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # (operation, "ok" or the error's reason)
        self.seconds: dict[str, Histogram] = {}
        self.tasks: Counter[str] = Counter()  # by the state that they reached
        self.task_seconds: dict[str, Histogram] = {}  # by the terminal state
        self.step_seconds: dict[str, Histogram] = {}  # by outcome: done, failed
        self.webhooks: Counter[str] = Counter()  # sent, failed
        self.webhook_lag = Histogram(TASK_BUCKETS)
        self.sweeps: Counter[tuple[str, str]] = Counter()  # (duty, outcome)
        self.removed: Counter[str] = Counter()  # removed by sweeps, by kind
        self.events: Counter[str] = Counter()  # see EVENTS
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        # From the engine of the storage, set when it is known.
        self.commit_seconds = Histogram()
        self.commit_sizes = Histogram()
        self.storage_errors: Counter[str] = Counter()

    def request(self, operation: str, outcome: str, seconds: float) -> None:
        self.requests[operation, outcome] += 1
        self.seconds.setdefault(operation, Histogram()).add(seconds)

    def task_ended(self, state: str, seconds: float) -> None:
        self.task_seconds.setdefault(state, Histogram(TASK_BUCKETS)).add(seconds)

    def step_ended(self, outcome: str, seconds: float) -> None:
        self.step_seconds.setdefault(outcome, Histogram(TASK_BUCKETS)).add(seconds)

    def swept(self, duty: str, removed: Mapping[str, int] | None) -> None:
        """Count a sweep; None: it failed."""
        self.sweeps[duty, "failed" if removed is None else "ok"] += 1
        self.removed.update(removed or {})

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read at each scrape."""
        self.gauges[name] = (text, read)

    def text(self, store: StoreNumbers | None = None) -> str:
        """Return all metrics for Prometheus. ``store`` is None while the store does not respond."""
        return "\n".join([*self._lines(), *_store_lines(store)]) + "\n"

    def _lines(self) -> Iterator[str]:
        process = {"process": str(os.getpid())}  # read at each scrape: the object is created before a fork
        yield from _head("requests_total", "counter", "Requests by operation and outcome")
        for (operation, outcome), count in sorted(self.requests.items()):
            yield _sample("requests_total", count, operation=operation, outcome=outcome, **process)
        for name, label, histograms, text in (
            (
                "request_duration_seconds",
                "operation",
                self.seconds,
                "Durations of requests; streams until they end",
            ),
            ("task_duration_seconds", "state", self.task_seconds, "Seconds from the creation of a task to its end"),
            ("step_duration_seconds", "outcome", self.step_seconds, "Durations of durable steps that ran here"),
        ):
            yield from _head(name, "histogram", text)
            for value, histogram in sorted(histograms.items()):
                yield from _buckets(name, histogram, **{label: value}, **process)
        for name, histogram, text in (
            ("webhook_lag_seconds", self.webhook_lag, "Seconds from the commit of an event to its delivery"),
            ("commit_duration_seconds", self.commit_seconds, "Durations of transactions that write a batch of commits"),
            ("commit_batch_size", self.commit_sizes, "Commits that one transaction wrote together"),
        ):
            yield from _head(name, "histogram", text)
            yield from _buckets(name, histogram, **process)
        for name, label, counts, text in (
            ("tasks_total", "state", self.tasks, "Tasks by the state that they reached in this process"),
            ("webhooks_total", "outcome", self.webhooks, "Webhook deliveries by outcome"),
            ("swept_total", "what", self.removed, "Items removed by the sweeps of this process"),
            ("storage_errors_total", "error", self.storage_errors, "Storage calls that failed, by error class"),
        ):
            yield from _head(name, "counter", text)
            for value, count in sorted(counts.items()):
                yield _sample(name, count, **{label: value}, **process)
        yield from _head("sweeps_total", "counter", "Sweeps of this process, by duty and outcome")
        for (duty, outcome), count in sorted(self.sweeps.items()):
            yield _sample("sweeps_total", count, duty=duty, outcome=outcome, **process)
        for event, text in EVENTS.items():
            yield from _head(f"{event}_total", "counter", text)
            yield _sample(f"{event}_total", self.events[event], **process)
        for name, (text, read) in self.gauges.items():
            yield from _head(name, "gauge", text)
            yield _sample(name, f"{read():g}", **process)


def _store_lines(store: StoreNumbers | None) -> Iterator[str]:
    yield from _head("storage_up", "gauge", "Whether the store answered this process at this scrape")
    yield _sample("storage_up", int(store is not None), process=str(os.getpid()))
    if store is None:
        return
    yield from _head("queue_items", "gauge", "Work items of the store by queue and state; the same from every process")
    for queue, states in sorted(store.queues.items()):
        for state, count in sorted(states.items()):
            yield _sample("queue_items", count, queue=queue, state=state)
    yield from _head("queue_oldest_seconds", "gauge", "Waiting time of the item that has been ready longest")
    for queue in sorted(store.queues):
        yield _sample("queue_oldest_seconds", f"{store.oldest.get(queue, 0.0):.3f}", queue=queue)
    yield from _head("workers", "gauge", "Leases of worker processes that have not ended")
    yield f"keelbolt_workers {store.workers}"


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


RECENT_TASKS = 256
DURATION_BOUNDS = tuple(0.001 * 2.0**power for power in range(24))  # seconds: 1 ms to more than 2 hours


@dataclass(slots=True)
class TaskStatistics:
    """``recent`` holds the durations of the last tasks in seconds, ``seconds`` a histogram of all."""

    ended: int = 0
    failed: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_TASKS))
    seconds: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS))

    def end(self, seconds: float, *, failed: bool) -> None:
        self.ended += 1
        self.failed += failed
        self.recent.append(seconds)
        self.seconds.add(seconds)

    def quantile(self, part: float) -> float | None:
        """Return this quantile of the recent durations, such as 0.95 for p95; None: there are none."""
        if not self.recent:
            return None
        return sorted(self.recent)[min(len(self.recent) - 1, int(len(self.recent) * part))]


def bucket_quantile(counts: Sequence[int], part: float) -> float | None:
    """Return the quantile of durations counted by DURATION_BOUNDS, interpolated in its bucket; None: there are none."""
    left = sum(counts) * part
    if not left:
        return None
    for index, count in enumerate(counts):
        if count and left <= count:
            if index == len(DURATION_BOUNDS):
                break
            low = DURATION_BOUNDS[index - 1] if index else 0.0
            return low + (DURATION_BOUNDS[index] - low) * left / count
        left -= count
    return DURATION_BOUNDS[-1]


# -------------------------------------------------------------------------------------------------------------- storage


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
