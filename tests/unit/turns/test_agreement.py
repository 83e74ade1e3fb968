"""With a unit of work, storage and the turn's sets agree after any failure, and no iteration is stored in part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from keelbolt.turns import Message, TurnContext
from tests.unit.turns.stage import Stage, message, turn

KEYS = st.sampled_from("abc")
WRITES = st.lists(st.tuples(st.sampled_from(["store", "mutate", "delete"]), KEYS), max_size=4)
ENDS = st.sampled_from(["on", "on", "ack", "nack", "raise", "abort", "ack then abort", "output nack"])
ITERATIONS = st.lists(st.tuples(WRITES, st.none() | WRITES, ENDS), min_size=1, max_size=4)


class Rows:
    """A database of one table, whose transactions can be made to fail at the n-th write."""

    def __init__(self, broken_at: int | None) -> None:
        self.rows: list[Message] = []
        self.broken_at = broken_at
        self.writes = 0

    @asynccontextmanager
    async def unit(self, _ctx: TurnContext) -> AsyncIterator[None]:
        before = list(self.rows)
        try:
            yield
        except BaseException:
            self.rows = before
            raise

    async def store(self, _ctx: Any, value: Message) -> None:
        self._count()
        known = [row.id for row in self.rows]
        if value.id in known:  # a repeated store keeps one row
            self.rows[known.index(value.id)] = value
        else:
            self.rows.append(value)

    async def mutate(self, _ctx: Any, value: Message) -> None:
        self._count()
        places = [index for index, row in enumerate(self.rows) if row.id == value.id]
        kept = [row for row in self.rows if row.id != value.id]
        kept.insert(places[0] if places else len(kept), value)
        self.rows = kept

    async def delete(self, _ctx: Any, key: str) -> None:
        self._count()
        for index, row in enumerate(self.rows):
            if row.id == key:
                del self.rows[index]
                return

    def _count(self) -> None:
        self.writes += 1
        if self.writes == self.broken_at:
            raise OSError("the disk is full")


@settings(max_examples=150, deadline=None)
@given(iterations=ITERATIONS, broken_at=st.none() | st.integers(1, 8))
async def test_storage_and_turn_agree(iterations: list[Any], broken_at: int | None) -> None:
    storage = Rows(broken_at)
    settled: list[tuple[str, str]] = []  # the expected rows if nothing fails
    applied: list[tuple[str, str]] = []

    async def write(ctx: Any, writes: list[tuple[str, str]]) -> None:
        for op, key in writes:
            applied.append((op, key))
            await getattr(ctx, f"{op}_message")(key if op == "delete" else message(key))

    async def work(ctx: Any, _helpers: Any) -> None:
        first, more, end = iterations[ctx.iteration]
        applied.clear()
        await write(ctx, first)
        if more is not None:
            await ctx.checkpoint()
            settled.extend(applied)
            applied.clear()
            await write(ctx, more)
        if end in {"on", "ack"}:
            settled.extend(applied)
        if end.startswith("ack"):
            ctx.ack()
        if end.endswith("abort"):
            ctx.abort()
        if end == "nack":
            ctx.nack()
        if end == "raise":
            raise ValueError("no")

    async def after(ctx: Any, proceed: Any) -> None:
        if iterations[ctx.iteration][2] == "output nack":
            ctx.nack()
        await proceed()

    callbacks = {f"{op}_message_callback": getattr(storage, op) for op in ("store", "mutate", "delete")}
    runner = Stage().runner(
        work,
        dispatch_output_pipeline=[after],
        unit_of_work=storage.unit,
        max_iterations=len(iterations),
        **callbacks,
    )
    result = await runner.run_result(turn())
    assert [id(row) for row in result.context.turn_messages] == [id(row) for row in storage.rows]
    if broken_at is None or storage.writes < broken_at:
        model = Rows(None)
        for op, key in settled:
            await getattr(model, op)(None, key if op == "delete" else message(key))
        assert [row.id for row in storage.rows] == [row.id for row in model.rows]
        assert storage.writes == len(settled)
    else:
        assert result.status == "nack"
