"""Spans by OpenTelemetry: from the request, through the worker and its steps, to the webhook, also across processes.

`Tracing.of(enabled)` is None when tracing is off. The trace of a request is always stored with its turn, so that the
process that runs the task continues it, and a worker can pass it on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from keelbolt.environment import read_flag
from keelbolt.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

Kind = Literal["server", "internal", "client"]

CARRIER = "keelbolt.trace"
"""The key of the trace in a turn's request context."""


class Tracing:
    """Creates spans."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - only where tracing is on

        self._tracer = tracer or trace.get_tracer("keelbolt")

    @classmethod
    def of(cls, enabled: bool | None = None, tracer: Tracer | None = None) -> Tracing | None:  # noqa: FBT001
        """Return Tracing if it is enabled, by the argument or by ``KEELBOLT_TRACING=1``; else None."""
        if enabled is None:
            enabled = tracer is not None or read_flag("KEELBOLT_TRACING", os.environ.get("KEELBOLT_TRACING", ""))
        if not enabled:
            return None
        if find_spec("opentelemetry") is None:
            raise MissingExtra("otel", "opentelemetry")
        return cls(tracer)

    @contextmanager
    def span(
        self,
        name: str,
        kind: Kind = "internal",
        *,
        parent: Mapping[str, str] | None = None,
        **attributes: str | int | bool,
    ) -> Iterator[Span]:
        """Run a block in a span; ``parent`` holds the headers of the trace it belongs to."""
        from opentelemetry import propagate, trace  # noqa: PLC0415

        kinds = {"server": trace.SpanKind.SERVER, "internal": trace.SpanKind.INTERNAL, "client": trace.SpanKind.CLIENT}
        context = propagate.extract(parent) if parent else None
        named = {f"keelbolt.{key}": value for key, value in attributes.items()}
        with self._tracer.start_as_current_span(name, context=context, kind=kinds[kind], attributes=named) as span:
            yield span

    def carrier(self) -> dict[str, str]:
        """Return headers that carry the current trace to another service."""
        from opentelemetry import propagate  # noqa: PLC0415

        found: dict[str, str] = {}
        propagate.inject(found)
        return found


def carried(request: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the trace in a request context."""
    found = request.get(CARRIER)
    return dict(found) if isinstance(found, Mapping) else None
