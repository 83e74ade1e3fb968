"""Checks 20, 21 and 49: how writes are stored, and the state after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from keelbolt.errors import DispatchFlushError
from keelbolt.turns import TurnContext
from tests.unit.turns.stage import Stage, memory, message, tool_call, turn


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


def unit(rows: list[Any], *, broken: bool = False) -> Callable[[TurnContext], Any]:
    """A unit of work over a list of rows."""

    @asynccontextmanager
    async def work(_ctx: TurnContext) -> AsyncIterator[None]:
        before = list(rows)
        try:
            yield
            if broken:
                raise OSError("commit failed")  # noqa: TRY301
        except BaseException:
            rows[:] = before
            raise

    return work


@pytest.mark.parametrize("together", [True, False])
async def test_check_20_a_failing_flush(together: bool) -> None:
    stage = Stage()
    callback = stage.recorder("store_message_callback", fail=lambda value: value.id == "b")

    async def work(ctx: Any, _helpers: Any) -> None:
        for key in "abc":
            await ctx.store_message(message(key))
        ctx.ack()

    config: dict[str, Any] = {"unit_of_work": unit(stage.calls)} if together else {}
    result = await stage.run(work, store_message_callback=callback, **config)
    (error,) = result.errors
    assert isinstance(error, DispatchFlushError)
    assert error.failed.value.id == "b"
    assert isinstance(error.__cause__, OSError)
    assert "store message b" in str(error)
    applied = [] if together else ["a"]
    assert [write.value.id for write in error.applied] == applied
    assert [write.value.id for write in error.pending] == (["a", "c"] if together else ["c"])
    assert ids(value for _name, value in stage.calls) == applied
    assert ids(result.context.turn_messages) == applied
    assert ids(stage.payloads("stored_message")) == applied
    end = stage.payloads("dispatch_end")[0]
    assert (end.status, end.error, stage.payloads("error")) == ("nack", error, [error])


async def test_check_20_a_failing_commit() -> None:
    stage = Stage()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message())
        ctx.ack()

    result = await stage.run(work, unit_of_work=unit(stage.calls, broken=True))
    (error,) = result.errors
    assert isinstance(error, DispatchFlushError)
    assert (error.failed, error.applied, len(error.pending)) == (None, (), 1)
    assert (stage.calls, len(result.context.turn_messages), stage.payloads("stored_message")) == ([], 0, [])


@pytest.mark.parametrize("where", ["together", "singly", "commit", "un-awaited"])
async def test_check_20_an_interrupted_flush_fails_later_calls(where: str) -> None:
    """A checkpoint times out: an executor that catches the error and acknowledges must not lose writes silently."""
    stage = Stage()
    stuck = asyncio.Event()

    async def store(_ctx: Any, value: Any) -> None:
        if where != "commit" and value.id == "stuck":
            await stuck.wait()
        stage.calls.append(("store_message", value))

    @asynccontextmanager
    async def work_unit(_ctx: TurnContext) -> AsyncIterator[None]:
        yield
        if where == "commit":
            await stuck.wait()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_memory(memory("other"))
        ctx.store_message(message("stuck"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await (ctx.store_message(message("next")) if where == "un-awaited" else ctx.checkpoint())
        stuck.set()
        ctx.ack()

    config: dict[str, Any] = {"unit_of_work": work_unit} if where in {"together", "commit"} else {}
    if where == "un-awaited":
        config["persistence"] = {"message": "immediate"}
    result = await stage.run(work, store_message_callback=store, **config)
    (error,) = result.errors
    assert isinstance(error, DispatchFlushError)
    assert (error.interrupted, result.status, ids(result.context.turn_messages)) == (True, "nack", [])
    assert "interrupted" in str(error)


async def test_an_interrupted_immediate_write_is_not_repeated() -> None:
    """The caller got the error, so the write is not repeated at the end: it could be stored twice."""
    stage = Stage()
    tries: list[str] = []

    async def store(_ctx: Any, value: Any) -> None:
        tries.append(value.id)
        if len(tries) == 1:
            await asyncio.Event().wait()

    async def work(ctx: Any, _helpers: Any) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ctx.store_message(message("a"))
        await ctx.store_message(message("b"))
        ctx.ack()

    result = await stage.run(work, store_message_callback=store, persistence="immediate")
    assert (result.status, tries, ids(result.context.turn_messages)) == ("ack", ["a", "b"], ["b"])


async def test_a_unit_of_work_is_one_per_flush_and_none_for_nothing() -> None:
    stage = Stage()
    opened: list[Any] = []

    @asynccontextmanager
    async def work_unit(ctx: TurnContext) -> AsyncIterator[None]:
        opened.append(ctx)
        yield
        stage.log.append("commit")

    async def work(ctx: Any, _helpers: Any) -> None:
        if ctx.iteration == 1:
            await ctx.store_message(message("a"))
            await ctx.delete_memory("b")
        if ctx.iteration == 2:
            ctx.ack()

    result = await stage.run(work, unit_of_work=work_unit)
    assert opened == [result.context]
    interesting = ("store_message", "delete_memory", "commit", "stored_message", "deleted_memory")
    assert [name for name in stage.log if name in interesting] == list(interesting)


async def test_check_21_immediate_writes_are_made_when_awaited() -> None:
    stage = Stage()
    seen: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message("a"))
        seen.append((stage.called(), stage.names("stored_message"), ctx.pending))
        ctx.nack()

    result = await stage.run(work, persistence="immediate")
    assert seen == [([("store_message", "a")], ["stored_message"], ())]
    assert stage.called() == [("store_message", "a")]
    assert len(result.context.turn_messages) == 0

    stage = Stage()
    result = await stage.run(
        lambda ctx, _helpers: (ctx.store_message(message("un-awaited")), ctx.nack()), persistence="immediate"
    )
    assert (stage.called(), len(result.context.turn_messages)) == ([("store_message", "un-awaited")], 0)

    async def finish(ctx: Any, _helpers: Any) -> None:
        ctx.store_message(message("un-awaited"))
        await ctx.store_message(message("b"))
        ctx.store_message(message("last"))
        ctx.ack()

    stage = Stage()
    result = await stage.run(finish, persistence="immediate")
    assert [key for _name, key in stage.called()] == ["un-awaited", "b", "last"]
    assert ids(result.context.turn_messages) == ["un-awaited", "b", "last"]


@pytest.mark.parametrize("awaited", [True, False])
async def test_check_21_an_immediate_failure_is_raised_where_it_is_awaited(awaited: bool) -> None:
    stage = Stage()
    callback = stage.recorder("store_message_callback", fail=lambda value: value.id == "bad")
    caught: list[str] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        if awaited:
            try:
                await ctx.store_message(message("bad"))
            except OSError:
                caught.append("caught")
        else:
            ctx.store_message(message("bad"))
        await ctx.store_message(message("good"))
        ctx.ack()

    result = await stage.run(work, persistence="immediate", store_message_callback=callback)
    assert [key for _name, key in stage.called()] == ["good"]
    if awaited:
        assert (caught, result.status, ids(result.context.turn_messages)) == (["caught"], "ack", ["good"])
    else:
        assert (caught, result.status) == ([], "nack")
        assert isinstance(result.errors[0], DispatchFlushError)


async def test_each_kind_may_have_its_own_persistence() -> None:
    stage = Stage()
    seen: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message("m"))
        await ctx.store_tool_call(tool_call("c"))
        seen.append(stage.called())
        ctx.ack()

    result = await stage.run(work, persistence={"tool_call": "immediate", "*": "deferred"})
    assert seen == [[("store_tool_call", "c")]]
    assert stage.called() == [("store_tool_call", "c"), ("store_message", "m")]
    assert (ids(result.context.turn_tool_calls), ids(result.context.turn_messages)) == (["c"], ["m"])


async def test_check_49_a_checkpoint_survives_a_nack() -> None:
    stage = Stage()
    seen: list[Any] = []
    turns: list[TurnContext] = []

    async def keep(ctx: TurnContext, proceed: Any) -> None:
        turns.append(ctx)
        await proceed()

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_tool_call(tool_call("before"))
        await ctx.checkpoint()
        seen.append((stage.called(), ids(turns[0].turn_tool_calls), ctx.pending))
        await ctx.store_tool_call(tool_call("after"))
        ctx.nack()

    result = await stage.run(work, turn_input_pipeline=[keep], unit_of_work=unit(stage.calls))
    assert seen == [([("store_tool_call", "before")], ["before"], ())]
    assert stage.called() == [("store_tool_call", "before")]
    assert ids(result.context.turn_tool_calls) == ["before"]


async def test_check_49_a_failed_checkpoint_fails_later_calls() -> None:
    """An executor that catches the error and acknowledges must not lose writes silently."""
    stage = Stage()
    callback = stage.recorder("store_message_callback", fail=lambda value: value.id == "lost")

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.store_message(message("lost"))
        with pytest.raises(DispatchFlushError):
            await ctx.checkpoint()
        ctx.ack()

    result = await stage.run(work, store_message_callback=callback)
    assert result.status == "nack"
    assert isinstance(result.errors[0], DispatchFlushError)


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_group_of_calls_is_replaced(grouped: bool) -> None:
    stage = Stage()
    groups: list[Any] = []

    async def replace(_ctx: Any, ids: Any, replacements: Any) -> None:
        groups.append((ids, replacements))

    async def hydrate(ctx: TurnContext, proceed: Any) -> None:
        for key in "abc":
            ctx.turn_tool_calls.add(tool_call(key))
        await proceed()

    new = tool_call("new")

    async def work(ctx: Any, _helpers: Any) -> None:
        await ctx.replace_tool_call_group(["a", "b"], [new])
        assert ids(ctx.turn_tool_calls) == ["c", "new"]
        ctx.ack()

    changes: dict[str, Any] = {"replace_tool_call_group_callback": replace} if grouped else {}
    result = await stage.run(work, turn_input_pipeline=[hydrate], **changes)
    assert result.status == "ack", result.errors
    assert ids(result.context.turn_tool_calls) == ["c", "new"]
    assert stage.names("deleted_tool_call", "stored_tool_call") == ["deleted_tool_call"] * 2 + ["stored_tool_call"]
    if grouped:
        assert (groups, stage.calls) == ([(("a", "b"), (new,))], [])
    else:
        assert stage.called() == [("delete_tool_call", "a"), ("delete_tool_call", "b"), ("store_tool_call", "new")]


async def test_a_failed_group_replacement_names_deleted_calls() -> None:
    stage = Stage()
    callback = stage.recorder("store_tool_call_callback", fail=lambda _value: True)

    async def write(ctx: TurnContext, _proceed: Any) -> None:
        await ctx.replace_tool_call_group(["a"], [tool_call("new")])

    result = await stage.run(turn_input_pipeline=[write], store_tool_call_callback=callback)
    assert result.errors[0].__cause__.deleted_ids == ("a",)  # type: ignore[union-attr]


async def test_writes_of_listeners_during_a_flush_are_flushed() -> None:
    stage = Stage()
    contexts: list[Any] = []

    async def work(ctx: Any, _helpers: Any) -> None:
        contexts.append(ctx)
        await ctx.store_message(message("first"))
        ctx.ack()

    runner = stage.runner(work)
    runner.observe_once("stored_message", lambda _value: contexts[0].store_message(message("second")))
    await runner.run(turn())
    assert [key for _name, key in stage.called()] == ["first", "second"]
