"""Stored data of a flow: its events, and its bindings to remote tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """An event of the runtime around the execution of a node; ``extra`` is read-only and holds additional values.

    ``ts`` is Unix time in seconds, ``attempt`` counts from 1, ``latency_ms`` is None if nothing was timed.
    """

    event_type: str
    ts: float
    node_name: str | None
    node_id: str | None
    trace_id: str | None
    attempt: int
    latency_ms: float | None
    queue_depth_in: int
    queue_depth_out: int
    outgoing_edges: int
    queue_maxsize: int
    trace_pending: int | None
    trace_inflight: int
    trace_cancelled: bool
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    @property
    def error_payload(self) -> Mapping[str, Any] | None:
        """The ``flow_error`` in ``extra``, or None."""
        raw = self.extra.get("flow_error")
        return MappingProxyType(dict(raw)) if isinstance(raw, Mapping) else None

    @property
    def queue_depth(self) -> int:
        """The sum of both queue depths."""
        return self.queue_depth_in + self.queue_depth_out

    def to_payload(self) -> dict[str, Any]:
        """Return the payload of the stored event: the fields by short names, overridden by entries of ``extra``."""
        payload: dict[str, Any] = {
            "ts": self.ts,
            "event": self.event_type,
            "node_name": self.node_name,
            "node_id": self.node_id,
            "trace_id": self.trace_id,
            "latency_ms": self.latency_ms,
            "q_depth_in": self.queue_depth_in,
            "q_depth_out": self.queue_depth_out,
            "q_depth_total": self.queue_depth,
            "outgoing": self.outgoing_edges,
            "queue_maxsize": self.queue_maxsize,
            "attempt": self.attempt,
            "trace_inflight": self.trace_inflight,
            "trace_cancelled": self.trace_cancelled,
        }
        if self.trace_pending is not None:
            payload["trace_pending"] = self.trace_pending
        payload.update(self.extra)
        return payload

    def metric_samples(self) -> dict[str, float]:
        """Return the numbers of this event; a ``latency_ms`` in ``extra`` overrides the event's own."""
        samples = {
            "queue_depth_in": float(self.queue_depth_in),
            "queue_depth_out": float(self.queue_depth_out),
            "queue_depth_total": float(self.queue_depth),
            "attempt": float(self.attempt),
            "trace_inflight": float(self.trace_inflight),
            "trace_cancelled": 1.0 if self.trace_cancelled else 0.0,
        }
        if self.trace_pending is not None:
            samples["trace_pending"] = float(self.trace_pending)
        if self.latency_ms is not None:
            samples["latency_ms"] = self.latency_ms
        if self.extra.get("latency_ms") is not None:
            with contextlib.suppress(TypeError, ValueError):
                samples["latency_ms"] = float(self.extra["latency_ms"])
        return samples

    def tag_values(self) -> dict[str, str]:
        """Return the names of this event, and the plain values in ``extra``, as strings."""
        tags = {"event_type": self.event_type}
        for name in ("node_name", "node_id", "trace_id"):
            value = getattr(self, name)
            if value is not None:
                tags[name] = value
        tags.update({name: str(value) for name, value in self.extra.items() if isinstance(value, str | int | float)})
        return tags


@dataclass(slots=True)
class StoredEvent:
    """A stored event. ``kind`` is an open set; ``trace_id`` is None for events without a trace."""

    trace_id: str | None
    ts: float
    kind: str
    node_name: str | None
    node_id: str | None
    payload: Mapping[str, Any]

    @classmethod
    def from_flow_event(cls, event: FlowEvent) -> StoredEvent:
        """Return the stored form of a flow's event."""
        return cls(
            trace_id=event.trace_id,
            ts=event.ts,
            kind=event.event_type,
            node_name=event.node_name,
            node_id=event.node_id,
            payload=event.to_payload(),
        )


@dataclass(slots=True)
class RemoteBinding:
    """A binding of a trace to a remote task; one for each (trace, context or None, task).

    The last seven fields belong to conversations: which session called which skill of the agent, and whether the next
    turn may go to the same remote task (``is_terminal``: no).
    """

    trace_id: str
    context_id: str | None
    task_id: str
    agent_url: str
    router_session_id: str | None = None
    remote_skill: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    last_remote_task_id: str | None = None
    is_terminal: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
