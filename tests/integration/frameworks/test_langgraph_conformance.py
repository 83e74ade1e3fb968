"""LangGraph's own conformance suite for checkpointers, complete, on every engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from keelbolt.langgraph import KeelboltSaver


async def test_every_capability_passes(any_url: str) -> None:
    """All base and extended capabilities are detected, and none of their tests fails."""

    @checkpointer_test(name="KeelboltSaver")
    async def savers() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        async with KeelboltSaver(any_url) as saver:
            yield saver

    report = await validate(savers)
    assert {name: result.failures for name, result in report.results.items() if result.passed is not True} == {}
    assert sum(result.tests_passed for result in report.results.values()) >= 81
