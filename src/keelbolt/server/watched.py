"""A dispatcher with metrics and tracing; without both, the plain dispatcher is used."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from typing import Any

from msgspec import structs

from keelbolt.observability.metrics import Metrics
from keelbolt.observability.tracing import CARRIER, Tracing
from keelbolt.protocol.codec import WireCodec
from keelbolt.protocol.errors import describe
from keelbolt.protocol.operations import Operation
from keelbolt.protocol.requests import Request, SendMessageRequest
from keelbolt.server.caller import Caller
from keelbolt.server.cards import Cards
from keelbolt.server.dispatch import Dispatcher
from keelbolt.server.middleware import Middleware
from keelbolt.server.service import AgentService


class InstrumentedDispatcher(Dispatcher):
    """Counts and traces every operation."""

    def __init__(
        self,
        service: AgentService,
        cards: Cards,
        middlewares: Sequence[Middleware] = (),
        *,
        metrics: Metrics | None,
        tracing: Tracing | None,
    ) -> None:
        super().__init__(service, cards, middlewares)
        self._metrics = metrics
        self._tracing = tracing

    async def answer(
        self, operation: Operation, request: Request, caller: Caller, codec: WireCodec, base: str
    ) -> bytes:
        started, outcome = time.perf_counter(), "ok"
        try:
            with self._span(operation, caller):
                return await super().answer(operation, request, self._carrying(caller), codec, base)
        except Exception as error:
            outcome = describe(error).row.reason
            raise
        finally:
            self._count(operation, outcome, started)

    async def events(
        self, request: Request, caller: Caller, codec: WireCodec, base: str
    ) -> AsyncGenerator[tuple[bytes, int | None], None]:
        sends = isinstance(request, SendMessageRequest)
        operation = Operation.send_streaming_message if sends else Operation.subscribe_to_task
        started, outcome = time.perf_counter(), "ok"
        # The span ends before the first event is sent: a span that stays current while a generator is suspended leaks
        # into other code that runs meanwhile.
        with self._span(operation, caller):
            caller = self._carrying(caller)
        events = super().events(request, caller, codec, base)
        try:
            async for event in events:
                yield event
        except Exception as error:
            outcome = describe(error).row.reason
            raise
        finally:
            await events.aclose()
            self._count(operation, outcome, started)

    def _span(self, operation: Operation, caller: Caller) -> Any:
        if self._tracing is None:
            return nullcontext()
        return self._tracing.span(f"a2a.{operation.value}", "server", parent=caller.trace)

    def _carrying(self, caller: Caller) -> Caller:
        """Return the caller with the trace, which is stored with the turn."""
        if self._tracing is None:
            return caller
        return structs.replace(caller, stored={**caller.stored, CARRIER: self._tracing.carrier()})

    def _count(self, operation: Operation, outcome: str, started: float) -> None:
        if self._metrics is not None:
            self._metrics.request(operation.value, outcome, time.perf_counter() - started)
