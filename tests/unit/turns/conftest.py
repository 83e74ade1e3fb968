"""Assertions within a turn fail the test, although a turn catches the errors of its executor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from keelbolt.turns import TurnResult, TurnRunner


@pytest.fixture(scope="module", autouse=True)
def _assertions_come_out() -> Iterator[None]:
    run = TurnRunner.run_result

    async def asserting(self: TurnRunner, *args: Any, **options: Any) -> TurnResult:
        result = await run(self, *args, **options)
        for error in result.errors:
            if isinstance(error.__cause__, AssertionError):
                raise error.__cause__
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TurnRunner, "run_result", asserting)
        yield
